package conroi.spark

import java.util

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.catalyst.analysis._
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A lake as a catalog: `spark.sql.catalog.NAME = conroi.spark.LakeCatalog`, `spark.sql.catalog.NAME.uri = …`. */
class LakeCatalog extends StagingTableCatalog with SupportsNamespaces with LakeProcedures {
  private[spark] var session: LakeSession = _

  override def name(): String = session.catalog
  override def initialize(name: String, options: CaseInsensitiveStringMap): Unit = session = LakeSession.of(name, options)

  private def parts(identifier: Identifier): Seq[String] = identifier.namespace().toSeq :+ identifier.name()

  private def ask(fields: (String, Any)*): JsonNode =
    session.helper.ask(fields :+ ("transaction" -> session.current.orNull): _*)

  private def isSet(answer: JsonNode, name: String): Boolean = answer.has(name) && answer.get(name).asBoolean()

  // ---------------------------------------------------------------- tables

  override def listTables(namespace: Array[String]): Array[Identifier] = {
    val answer = ask("op" -> "tables", "namespace" -> namespace.toSeq)
    if (isSet(answer, "missing")) throw new NoSuchNamespaceException(namespace)
    Json.texts(answer.get("names")).map(Identifier.of(namespace, _)).toArray
  }

  private def load(identifier: Identifier, how: (String, Any)*): Table = {
    val request = Seq("table" -> parts(identifier), "execution" -> session.execution) ++ how
    val facts = ask(("op" -> "load") +: request: _*)
    if (isSet(facts, "missing")) throw new NoSuchTableException(identifier)
    if (isSet(facts, "local")) new MetadataTable(session, facts, request :+ ("transaction" -> session.transaction.orNull))
    else new StoredTable(session, facts)
  }
  override def loadTable(identifier: Identifier): Table = load(identifier)
  override def loadTable(identifier: Identifier, version: String): Table = load(identifier, "version" -> version)
  override def loadTable(identifier: Identifier, timestamp: Long): Table = load(identifier, "timestamp" -> timestamp)

  override def createTable(
      identifier: Identifier,
      schema: StructType,
      partitions: Array[Transform],
      properties: util.Map[String, String]): Table = {
    val answer = ask(creation("create", identifier, schema, partitions, properties): _*)
    if (isSet(answer, "exists")) throw new TableAlreadyExistsException(identifier)
    new StoredTable(session, answer)
  }

  private def creation(op: String, identifier: Identifier, schema: StructType, partitions: Array[Transform],
      properties: util.Map[String, String]): Seq[(String, Any)] =
    Seq("op" -> op, "table" -> parts(identifier), "schema" -> schema.json,
      "partitions" -> partitions.toSeq.map(_.describe()), "properties" -> properties.asScala.toMap)

  override def alterTable(identifier: Identifier, changes: TableChange*): Table = {
    val answer = ask("op" -> "alter", "table" -> parts(identifier), "changes" -> changes.map(TableChanges.of))
    if (isSet(answer, "missing")) throw new NoSuchTableException(identifier)
    new StoredTable(session, answer)
  }

  override def dropTable(identifier: Identifier): Boolean =
    isSet(ask("op" -> "drop", "table" -> parts(identifier)), "dropped")

  override def renameTable(old: Identifier, wanted: Identifier): Unit = {
    val answer = ask("op" -> "rename", "table" -> parts(old), "to" -> parts(wanted))
    if (isSet(answer, "missing")) throw new NoSuchTableException(old)
    if (isSet(answer, "exists")) throw new TableAlreadyExistsException(wanted)
  }

  // ---------------------------------------------------------------- CREATE TABLE AS, REPLACE TABLE AS

  private def stage(kind: String, identifier: Identifier, schema: StructType, partitions: Array[Transform],
      properties: util.Map[String, String]): StagedTable = {
    val own = session.begin()
    val fields = creation("stage", identifier, schema, partitions, properties)
    val answer = own.helper.ask(fields ++ Seq("kind" -> kind, "transaction" -> own.transaction.get): _*)
    if (isSet(answer, "exists")) throw new TableAlreadyExistsException(identifier)
    if (isSet(answer, "missing")) throw new NoSuchTableException(identifier)
    new StagedLakeTable(own, answer)
  }

  override def stageCreate(identifier: Identifier, schema: StructType, partitions: Array[Transform],
      properties: util.Map[String, String]): StagedTable = stage("create", identifier, schema, partitions, properties)

  override def stageReplace(identifier: Identifier, schema: StructType, partitions: Array[Transform],
      properties: util.Map[String, String]): StagedTable = stage("replace", identifier, schema, partitions, properties)

  override def stageCreateOrReplace(identifier: Identifier, schema: StructType, partitions: Array[Transform],
      properties: util.Map[String, String]): StagedTable = stage("any", identifier, schema, partitions, properties)

  // ---------------------------------------------------------------- namespaces

  private def namespaces(parent: Array[String]): Array[Array[String]] = {
    val answer = ask("op" -> "namespaces", "parent" -> parent.toSeq)
    if (isSet(answer, "missing")) throw new NoSuchNamespaceException(parent)
    answer.get("names").elements().asScala.map(Json.texts(_).toArray).toArray
  }
  override def listNamespaces(): Array[Array[String]] = namespaces(Array.empty)
  override def listNamespaces(parent: Array[String]): Array[Array[String]] = namespaces(parent)

  override def loadNamespaceMetadata(namespace: Array[String]): util.Map[String, String] = {
    val answer = ask("op" -> "namespace", "namespace" -> namespace.toSeq)
    if (isSet(answer, "missing")) throw new NoSuchNamespaceException(namespace)
    Json.pairs(answer.get("properties"))
  }

  override def createNamespace(namespace: Array[String], properties: util.Map[String, String]): Unit = {
    val answer = ask("op" -> "create_namespace", "namespace" -> namespace.toSeq,
      "properties" -> properties.asScala.toMap)
    if (isSet(answer, "exists")) throw new NamespaceAlreadyExistsException(namespace)
  }

  override def alterNamespace(namespace: Array[String], changes: NamespaceChange*): Unit = {
    ask("op" -> "alter_namespace", "namespace" -> namespace.toSeq, "changes" -> changes.map(_.toString))
    ()
  }

  override def dropNamespace(namespace: Array[String], cascade: Boolean): Boolean = {
    val answer = ask("op" -> "drop_namespace", "namespace" -> namespace.toSeq, "cascade" -> cascade)
    if (isSet(answer, "missing")) throw new NoSuchNamespaceException(namespace)
    if (isSet(answer, "nonempty")) throw new NonEmptyNamespaceException(namespace)
    true
  }
}

/** A table that becomes visible with its rows. Spark 4.3 begins a transaction for it, and leaves its end to us. */
private final class StagedLakeTable(own: LakeSession, facts: JsonNode) extends LakeTable(own, facts) with StagedTable {
  private def end(hasFailed: Boolean): Unit = {
    own.helper.ask("op" -> "end_stage", "target" -> facts.get("target"), "failed" -> hasFailed,
      "transaction" -> own.transaction.get)
    ()
  }
  override def commitStagedChanges(): Unit = { end(hasFailed = false); own.commit() }

  /** What failed before is the error to tell, so one of this is not. */
  override def abortStagedChanges(): Unit = {
    try end(hasFailed = true) catch { case _: LakeException => () }
    own.rollback()
  }
}
