package conroi.spark

import java.util

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.{Identifier, ProcedureCatalog}
import org.apache.spark.sql.connector.catalog.procedures.{BoundProcedure, ProcedureParameter, UnboundProcedure}
import org.apache.spark.sql.connector.read.Scan
import org.apache.spark.sql.types.{DataType, StructType}

/** `CALL lake.system.compact('orders')`: the helper knows the procedures, and runs them. */
private[spark] trait LakeProcedures extends ProcedureCatalog {
  private[spark] def session: LakeSession

  override def listProcedures(namespace: Array[String]): Array[Identifier] = {
    val answer = session.helper.ask("op" -> "procedures", "namespace" -> namespace.toSeq)
    Json.texts(answer.get("names")).map(Identifier.of(namespace, _)).toArray
  }

  override def loadProcedure(identifier: Identifier): UnboundProcedure = {
    val parts = identifier.namespace().toSeq :+ identifier.name()
    val facts = session.helper.ask("op" -> "procedure", "procedure" -> parts)
    if (facts.has("missing"))
      throw LakeException.of("NotFoundError", s"There is no procedure ${parts.mkString(".")}.",
        s"SHOW PROCEDURES IN ${session.catalog}.system")
    new LakeProcedure(session, parts, facts)
  }
}

private final class LakeProcedure(session: LakeSession, parts: Seq[String], facts: JsonNode)
    extends UnboundProcedure with BoundProcedure {
  private val struct = DataType.fromJson(facts.get("parameters").asText()).asInstanceOf[StructType]

  override def name(): String = parts.last
  override def description(): String = facts.get("description").asText()
  override def isDeterministic: Boolean = false
  override def bind(given: StructType): BoundProcedure = this

  override def parameters(): Array[ProcedureParameter] =
    struct.fields.zip(facts.get("facts").elements().asScala.toSeq).map { case (field, more) =>
      val named = ProcedureParameter.in(field.name, field.dataType).comment(more.get("comment").asText())
      if (more.has("default")) named.defaultValue(more.get("default").asText()).build() else named.build()
    }

  override def call(row: InternalRow): util.Iterator[Scan] = {
    val answer = session.helper.ask("op" -> "call", "procedure" -> parts, "arguments" -> LocalRows.json(row, struct))
    val scan: Scan = new LocalRowsScan(LocalRows.struct(answer), s"CALL ${parts.mkString(".")}", LocalRows.of(answer))
    util.Collections.singleton(scan).iterator()
  }
}
