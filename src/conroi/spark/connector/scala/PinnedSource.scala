package conroi.spark

import java.util

import org.apache.spark.sql.connector.catalog.{Table, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A table at one version, as the Python process that makes the DataFrame describes it: `table.to_spark(spark)`. */
class PinnedSource extends TableProvider {
  override def inferSchema(options: CaseInsensitiveStringMap): StructType = table(options).schema()

  override def getTable(schema: StructType, partitions: Array[Transform], options: util.Map[String, String]): Table =
    table(new CaseInsensitiveStringMap(options))

  private def table(options: CaseInsensitiveStringMap): LakeTable =
    new LakeTable(LakeSession.ofDriver(options), Json.mapper.readTree(options.get("facts")), Option(options.get("filter")))
}
