package conroi.spark

import java.io.{EOFException, InputStream}
import java.net.{StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.ByteBuffer
import java.nio.channels.{Channels, ReadableByteChannel, ServerSocketChannel, SocketChannel, WritableByteChannel}
import java.nio.file.{Files, Path}
import java.nio.file.attribute.PosixFilePermissions
import java.util.concurrent.{ConcurrentHashMap, ConcurrentLinkedDeque, TimeUnit}

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.SparkEnv

/** A Python process that serves one task at a time. Requests go by its pipes, rows by a Unix socket or by the pipes. */
private[spark] final class Worker(val process: Process, socket: SocketChannel) {
  private val frames = new Frames(process.getInputStream, process.getOutputStream)
  @volatile var idleSince: Long = 0L

  val source: ReadableByteChannel = if (socket != null) socket else new PipeSource(process.getInputStream)
  val sink: WritableByteChannel = if (socket != null) socket else Channels.newChannel(process.getOutputStream)

  def send(request: JsonNode): Unit = frames.send(request)

  /** What follows rows: how many there were, or what went wrong. */
  def receive(): JsonNode = {
    val answer = try frames.receive().json catch { case _: EOFException => throw ended() }
    if (answer.has("error")) throw LakeException.of(answer.get("error"))
    answer
  }

  def flush(): Unit = process.getOutputStream.flush()

  private def ended(): LakeException = {
    val exited = process.waitFor(1, TimeUnit.SECONDS)
    val how = if (exited) s" with status ${process.exitValue()}" else ""
    LakeException.of("StoreUnavailable", s"The worker process ${process.pid()} ended$how.",
      "The log of the executor says why; a process that takes too much memory is killed.")
  }

  def isAlive: Boolean = process.isAlive && (socket == null || socket.isOpen)

  def kill(): Unit = {
    try if (socket != null) socket.close()
    finally { process.destroyForcibly(); () }
  }
}

/** Reads a pipe in big pieces; the stream belongs to the worker and stays open. */
private final class PipeSource(in: InputStream) extends ReadableByteChannel {
  private val piece = new Array[Byte](1 << 18)

  override def read(to: ByteBuffer): Int = {
    val got = in.read(piece, 0, math.min(to.remaining(), piece.length))
    if (got > 0) to.put(piece, 0, got)
    got
  }
  override def isOpen: Boolean = true
  override def close(): Unit = ()
}

/** The workers of this process, kept for later tasks until they were idle for a while. */
private[spark] object Workers {
  private val idle = new ConcurrentHashMap[Python, ConcurrentLinkedDeque[Worker]]()
  private val IdleSeconds = 60L

  /** As in wire.py. */
  private val Protocol = 1

  private lazy val folder: Path = {
    val mine = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"))
    val made = Files.createTempDirectory("conroi-", mine)
    made.toFile.deleteOnExit()
    made
  }

  private lazy val reaper: Thread = {
    val thread = new Thread(() => reap(), "conroi-workers")
    thread.setDaemon(true)
    thread.start()
    thread
  }

  private def of(python: Python) = idle.computeIfAbsent(python, _ => new ConcurrentLinkedDeque[Worker]())

  def borrow(python: Python): Worker = {
    var found = of(python).pollFirst()
    while (found != null && !found.isAlive) { found.kill(); found = of(python).pollFirst() }
    if (found != null) found else start(python)
  }

  def giveBack(python: Python, worker: Worker): Unit = {
    worker.idleSince = System.nanoTime()
    of(python).addFirst(worker)
    reaper
    ()
  }

  /** The idle processes, for tests. */
  def pids: java.util.List[Long] = idle.values().asScala.flatMap(_.asScala).map(_.process.pid()).toSeq.asJava

  private def reap(): Unit = while (true) {
    Thread.sleep(5000)
    val oldest = System.nanoTime() - TimeUnit.SECONDS.toNanos(seconds)
    for (pool <- idle.values().asScala; worker <- pool.asScala)
      if (worker.idleSince < oldest && pool.remove(worker)) worker.kill()
  }

  private def seconds: Long =
    Option(SparkEnv.get).map(_.conf.getLong("spark.conroi.worker.idleSeconds", IdleSeconds)).getOrElse(IdleSeconds)

  private def start(python: Python): Worker = {
    val usesSockets = Option(SparkEnv.get).forall(_.conf.getBoolean("spark.conroi.worker.sockets", true))
    if (usesSockets) withSocket(python) else started(python, Nil, () => null)
  }

  private def withSocket(python: Python): Worker = {
    val path = folder.resolve(s"${java.util.UUID.randomUUID()}.sock")
    val server = try ServerSocketChannel.open(StandardProtocolFamily.UNIX) catch {
      case _: UnsupportedOperationException => return started(python, Nil, () => null)
    }
    try {
      server.bind(UnixDomainSocketAddress.of(path))
      started(python, Seq(path.toString), () => server.accept())
    } finally {
      server.close()
      Files.deleteIfExists(path)
    }
  }

  /** The worker says hello after it has connected, so that accept() does not wait for a process that failed. */
  private def started(python: Python, arguments: Seq[String], accept: () => SocketChannel): Worker = {
    val process = python.start("conroi.spark.connector.worker", arguments, limits)
    try {
      val spoken = new Worker(process, null).receive().path("protocol").asInt()
      if (spoken != Protocol)
        throw LakeException.of("UnsupportedError", s"The conroi of this executor speaks protocol $spoken, not $Protocol.",
          "Install the same version everywhere, or send it with conroi.spark.ship(spark).")
      new Worker(process, accept())
    } catch {
      case failed: Throwable =>
        process.destroyForcibly()
        throw failed
    }
  }

  /** The share of one task in `spark.executor.pyspark.memory`, as for Spark's own Python workers. */
  private def limits: Map[String, String] = {
    val conf = Option(SparkEnv.get).map(_.conf)
    val most = conf.flatMap(_.getOption("spark.executor.pyspark.memory"))
    most.map { text =>
      val cores = math.max(1, conf.get.getInt("spark.executor.cores", 1))
      val bytes = org.apache.spark.network.util.JavaUtils.byteStringAs(text, org.apache.spark.network.util.ByteUnit.MiB)
      "CONROI_WORKER_MEMORY_MB" -> (bytes / cores).toString
    }.toMap
  }
}
