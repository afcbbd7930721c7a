package conroi.spark

import org.apache.arrow.memory.{BufferAllocator, RootAllocator}
import org.apache.arrow.vector.ipc.ArrowStreamReader
import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarBatch}

private[spark] object ArrowMemory {
  lazy val root: BufferAllocator = new RootAllocator(Long.MaxValue)
}

/** What one task reads: a request for a worker. */
private final case class ScanPartition(request: String) extends InputPartition

/** Sent to the executors. `common` is what the requests of all tasks share, and is not shown anywhere. */
private final class ScanReaders(python: Python, common: String, schema: StructType) extends PartitionReaderFactory {
  override def supportColumnarReads(partition: InputPartition): Boolean = true
  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    throw new UnsupportedOperationException("Rows are read in batches.")

  override def createColumnarReader(partition: InputPartition): PartitionReader[ColumnarBatch] = {
    val request = Json.mapper.createObjectNode()
    request.setAll(Json.mapper.readTree(common).asInstanceOf[com.fasterxml.jackson.databind.node.ObjectNode])
    val mine = Json.mapper.readTree(partition.asInstanceOf[ScanPartition].request)
    request.setAll(mine.asInstanceOf[com.fasterxml.jackson.databind.node.ObjectNode])
    if (schema.isEmpty) new CountReader(python, request) else new ArrowReader(python, request, schema)
  }
}

/** Rows without columns: only how many there are. */
private final class CountReader(python: Python, request: com.fasterxml.jackson.databind.JsonNode)
    extends PartitionReader[ColumnarBatch] {
  private val MostRows = 1 << 20
  private var left = -1L
  private var batch: ColumnarBatch = _

  private def counted(): Long = {
    val worker = Workers.borrow(python)
    try {
      worker.send(request)
      val rows = worker.receive().get("rows").asLong()
      Workers.giveBack(python, worker)
      rows
    } catch { case failed: Throwable => worker.kill(); throw failed }
  }

  override def next(): Boolean = {
    if (left < 0) left = counted()
    val now = math.min(left, MostRows).toInt
    left -= now
    batch = new ColumnarBatch(Array.empty[ColumnVector], now)
    now > 0
  }
  override def get(): ColumnarBatch = batch
  override def close(): Unit = ()
}

/** Batches of a worker, read into Arrow's memory and shown to Spark without a copy. */
private final class ArrowReader(python: Python, request: com.fasterxml.jackson.databind.JsonNode, schema: StructType)
    extends PartitionReader[ColumnarBatch] {
  private val allocator = ArrowMemory.root.newChildAllocator("scan", 0, Long.MaxValue)
  private var worker: Worker = _
  private var reader: ArrowStreamReader = _
  private var columns: Array[ColumnVector] = _
  private var batch: ColumnarBatch = _
  private var ended = false

  private def begin(): Unit = {
    worker = Workers.borrow(python)
    worker.send(request)
    try worker.receive()
    catch { case refused: LakeException => ended = true; throw refused } // no rows follow
    reader = new ArrowStreamReader(worker.source, allocator)
    val vectors = reader.getVectorSchemaRoot.getFieldVectors
    columns = schema.fields.indices.map(i => Vectors.of(vectors.get(i), schema(i).dataType)).toArray
    batch = new ColumnarBatch(columns)
  }

  override def next(): Boolean = {
    if (ended) return false
    if (reader == null) begin()
    if (reader.loadNextBatch()) {
      columns.foreach(Vectors.load)
      batch.setNumRows(reader.getVectorSchemaRoot.getRowCount)
      true
    } else {
      ended = true // also if the worker says that its rows ended with an error: nothing more follows
      worker.receive()
      false
    }
  }

  override def get(): ColumnarBatch = batch

  override def close(): Unit = {
    try {
      val isClean = if (ended) worker.isAlive else stopped()
      if (reader != null) reader.close(false)
      if (worker != null) { if (isClean) Workers.giveBack(python, worker) else worker.kill() }
    } finally allocator.close()
  }

  /** Ask the worker to stop, and take what it has sent; false if that is not worth it, or fails. */
  private def stopped(): Boolean = {
    val isInterrupted = Option(TaskContext.get()).exists(_.isInterrupted()) || Thread.currentThread().isInterrupted
    if (reader == null || isInterrupted || !worker.isAlive) return false
    try {
      worker.send(Json.obj("op" -> "stop"))
      while (reader.loadNextBatch()) ()
      worker.receive()
      true
    } catch { case _: Exception => false }
  }
}
