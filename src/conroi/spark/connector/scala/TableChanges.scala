package conroi.spark

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.connector.catalog.TableChange
import org.apache.spark.sql.connector.catalog.TableChange._

/** ALTER TABLE as JSON. */
private[spark] object TableChanges {
  def of(change: TableChange): JsonNode = change match {
    case set: SetProperty => Json.obj("change" -> "set", "name" -> set.property(), "value" -> set.value())
    case unset: RemoveProperty => Json.obj("change" -> "unset", "name" -> unset.property())
    case add: AddColumn =>
      Json.obj("change" -> "add", "column" -> add.fieldNames().toSeq, "type" -> add.dataType().json,
        "nullable" -> add.isNullable, "comment" -> add.comment(), "position" -> Option(add.position()).map(_.toString).orNull,
        "default" -> Option(add.defaultValue()).map(_.getSql).orNull)
    case rename: RenameColumn =>
      Json.obj("change" -> "rename", "column" -> rename.fieldNames().toSeq, "to" -> rename.newName())
    case retype: UpdateColumnType =>
      Json.obj("change" -> "retype", "column" -> retype.fieldNames().toSeq, "type" -> retype.newDataType().json)
    case nullability: UpdateColumnNullability =>
      Json.obj("change" -> "nullable", "column" -> nullability.fieldNames().toSeq, "nullable" -> nullability.nullable())
    case comment: UpdateColumnComment =>
      Json.obj("change" -> "comment", "column" -> comment.fieldNames().toSeq, "comment" -> comment.newComment())
    case drop: DeleteColumn =>
      Json.obj("change" -> "drop", "column" -> drop.fieldNames().toSeq, "ifExists" -> drop.ifExists().booleanValue())
    case other => Json.obj("change" -> "unknown", "text" -> other.getClass.getSimpleName)
  }
}
