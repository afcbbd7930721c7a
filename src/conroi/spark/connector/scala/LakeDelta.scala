package conroi.spark

import scala.collection.mutable

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.distributions.{Distribution, Distributions}
import org.apache.spark.sql.connector.expressions.{Expression => SparkExpression, Expressions => SparkExpressions}
import org.apache.spark.sql.connector.expressions.{NamedReference, SortOrder}
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** DELETE, UPDATE and MERGE by row addresses. The rows are read at the version on which the transaction began. */
private[spark] final class LakeOperation(table: LakeTable, info: RowLevelOperationInfo)
    extends RowLevelOperation with SupportsDelta {
  private lazy val session = table.session.begin()
  private lazy val target: LakeTable = if (table.session.transaction.isDefined) table else {
    val facts = table.helper.ask("op" -> "reload", "transaction" -> session.transaction.get, "target" -> table.target,
      "schema" -> table.schema().json)
    new LakeTable(table.session, facts)
  }

  override def command(): RowLevelOperation.Command = info.command()
  override def description(): String = s"${info.command()} ${table.shown}"
  override def rowId(): Array[NamedReference] = Array(SparkExpressions.column("_rowaddr"))
  override def representUpdateAsDeleteAndInsert(): Boolean = false
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = new LakeScanBuilder(target, options)

  override def newWriteBuilder(write: LogicalWriteInfo): DeltaWriteBuilder = new DeltaWriteBuilder {
    override def build(): DeltaWrite = {
      val job = () => new WriteJob(target, write.schema(), info.command().toString.toLowerCase, Nil, Some(session))
      if (command() == RowLevelOperation.Command.DELETE) new DeltaOf(job, description()) else new GatheredDelta(job, description())
    }
  }
}

private class DeltaOf(job: () => WriteJob, shown: String) extends DeltaWrite {
  override def description(): String = shown
  override def toBatch: DeltaBatchWrite = new LakeDeltaWrite(job())
}

/** Rows that are written again come together by their old place, in parts of a good size: else each task of the scan
  * would leave a small file. Spark may split and join the parts. */
private final class GatheredDelta(job: () => WriteJob, shown: String)
    extends DeltaOf(job, shown) with RequiresDistributionAndOrdering {
  override def requiredDistribution(): Distribution =
    Distributions.clustered(Array[SparkExpression](SparkExpressions.column("_rowaddr")))
  override def distributionStrictlyRequired(): Boolean = false
  override def advisoryPartitionSizeInBytes(): Long = 128L * 1024 * 1024
  override def requiredOrdering(): Array[SortOrder] = Array.empty
}

private final class LakeDeltaWrite(job: WriteJob) extends DeltaBatchWrite {
  override def createBatchWriterFactory(info: PhysicalWriteInfo): DeltaWriterFactory = new ChangeWriters(job.plan())
  override def commit(messages: Array[WriterCommitMessage]): Unit = job.commit(messages)
  override def abort(messages: Array[WriterCommitMessage]): Unit = job.abort()
}

private final class ChangeWriters(plan: WritePlan) extends DeltaWriterFactory {
  override def createWriter(partition: Int, task: Long): DeltaWriter[InternalRow] = new ChangeWriter(plan)
}

/** Changed rows are written again, apart from new ones if rows have stable ids: then they keep theirs. */
private final class ChangeWriter(plan: WritePlan) extends DeltaWriter[InternalRow] {
  private var written: Rows = _
  private var updated: Rows = _
  private val updatedRows = mutable.ArrayBuilder.make[Long]
  private val deletedRows = mutable.ArrayBuilder.make[Long]
  private var updates = 0L

  override def delete(metadata: InternalRow, id: InternalRow): Unit = deletedRows += id.getLong(0)

  override def update(metadata: InternalRow, id: InternalRow, row: InternalRow): Unit = {
    updates += 1
    if (plan.isSeparate) {
      if (updated == null) updated = new Rows(plan)
      updated.write(row)
      updatedRows += id.getLong(0)
    } else {
      insert(row)
      deletedRows += id.getLong(0)
    }
  }

  override def insert(row: InternalRow): Unit = {
    if (written == null) written = new Rows(plan)
    written.write(row)
  }

  override def commit(): WriterCommitMessage =
    Wrote(if (written == null) null else written.end(), if (updated == null) null else updated.end(),
      updatedRows.result(), deletedRows.result(), updates)
  override def abort(): Unit = ()
  override def close(): Unit = try { if (written != null) written.close() } finally if (updated != null) updated.close()
}
