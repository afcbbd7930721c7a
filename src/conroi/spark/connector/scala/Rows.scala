package conroi.spark

import java.io.{ByteArrayInputStream, IOException}
import java.nio.channels.Channels
import java.util.Base64

import com.fasterxml.jackson.databind.JsonNode
import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.ipc.{ArrowStreamWriter, ReadChannel}
import org.apache.arrow.vector.ipc.message.MessageSerializer
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.arrow.ArrowWriter

/** How tasks write, sent to the executors. `task` is opaque, and possibly has credentials. */
private[spark] final case class WritePlan(python: Python, task: String, arrow: String, batchRows: Int, isSeparate: Boolean)

private[spark] object WritePlan {
  def of(python: Python, answer: JsonNode): WritePlan = WritePlan(python, answer.get("task").asText(),
    answer.get("arrow").asText(), answer.get("batchRows").asInt(), answer.path("separate").asBoolean())
}

/** Rows on their way to a worker, which writes them into files. */
private[spark] final class Rows(plan: WritePlan) {
  private val allocator = ArrowMemory.root.newChildAllocator("write", 0, Long.MaxValue)
  private val bytes = Base64.getDecoder.decode(plan.arrow)
  private val schema =
    MessageSerializer.deserializeSchema(new ReadChannel(Channels.newChannel(new ByteArrayInputStream(bytes))))
  private val root = VectorSchemaRoot.create(schema, allocator)
  private val arrow = ArrowWriter.create(root)
  private val worker = try Workers.borrow(plan.python) catch { case e: Throwable => root.close(); allocator.close(); throw e }
  private val stream = new ArrowStreamWriter(root, null, worker.sink)
  private var waiting = 0
  private var isDone = false

  told { worker.send(Json.obj("op" -> "write", "task" -> plan.task)); worker.receive(); stream.start() }

  def write(row: InternalRow): Unit = {
    arrow.write(row)
    waiting += 1
    if (waiting >= plan.batchRows) flush()
  }

  private def flush(): Unit = told {
    arrow.finish()
    stream.writeBatch()
    arrow.reset()
    waiting = 0
  }

  /** What the worker wrote: opaque. */
  def end(): String = told {
    if (waiting > 0) flush()
    stream.end()
    worker.flush()
    val part = worker.receive().get("part").asText()
    isDone = true
    part
  }

  /** A worker that fails says why before it closes its end. */
  private def told[T](work: => T): T = try work catch { case _: IOException => worker.receive(); throw lost }
  private def lost = LakeException.of("StoreUnavailable", "The worker stopped reading.", "Run the statement again.")

  def close(): Unit = {
    try { root.close(); allocator.close() }
    finally if (isDone) Workers.giveBack(plan.python, worker) else worker.kill()
  }
}
