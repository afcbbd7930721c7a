package conroi.spark

import java.util

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** One table at one version, as the helper described it; with a filter, only the rows that it leaves. */
private[spark] class LakeTable(val session: LakeSession, val facts: JsonNode, val filter: Option[String] = None)
    extends Table with SupportsRead with SupportsWrite with SupportsMetadataColumns with SupportsRowLevelOperations {
  private val struct = DataType.fromJson(facts.get("schema").asText()).asInstanceOf[StructType]
  private val metadata = DataType.fromJson(facts.get("metadata").asText()).asInstanceOf[StructType]

  def helper: Helper = session.helper
  def python: Python = session.python
  def setting(name: String): Option[String] = session.setting(name)

  /** The version, for workers: opaque, and possibly with credentials. */
  def pin: String = facts.get("pin").asText()
  def columnTypes: String = facts.get("columns").asText()
  def target: JsonNode = facts.get("target")
  def rows: Long = facts.get("rows").asLong()
  def width(column: String): Long = Option(facts.get("widths").get(column)).map(_.asLong()).getOrElse(8L)
  def isFilterable(column: String): Boolean = Json.texts(facts.get("filterable")).contains(column)
  def shown: String = s"conroi ${name()} version ${version()}"

  override def name(): String = facts.get("name").asText()
  override def version(): String = facts.get("version").asText()
  override def schema(): StructType = struct
  override def properties(): util.Map[String, String] = Json.pairs(facts.get("properties"))

  override def capabilities(): util.Set[TableCapability] = {
    val found = util.EnumSet.noneOf(classOf[TableCapability])
    Json.texts(facts.get("capabilities")).foreach(name => found.add(TableCapability.valueOf(name)))
    found
  }

  override def metadataColumns(): Array[MetadataColumn] = metadata.fields.map { field =>
    new MetadataColumn {
      override def name(): String = field.name
      override def dataType(): DataType = field.dataType
      override def isNullable: Boolean = field.nullable
      override def comment(): String = field.getComment().orNull
    }
  }

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    if (options.containsKey("search")) new SearchScanBuilder(this, options) else new LakeScanBuilder(this, options)
  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = new LakeWriteBuilder(this, info)
  override def newRowLevelOperationBuilder(info: RowLevelOperationInfo): RowLevelOperationBuilder =
    () => new LakeOperation(this, info)

  /** For each predicate the text that means the same to Lance, null if there is none. */
  def filters(predicates: Array[Predicate]): Seq[String] = Json.texts(asked("filters", predicates).get("filters"))

  /** The same for a scan, and whether Spark evaluates all of them again. */
  def scanFilters(predicates: Array[Predicate]): (Seq[String], Boolean) = {
    val answer = asked("scan_filters", predicates, "rows" -> rows, "broadcastBytes" -> SQLConf.get.autoBroadcastJoinThreshold,
      "joined" -> LakeJoins.isTrying)
    (Json.texts(answer.get("filters")), answer.get("repeated").asBoolean())
  }

  /** The same for those that arise while a query runs: only what is worth it. */
  def runtimeFilters(predicates: Array[Predicate]): Seq[String] =
    Json.texts(asked("runtime_filters", predicates).get("filters")).filter(_ != null)

  private def asked(op: String, predicates: Array[Predicate], more: (String, Any)*): JsonNode = {
    val trees = predicates.toSeq.map(predicate => Expressions.of(predicate))
    helper.ask(Seq("op" -> op, "columns" -> columnTypes, "predicates" -> trees) ++ more: _*)
  }

  /** Commit, unless the statement's own transaction will. */
  def finish(now: LakeSession): Unit = if (session.transaction.isEmpty) now.commit()

  /** Roll back, unless the statement's own transaction will. */
  def undo(now: LakeSession): Unit = if (session.transaction.isEmpty) now.rollback()
}

/** A table whose rows can be deleted by a filter, without a job. */
private[spark] final class StoredTable(session: LakeSession, facts: JsonNode)
    extends LakeTable(session, facts) with SupportsDeleteV2 {
  override def canDeleteWhere(predicates: Array[Predicate]): Boolean = filters(predicates).forall(_ != null)

  override def deleteWhere(predicates: Array[Predicate]): Unit = delete(filters(predicates))

  override def truncateTable(): Boolean = { delete(Nil); true }

  private def delete(filters: Seq[String]): Unit = {
    val now = session.begin()
    helper.ask("op" -> "delete", "transaction" -> now.transaction.get, "target" -> target, "filters" -> filters)
    finish(now)
  }
}
