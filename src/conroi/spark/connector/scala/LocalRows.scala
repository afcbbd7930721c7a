package conroi.spark

import java.util

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.catalyst.util.{ArrayBasedMapData, GenericArrayData}
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability}
import org.apache.spark.sql.connector.read.{LocalScan, Scan, ScanBuilder}
import org.apache.spark.sql.types._
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.unsafe.types.UTF8String

/** Rows that the helper computed, from JSON. `metadata_tables.py` has the types. */
private[spark] object LocalRows {
  def of(answer: JsonNode): Array[InternalRow] = {
    val schema = struct(answer)
    answer.get("rows").elements().asScala.map { row =>
      new GenericInternalRow(schema.fields.indices.map(i => value(row.get(i), schema(i).dataType)).toArray[Any]): InternalRow
    }.toArray
  }

  def struct(answer: JsonNode): StructType = DataType.fromJson(answer.get("schema").asText()).asInstanceOf[StructType]

  private def value(node: JsonNode, kind: DataType): Any =
    if (node.isNull) null
    else kind match {
      case LongType | TimestampType => node.asLong()
      case DoubleType => node.asDouble()
      case BooleanType => node.asBoolean()
      case StringType => UTF8String.fromString(node.asText())
      case ArrayType(of, _) => new GenericArrayData(node.elements().asScala.map(value(_, of)).toArray[Any])
      case MapType(_, of, _) =>
        val pairs = node.properties().asScala.toSeq
        new ArrayBasedMapData(new GenericArrayData(pairs.map(pair => UTF8String.fromString(pair.getKey)).toArray[Any]),
          new GenericArrayData(pairs.map(pair => value(pair.getValue, of)).toArray[Any]))
    }

  /** The arguments of a procedure. */
  def json(row: InternalRow, schema: StructType): Seq[JsonNode] = schema.fields.toSeq.zipWithIndex.map {
    case (_, i) if row.isNullAt(i) => Json.mapper.nullNode()
    case (field, i) => field.dataType match {
      case StringType => Json.tree(row.getUTF8String(i).toString)
      case other => Json.tree(row.get(i, other))
    }
  }
}

private[spark] final class LocalRowsScan(schema: StructType, shown: String, load: => Array[InternalRow]) extends LocalScan {
  private lazy val loaded = load

  override def readSchema(): StructType = schema
  override def rows(): Array[InternalRow] = loaded
  override def description(): String = shown
}

/** A metadata table: the helper computes its rows when a query is planned. */
private[spark] final class MetadataTable(session: LakeSession, facts: JsonNode, request: Seq[(String, Any)])
    extends Table with SupportsRead {
  private val struct = LocalRows.struct(facts)

  override def name(): String = facts.get("name").asText()
  override def schema(): StructType = struct
  override def capabilities(): util.Set[TableCapability] = util.EnumSet.of(TableCapability.BATCH_READ)

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = new ScanBuilder {
    override def build(): Scan = new LocalRowsScan(struct, s"conroi ${name()}", LocalRows.of(rows()))
  }

  private def rows(): JsonNode = session.helper.ask(("op" -> "metadata_rows") +: request: _*)
}
