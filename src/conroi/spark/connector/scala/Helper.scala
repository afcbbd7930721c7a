package conroi.spark

import java.util.concurrent.{CompletableFuture, ConcurrentHashMap, ExecutionException}
import java.util.concurrent.atomic.AtomicLong

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

/** The helper ended before it answered. */
private final class HelperLost(message: String) extends RuntimeException(message)

/** One run of the helper process. Requests of several threads are under way at once, matched by their numbers. */
private final class HelperProcess(process: Process) {
  private val frames = new Frames(process.getInputStream, process.getOutputStream)
  private val waiting = new ConcurrentHashMap[Long, CompletableFuture[Message]]()
  private val numbers = new AtomicLong()
  @volatile private var ended = false

  private val reader = new Thread(() => receiveAll(), "conroi-helper")
  reader.setDaemon(true)
  reader.start()

  private def receiveAll(): Unit = {
    try {
      while (true) {
        val answer = frames.receive()
        val asked = waiting.remove(answer.json.get("id").asLong())
        if (asked != null) asked.complete(answer)
      }
    } catch {
      case _: Exception =>
        ended = true
        process.destroy()
        val lost = waiting.values().asScala.toSeq
        waiting.clear()
        lost.foreach(_.completeExceptionally(gone))
    }
  }

  private def gone = new HelperLost(s"The helper process ${process.pid()} ended.")

  def isAlive: Boolean = !ended && process.isAlive
  def pid: Long = process.pid()
  def kill(): Unit = { process.destroyForcibly(); () }

  def ask(request: ObjectNode, bytes: Array[Byte]): Message = {
    val number = numbers.incrementAndGet()
    val answer = new CompletableFuture[Message]()
    waiting.put(number, answer)
    try {
      frames.send(request.deepCopy().put("id", number), bytes)
      if (ended) answer.completeExceptionally(gone)
      answer.get()
    } catch {
      case failed: ExecutionException => throw failed.getCause
      case _: java.io.IOException => throw gone
    } finally waiting.remove(number)
  }
}

/** The helper of one lake on the driver. A dead one is started again; transactions that it had open are lost with it. */
private[spark] final class Helper(python: Python, opening: ObjectNode) {
  private var current: HelperProcess = _

  private def running(): HelperProcess = synchronized {
    if (current == null || !current.isAlive) {
      val started = new HelperProcess(python.start("conroi.spark.connector.helper", Nil, Map.empty))
      try checked(started.ask(opening, Array.emptyByteArray))
      catch { case refused: Exception => started.kill(); throw refused }
      current = started
    }
    current
  }

  /** Of the process, for tests. */
  def pid: Long = running().pid

  def ask(fields: (String, Any)*): JsonNode = ask(Json.obj(fields: _*), Array.emptyByteArray)

  def ask(request: ObjectNode, bytes: Array[Byte]): JsonNode = {
    val isRepeatable = !request.has("transaction") && !Helper.Acting(request.get("op").asText())
    try checked(running().ask(request, bytes))
    catch {
      case _: HelperLost if isRepeatable => checked(again(request, bytes))
      case lost: HelperLost => throw unknown(request, lost)
    }
  }

  private def again(request: ObjectNode, bytes: Array[Byte]): Message =
    try running().ask(request, bytes)
    catch {
      case lost: HelperLost =>
        throw LakeException.of("StoreUnavailable", lost.getMessage, "The log of the driver says why.")
    }

  private def unknown(request: ObjectNode, lost: HelperLost): LakeException = {
    val op = request.get("op").asText()
    if (op == "commit" || (Helper.Acting(op) && !request.has("transaction")))
      LakeException.of("CommitStateUnknown", s"${lost.getMessage} It may have committed before.",
        "Look at the history of the lake before you run the statement again.")
    else
      LakeException.of("ClosedError", s"${lost.getMessage} The transaction is lost; nothing was committed.",
        "Run the statement again.")
  }

  private def checked(answer: Message): JsonNode =
    if (answer.json.has("error")) throw LakeException.of(answer.json.get("error")) else answer.json
}

private object Helper {
  /** Requests that commit at once, unless they are part of a transaction: a lost answer says nothing. */
  val Acting = Set("commit", "call", "create", "alter", "rename", "drop", "create_namespace", "alter_namespace",
    "drop_namespace")
}

/** The helpers of this driver: sessions with the same settings share one. */
private[spark] object Helpers {
  private val all = new ConcurrentHashMap[(Python, String), Helper]()

  def of(python: Python, opening: ObjectNode): Helper =
    all.computeIfAbsent((python, opening.toString), _ => new Helper(python, opening))

  /** The processes, for tests. */
  def pids: java.util.List[Long] = all.values().asScala.map(_.pid).toSeq.asJava
}
