package conroi.spark

import java.util.OptionalLong

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.connector.expressions.{Expressions => SparkExpressions, NamedReference, NullOrdering, SortDirection, SortOrder}
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.join.JoinType
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A table of a join, and the filters on it. */
private final case class Side(table: LakeTable, filters: Seq[String]) {
  def facts: JsonNode = Json.obj("columns" -> table.columnTypes, "rows" -> table.rows)
}

/** What a scan asks for. The texts of filters come from the helper and go back to it. */
private final case class Wanted(
    columns: StructType,
    filters: Seq[String],
    limit: Option[Int],
    top: Option[String],
    aggregates: Option[String],
    join: Option[String],
    others: Seq[Side]) {
  def shown: String = Seq(
    Some(columns.fieldNames.mkString("[", ", ", "]")),
    where(filters),
    limit.map(rows => s"limit $rows"),
    top.map(order => s"top $order"),
    Some(others.map(side => (s"joined with ${side.table.shown}" +: where(side.filters).toSeq).mkString(" ")).mkString(" "))
      .filter(_.nonEmpty),
    aggregates.map(_ => "aggregated")).flatten.mkString(" ")

  private def where(filters: Seq[String]) = Option(filters.mkString(" AND ")).filter(_.nonEmpty).map(text => s"where $text")
}

private[spark] final class LakeScanBuilder(private val table: LakeTable, options: CaseInsensitiveStringMap)
    extends ScanBuilder with SupportsPushDownRequiredColumns with SupportsPushDownV2Filters
    with SupportsPushDownLimit with SupportsPushDownTopN with SupportsPushDownAggregates with SupportsPushDownJoin {
  private var columns = table.schema()
  private var accepted = Array.empty[Predicate]
  private var filters = table.filter.toSeq
  private var limit: Option[Int] = None
  private var top: Option[String] = None
  private var aggregates: Option[(String, StructType)] = None
  private var isRefused = false
  private var join: Option[String] = None
  private var others = Seq.empty[Side]

  /** Whole columns: fields inside a struct are not left out. */
  override def pruneColumns(required: StructType): Unit = {
    val stored = table.schema().fields.map(field => field.name -> field).toMap
    columns = StructType(required.fields.map(field => stored.getOrElse(field.name, field)))
  }

  override def pushPredicates(predicates: Array[Predicate]): Array[Predicate] = {
    val (texts, isRepeated) = table.scanFilters(predicates)
    accepted = predicates.zip(texts).collect { case (predicate, text) if text != null => predicate }
    filters = table.filter.toSeq ++ texts.filter(_ != null)
    if (isRepeated) predicates else predicates.zip(texts).collect { case (predicate, null) => predicate }
  }
  override def pushedPredicates(): Array[Predicate] = accepted

  override def pushLimit(rows: Int): Boolean = { limit = Some(rows); true }
  override def pushTopN(orders: Array[SortOrder], rows: Int): Boolean = {
    val keys = orders.toSeq.map { order =>
      Json.obj("of" -> Expressions.of(order.expression()),
        "descending" -> (order.direction() == SortDirection.DESCENDING),
        "nullsFirst" -> (order.nullOrdering() == NullOrdering.NULLS_FIRST))
    }
    val answer = table.helper.ask("op" -> "top", "columns" -> table.columnTypes, "keys" -> keys, "rows" -> rows)
    top = Option(answer.get("plan").textValue())
    top.isDefined
  }

  /** Each task stops at its own limit, or has its own first rows; Spark chooses among them. */
  override def isPartiallyPushed: Boolean = true

  /** Spark asks this first. If the answer is no, it asks for avg() as a sum and a count; but such a sum can overflow. */
  override def supportCompletePushDown(aggregation: Aggregation): Boolean = {
    val answer = asked(aggregation)
    isRefused ||= answer.isEmpty
    answer.exists { case (plan, _) => isAnsweredByMetadata(plan) }
  }

  override def pushAggregation(aggregation: Aggregation): Boolean = {
    if (!isRefused) aggregates = asked(aggregation)
    aggregates.isDefined
  }

  /** What workers compute, and its columns; None if they cannot. Spark asks twice. */
  private def asked(aggregation: Aggregation): Option[(String, StructType)] = {
    val groups = Json.tree(aggregation.groupByExpressions().toSeq.map(expression => Expressions.of(expression)))
    val functions = Json.tree(aggregation.aggregateExpressions().toSeq.map(function => Expressions.of(function)))
    if (!groups.isEmpty && join.isEmpty) return None
    answers.getOrElseUpdate(s"$groups $functions", {
      val answer = table.helper.ask("op" -> "aggregates", "columns" -> table.columnTypes, "groups" -> groups,
        "functions" -> functions, "join" -> join.orNull, "sides" -> sides.map(_.facts))
      if (answer.get("schema").isNull) None
      else Some((answer.get("plan").asText(), DataType.fromJson(answer.get("schema").asText()).asInstanceOf[StructType]))
    })
  }
  private val answers = scala.collection.mutable.Map.empty[String, Option[(String, StructType)]]

  /** Every function counts rows, and all rows are wanted. */
  private def isAnsweredByMetadata(plan: String): Boolean =
    join.isEmpty && filters.isEmpty && Json.texts(Json.mapper.readTree(plan)).forall(_ == "count")

  private def localRow: Option[InternalRow] = aggregates.collect {
    case (plan, schema) if isAnsweredByMetadata(plan) =>
      new GenericInternalRow(Array.fill[Any](schema.length)(table.rows))
  }

  private def sides: Seq[Side] = Side(table, filters) +: others

  override def isOtherSideCompatibleForJoin(other: SupportsPushDownJoin): Boolean = other match {
    case builder: LakeScanBuilder => LakeJoins.isTrying && (builder.table.helper eq table.helper)
    case _ => false
  }

  override def pushDownJoin(
      other: SupportsPushDownJoin,
      kind: JoinType,
      left: Array[SupportsPushDownJoin.ColumnWithAlias],
      right: Array[SupportsPushDownJoin.ColumnWithAlias],
      condition: Predicate): Boolean = {
    val builder = other.asInstanceOf[LakeScanBuilder]
    val both = Seq(this -> left, builder -> right).map { case (each, named) =>
      Json.obj("sides" -> each.sides.map(_.facts), "join" -> each.join.orNull,
        "columns" -> named.toSeq.map(column => Seq(column.colName(), Option(column.alias()).getOrElse(column.colName()))))
    }
    val answer = table.helper.ask("op" -> "join", "kind" -> kind.name(), "operands" -> both,
      "condition" -> Expressions.of(condition))
    if (answer.get("plan").isNull) return false
    join = Some(answer.get("plan").asText())
    columns = DataType.fromJson(answer.get("schema").asText()).asInstanceOf[StructType]
    others ++= builder.sides
    true
  }

  override def build(): Scan = localRow match {
    case Some(row) => new CountedScan(table, row, aggregates.get._2)
    case None =>
      val read = aggregates.map(_._2).getOrElse(columns)
      new LakeScan(table, options, Wanted(read, filters, limit, top, aggregates.map(_._1), join, others))
  }
}

