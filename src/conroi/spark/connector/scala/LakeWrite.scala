package conroi.spark

import java.util.UUID

import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.connector.write.streaming.StreamingWrite
import org.apache.spark.sql.types.StructType

/** What one task wrote: parts are opaque, addresses are those of rows that it changed or deleted, updates their count. */
private final case class Wrote(
    written: String, updated: String, updatedRows: Array[Long], deletedRows: Array[Long], updates: Long)
    extends WriterCommitMessage {

  /** In types of Java alone: with ADD JAR, tasks and driver load this class by different class loaders. */
  def facts: Array[AnyRef] = Array(written, updated, updatedRows, deletedRows, Long.box(updates))
}

private object Wrote {
  def of(message: WriterCommitMessage): Wrote = message match {
    case ours: Wrote => ours
    case other =>
      val facts = other.getClass.getMethod("facts").invoke(other).asInstanceOf[Array[AnyRef]]
      Wrote(facts(0).asInstanceOf[String], facts(1).asInstanceOf[String], facts(2).asInstanceOf[Array[Long]],
        facts(3).asInstanceOf[Array[Long]], facts(4).asInstanceOf[Long])
  }
}

private[spark] final class LakeWriteBuilder(table: LakeTable, info: LogicalWriteInfo)
    extends WriteBuilder with SupportsOverwriteV2 with SupportsDynamicOverwrite {
  private var mode = "append"
  private var filters = Seq.empty[String]

  override def canOverwrite(predicates: Array[Predicate]): Boolean = table.filters(predicates).forall(_ != null)

  override def overwrite(predicates: Array[Predicate]): WriteBuilder = {
    mode = "overwrite"
    filters = table.filters(predicates)
    this
  }
  override def truncate(): WriteBuilder = { mode = "overwrite"; this }
  override def overwriteDynamicPartitions(): WriteBuilder = { mode = "dynamic"; this }

  override def build(): Write = new Write {
    override def description(): String = s"$mode ${table.shown}"
    override def toBatch: BatchWrite = new LakeBatchWrite(table, info.schema(), mode, filters)
    override def toStreaming: StreamingWrite = new LakeBatch(table, info, mode)
  }
}

/** The part of a write that happens on the driver: plan, then stage what the tasks wrote. */
private final class WriteJob(table: LakeTable, schema: StructType, mode: String, filters: Seq[String], begun: Option[LakeSession]) {
  private val id = UUID.randomUUID().toString
  private lazy val now = begun.getOrElse(table.session.begin())

  def plan(): WritePlan = {
    val answer = table.helper.ask("op" -> "plan_write", "transaction" -> now.transaction.get, "write" -> id,
      "target" -> table.target, "version" -> table.version(), "schema" -> schema.json, "mode" -> mode)
    WritePlan.of(table.python, answer)
  }

  def commit(messages: Array[WriterCommitMessage]): Unit = {
    Portions.of(messages.toSeq.map(Wrote.of)).foreach(send)
    table.helper.ask("op" -> "stage_write", "transaction" -> now.transaction.get, "write" -> id,
      "target" -> table.target, "mode" -> mode, "filters" -> filters)
    table.finish(now)
  }

  private def send(wrote: Seq[Wrote]): Unit = {
    val request = Json.obj("op" -> "add_parts", "transaction" -> now.transaction.get, "write" -> id,
      "parts" -> Portions.facts(wrote))
    table.helper.ask(request, Portions.addresses(wrote))
    ()
  }

  /** Nothing is deleted: files that no version refers to are garbage. */
  def abort(): Unit = table.undo(now)
}

/** What many tasks wrote, in messages of about a megabyte. */
private object Portions {
  private val Bytes = 1 << 20

  private def size(each: Wrote): Int =
    Seq(each.written, each.updated).filter(_ != null).map(_.length).sum + 8 * (each.updatedRows.length + each.deletedRows.length)

  def of(all: Seq[Wrote]): Seq[Seq[Wrote]] = {
    val portions = Seq.newBuilder[Seq[Wrote]]
    var portion = Vector.empty[Wrote]
    var bytes = 0L
    all.foreach { each =>
      portion :+= each
      bytes += size(each)
      if (bytes >= Bytes) { portions += portion; portion = Vector.empty; bytes = 0 }
    }
    if (portion.nonEmpty) portions += portion
    portions.result()
  }

  def facts(wrote: Seq[Wrote]): Seq[ObjectNode] =
    wrote.map(each => Json.obj("written" -> each.written, "updated" -> each.updated,
      "updatedRows" -> each.updatedRows.length, "deletedRows" -> each.deletedRows.length, "updates" -> each.updates))

  def addresses(wrote: Seq[Wrote]): Array[Byte] = {
    val all = wrote.flatMap(each => Seq(each.updatedRows, each.deletedRows))
    val buffer = java.nio.ByteBuffer.allocate(8 * all.map(_.length).sum)
    all.foreach(_.foreach(buffer.putLong))
    buffer.array()
  }
}

private final class LakeBatchWrite(table: LakeTable, schema: StructType, mode: String, filters: Seq[String])
    extends BatchWrite {
  private val job = new WriteJob(table, schema, mode, filters, None)

  override def createBatchWriterFactory(info: PhysicalWriteInfo): DataWriterFactory = new RowWriters(job.plan())
  override def commit(messages: Array[WriterCommitMessage]): Unit = job.commit(messages)
  override def abort(messages: Array[WriterCommitMessage]): Unit = job.abort()
}

private final class RowWriters(plan: WritePlan) extends DataWriterFactory {
  override def createWriter(partition: Int, task: Long): DataWriter[InternalRow] = new RowWriter(plan)
}

/** A task without rows starts no worker. */
private final class RowWriter(plan: WritePlan) extends DataWriter[InternalRow] {
  private var rows: Rows = _

  override def write(row: InternalRow): Unit = {
    if (rows == null) rows = new Rows(plan)
    rows.write(row)
  }
  override def commit(): WriterCommitMessage =
    Wrote(if (rows == null) null else rows.end(), null, Array.emptyLongArray, Array.emptyLongArray, 0)
  override def abort(): Unit = ()
  override def close(): Unit = if (rows != null) rows.close()
}
