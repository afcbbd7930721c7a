package conroi.spark

import java.util.UUID

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReaderFactory}
import org.apache.spark.sql.connector.read.streaming._
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.connector.write.streaming.{StreamingDataWriterFactory, StreamingWrite}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Where a stream is: opaque. */
private final case class LakeOffset(text: String) extends Offset {
  override def json(): String = text
}

/** `spark.readStream.table("lake.orders")`: the helper says where a batch ends, and what its tasks read. */
private[spark] final class LakeStream(table: LakeTable, options: CaseInsensitiveStringMap, schema: StructType)
    extends MicroBatchStream with SupportsTriggerAvailableNow {
  private val id = UUID.randomUUID().toString
  private val about = Seq("stream" -> id, "target" -> table.target, "options" -> Json.options(options))
  private lazy val begun = ask("begin_stream", "schema" -> schema.json)
  private var until: JsonNode = _

  private def ask(op: String, more: (String, Any)*): JsonNode = table.helper.ask(("op" -> op) +: (about ++ more): _*)

  override def initialOffset(): Offset = LakeOffset(begun.get("initial").asText())
  override def deserializeOffset(json: String): Offset = LakeOffset(json)

  override def getDefaultReadLimit: ReadLimit =
    if (begun.get("isLimited").asBoolean()) ReadLimit.maxRows(Long.MaxValue) else ReadLimit.allAvailable()

  override def latestOffset(): Offset = latestOffset(initialOffset(), getDefaultReadLimit)

  /** `trigger(once=True)` asks for all rows, whatever the limits; other than that Spark hands back the one above. */
  override def latestOffset(start: Offset, limit: ReadLimit): Offset = {
    val isLimited = !limit.isInstanceOf[ReadAllAvailable]
    LakeOffset(ask("next_offset", "start" -> start.json(), "isLimited" -> isLimited, "until" -> until).get("end").asText())
  }

  override def prepareForTriggerAvailableNow(): Unit = until = ask("newest_version").get("version")

  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] =
    ask("plan_batch", "start" -> start.json(), "end" -> end.json(), "schema" -> schema.json).get("tasks").elements()
      .asScala.map(task => ScanPartition(task.toString): InputPartition).toArray

  override def createReaderFactory(): PartitionReaderFactory =
    new ScanReaders(table.python, begun.get("common").toString, schema)

  override def commit(end: Offset): Unit = { ask("end_batch", "end" -> end.json()); () }
  override def stop(): Unit = { ask("end_stream"); () }
}

/** `writeStream.toTable("lake.orders")`: one batch. It is committed under the id of its query and its own number. */
private[spark] final class LakeBatch(table: LakeTable, info: LogicalWriteInfo, mode: String) extends StreamingWrite {
  private val about = Seq("write" -> UUID.randomUUID().toString, "target" -> table.target, "mode" -> mode)

  private def ask(op: String, more: (String, Any)*): JsonNode = table.helper.ask(("op" -> op) +: (about ++ more): _*)

  override def createStreamingWriterFactory(physical: PhysicalWriteInfo): StreamingDataWriterFactory =
    new BatchWriters(WritePlan.of(table.python, ask("plan_batch_write", "schema" -> info.schema().json,
      "options" -> Json.options(info.options()), "joined" -> table.session.joined.flatMap(_.transaction).orNull)))

  override def commit(batch: Long, messages: Array[WriterCommitMessage]): Unit = {
    Portions.of(messages.toSeq.map(Wrote.of)).foreach(wrote => ask("add_batch_parts", "parts" -> Portions.facts(wrote)))
    ask("commit_batch", "query" -> info.queryId(), "batch" -> batch)
    ()
  }

  /** Nothing is deleted: files that no version refers to are garbage. */
  override def abort(batch: Long, messages: Array[WriterCommitMessage]): Unit =
    try { ask("abort_batch"); () } catch { case _: LakeException => () }
}

private final class BatchWriters(plan: WritePlan) extends StreamingDataWriterFactory {
  override def createWriter(partition: Int, task: Long, batch: Long): DataWriter[InternalRow] = new RowWriter(plan)
}
