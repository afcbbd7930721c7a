package conroi.spark

import java.io.{InputStream, OutputStream}
import java.net.UnixDomainSocketAddress
import java.nio.ByteBuffer
import java.nio.channels.SocketChannel
import java.util.concurrent.{CompletableFuture, ConcurrentHashMap, ExecutionException}
import java.util.concurrent.atomic.AtomicLong

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

/** The helper ended before it answered. */
private final class HelperLost(message: String) extends RuntimeException(message)

/** Where a helper runs: in a process that the driver started, or in the Python process that started the driver. */
private trait HelperHost {
  def shown: String
  def pid: Long
  def isAlive: Boolean
  def frames: Frames
  def end(): Unit
}

private final class StartedHost(process: Process) extends HelperHost {
  override val frames = new Frames(process.getInputStream, process.getOutputStream)
  override def shown: String = s"The helper process ${process.pid()}"
  override def pid: Long = process.pid()
  override def isAlive: Boolean = process.isAlive
  override def end(): Unit = { process.destroyForcibly(); () }
}

private final class SocketHost(path: String) extends HelperHost {
  private val channel = SocketChannel.open(UnixDomainSocketAddress.of(path))
  override val frames = new Frames(new ChannelInput(channel), new ChannelOutput(channel))
  override def shown: String = "The Python process of the driver"
  override def pid: Long = -1
  override def isAlive: Boolean = channel.isOpen
  override def end(): Unit = channel.close()
}

/** Streams over a channel. Those of java.nio hold one lock for both directions, so an answer could wait for a request. */
private final class ChannelInput(channel: SocketChannel) extends InputStream {
  override def read(): Int = { val one = new Array[Byte](1); if (read(one, 0, 1) < 0) -1 else one(0) & 0xff }
  override def read(bytes: Array[Byte], from: Int, length: Int): Int = channel.read(ByteBuffer.wrap(bytes, from, length))
}

private final class ChannelOutput(channel: SocketChannel) extends OutputStream {
  override def write(one: Int): Unit = write(Array(one.toByte), 0, 1)
  override def write(bytes: Array[Byte], from: Int, length: Int): Unit = {
    val left = ByteBuffer.wrap(bytes, from, length)
    while (left.hasRemaining) channel.write(left)
  }
}

/** A helper that runs. Requests of several threads are under way at once, matched by their numbers. */
private final class RunningHelper(host: HelperHost) {
  private val frames = host.frames
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
        host.end()
        val lost = waiting.values().asScala.toSeq
        waiting.clear()
        lost.foreach(_.completeExceptionally(gone))
    }
  }

  private def gone = new HelperLost(s"${host.shown} ended.")

  def isAlive: Boolean = !ended && host.isAlive
  def pid: Long = host.pid
  def kill(): Unit = host.end()

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
  private var current: RunningHelper = _

  private def host(): HelperHost = Option(opening.get("settings").get("socket")) match {
    case Some(path) => new SocketHost(path.asText())
    case None => new StartedHost(python.start("conroi.spark.connector.helper", Nil, Map.empty))
  }

  private def running(): RunningHelper = synchronized {
    if (current == null || !current.isAlive) {
      val started = new RunningHelper(host())
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
  def pids: java.util.List[Long] = all.values().asScala.map(_.pid).filter(_ > 0).toSeq.asJava
}