/** count(*) of a whole table: the metadata answer it, without a job. */
private final class CountedScan(table: LakeTable, row: InternalRow, schema: StructType) extends LocalScan {
  override def readSchema(): StructType = schema
  override def rows(): Array[InternalRow] = Array(row)
  override def description(): String = s"${table.shown} counted from metadata"
}

private object LakeScan {
  def isAggregatedJoin(scan: Scan): Boolean = scan match {
    case found: LakeScan => found.wanted.join.isDefined && found.wanted.aggregates.isDefined
    case _ => false
  }

  def isOneTask(scan: Scan): Boolean = scan match {
    case found: LakeScan => found.planInputPartitions().length == 1
    case _ => false
  }
}

private final class LakeScan(table: LakeTable, options: CaseInsensitiveStringMap, private val wanted: Wanted)
    extends Scan with Batch with SupportsReportStatistics with SupportsRuntimeV2Filtering {
  private var runtimeFilters = Seq.empty[String]

  override def readSchema(): StructType = wanted.columns
  override def toBatch: Batch = this
  override def toMicroBatchStream(checkpoint: String): MicroBatchStream = new LakeStream(table, options, wanted.columns)
  override def description(): String = s"${table.shown} ${wanted.shown}"
  override def columnarSupportMode(): Scan.ColumnarSupportMode = Scan.ColumnarSupportMode.SUPPORTED

  /** For joins with a small table: Spark tells which values its rows have, when it has read them. */
  override def filterAttributes(): Array[NamedReference] =
    if (wanted.aggregates.isDefined || wanted.limit.isDefined || wanted.top.isDefined) Array.empty
    else wanted.columns.fieldNames.filter(table.isFilterable).map(name => SparkExpressions.column(quoted(name)))

  private def quoted(name: String) = s"`${name.replace("`", "``")}`"

  override def filter(predicates: Array[Predicate]): Unit = runtimeFilters = table.runtimeFilters(predicates)

  private def planned(filters: Seq[String]) = table.helper.ask("op" -> "plan", "pin" -> table.pin,
    "schema" -> wanted.columns.json, "filters" -> filters, "limit" -> wanted.limit.map(Int.box).orNull,
    "top" -> wanted.top.orNull, "aggregates" -> wanted.aggregates.orNull, "join" -> wanted.join.orNull,
    "others" -> wanted.others.map(side => Json.obj("pin" -> side.table.pin, "filters" -> side.filters)),
    "parallelism" -> SparkSession.active.sparkContext.defaultParallelism,
    "bytesPerTask" -> table.setting("bytesPerTask").orNull)

  private lazy val first = planned(wanted.filters)

  override def planInputPartitions(): Array[InputPartition] = {
    val plan = if (runtimeFilters.isEmpty) first else planned(wanted.filters ++ runtimeFilters)
    plan.get("tasks").elements().asScala.map(task => ScanPartition(task.toString): InputPartition).toArray
  }

  override def createReaderFactory(): PartitionReaderFactory =
    new ScanReaders(table.python, first.get("common").toString, wanted.columns)

  override def estimateStatistics(): Statistics = new Statistics {
    override def numRows(): OptionalLong =
      if (wanted.filters.isEmpty && wanted.aggregates.isEmpty) OptionalLong.of(table.rows) else OptionalLong.empty()
    override def sizeInBytes(): OptionalLong = {
      val width = wanted.columns.fieldNames.map(table.width).sum
      OptionalLong.of(math.max(1L, table.rows * math.max(8L, width)))
    }
  }
}
