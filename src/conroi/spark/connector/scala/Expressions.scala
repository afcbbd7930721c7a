package conroi.spark

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.connector.expressions.{Cast, Expression, GeneralScalarExpression, Literal, NamedReference}
import org.apache.spark.sql.connector.expressions.aggregate.{AggregateFunc, Count, CountStar, Max, Min, Sum}

/** Expressions of Spark as JSON trees. The helper decides what they mean to Lance. */
private[spark] object Expressions {

  def of(expression: Expression): JsonNode = expression match {
    case reference: NamedReference => Json.obj("column" -> reference.fieldNames().toSeq)
    case literal: Literal[_] =>
      val value = if (literal.value() == null) null else literal.value().toString
      Json.obj("type" -> literal.dataType().typeName, "literal" -> value)
    case cast: Cast => named("CAST", Seq(cast.expression())).put("to", cast.dataType().typeName)
    case scalar: GeneralScalarExpression => named(scalar.name(), scalar.children().toSeq)
    case other => Json.obj("unknown" -> other.getClass.getSimpleName)
  }

  private def named(name: String, children: Seq[Expression]) =
    Json.obj("name" -> name, "children" -> children.map(of))

  def of(function: AggregateFunc): JsonNode = function match {
    case _: CountStar => Json.obj("function" -> "count")
    case count: Count if !count.isDistinct => Json.obj("function" -> "count", "of" -> of(count.column()))
    case min: Min => Json.obj("function" -> "min", "of" -> of(min.column()))
    case max: Max => Json.obj("function" -> "max", "of" -> of(max.column()))
    case sum: Sum if !sum.isDistinct => Json.obj("function" -> "sum", "of" -> of(sum.column()))
    case other => Json.obj("function" -> "unknown", "text" -> other.toString)
  }
}
