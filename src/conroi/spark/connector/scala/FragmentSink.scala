package conroi.spark

import java.util

import org.apache.spark.sql.connector.catalog.{SupportsWrite, Table, TableCapability, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Data files from the rows of a DataFrame, for a verb of a table: `table.append(df)`. Nothing becomes visible here: the
  * Python process that runs the verb is told what the tasks wrote, and commits it.
  */
class FragmentSink extends TableProvider {
  override def supportsExternalMetadata(): Boolean = true
  override def inferSchema(options: CaseInsensitiveStringMap): StructType = new StructType()

  override def getTable(schema: StructType, partitions: Array[Transform], options: util.Map[String, String]): Table = {
    val given = new CaseInsensitiveStringMap(options)
    new FragmentTable(LakeSession.ofDriver(given), given.get("write"), schema)
  }
}

private final class FragmentTable(session: LakeSession, id: String, struct: StructType) extends Table with SupportsWrite {
  override def name(): String = "conroi fragments"
  override def schema(): StructType = struct
  override def capabilities(): util.Set[TableCapability] =
    util.EnumSet.of(TableCapability.BATCH_WRITE, TableCapability.ACCEPT_ANY_SCHEMA)

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = new WriteBuilder {
    override def build(): Write = new Write {
      override def description(): String = name()
      override def toBatch: BatchWrite = new FragmentWrite(session, id, info.schema())
    }
  }
}

private final class FragmentWrite(session: LakeSession, id: String, schema: StructType) extends BatchWrite {
  override def createBatchWriterFactory(info: PhysicalWriteInfo): DataWriterFactory =
    new RowWriters(WritePlan.of(session.python,
      session.helper.ask("op" -> "plan_fragments", "write" -> id, "schema" -> schema.json)))

  override def commit(messages: Array[WriterCommitMessage]): Unit =
    Portions.of(messages.toSeq.map(Wrote.of)).foreach { wrote =>
      session.helper.ask("op" -> "add_fragments", "write" -> id, "parts" -> Portions.facts(wrote))
    }

  /** Nothing is deleted: files that no version refers to are garbage. */
  override def abort(messages: Array[WriterCommitMessage]): Unit = ()
}
