package conroi.spark

import java.io.{DataInputStream, DataOutputStream, InputStream, OutputStream}

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.spark.SparkThrowable
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** JSON by Jackson, which Spark ships. */
private[spark] object Json {
  val mapper = new ObjectMapper()

  def obj(fields: (String, Any)*): ObjectNode = {
    val node = mapper.createObjectNode()
    fields.foreach { case (name, value) => if (value != null) node.set[JsonNode](name, tree(value)) }
    node
  }

  def tree(value: Any): JsonNode = value match {
    case node: JsonNode => node
    case items: Seq[_] => mapper.valueToTree[JsonNode](items.map(tree).asJava)
    case pairs: Map[_, _] => obj(pairs.toSeq.map { case (name, item) => (name.toString, item) }: _*)
    case other => mapper.valueToTree[JsonNode](other)
  }

  def texts(node: JsonNode): Seq[String] =
    node.elements().asScala.map(item => if (item.isNull) null else item.asText()).toSeq

  def options(given: CaseInsensitiveStringMap): ObjectNode = obj(given.asCaseSensitiveMap().asScala.toSeq: _*)

  def pairs(node: JsonNode): java.util.Map[String, String] = {
    val found = new java.util.LinkedHashMap[String, String]()
    node.properties().asScala.foreach(entry => found.put(entry.getKey, entry.getValue.asText()))
    found
  }
}

/** A message: JSON, and bytes that belong to it. */
private[spark] final case class Message(json: JsonNode, bytes: Array[Byte])

/** Framing: the lengths of the JSON and of the bytes (two big-endian integers), then both. */
private[spark] final class Frames(input: InputStream, output: OutputStream) {
  private val in = new DataInputStream(input)
  private val out = new DataOutputStream(output)

  def send(json: JsonNode, bytes: Array[Byte] = Array.emptyByteArray): Unit = synchronized {
    val text = Json.mapper.writeValueAsBytes(json)
    out.writeInt(text.length)
    out.writeInt(bytes.length)
    out.write(text)
    out.write(bytes)
    out.flush()
  }

  /** The next message; EOFException if the process has ended. */
  def receive(): Message = {
    val text = new Array[Byte](in.readInt())
    val bytes = new Array[Byte](in.readInt())
    in.readFully(text)
    in.readFully(bytes)
    Message(Json.mapper.readTree(text), bytes)
  }
}

/** An error of conroi. PySpark maps IllegalArgumentException; `facts` has its type and attributes, as JSON. Spark does not
  * wrap a SparkThrowable into an error of its own; the condition is null, as it is none of Spark's.
  */
class LakeException(val kind: String, text: String, val facts: String)
    extends IllegalArgumentException(s"[conroi.$kind] $text") with SparkThrowable {
  override def getCondition: String = null
  override def getSqlState: String = null
}

private[spark] object LakeException {
  def of(error: JsonNode): LakeException =
    new LakeException(error.get("kind").asText(), error.get("text").asText(), error.toString)

  def of(kind: String, message: String, hint: String): LakeException =
    of(Json.obj("kind" -> kind, "message" -> message, "hint" -> hint, "text" -> s"$message Hint: $hint"))
}
