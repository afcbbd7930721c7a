package conroi.spark

import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** `SELECT … FROM lake.docs WITH (search = '…')`: a search, which one task runs. Spark filters its rows afterwards. */
private[spark] final class SearchScanBuilder(table: LakeTable, options: CaseInsensitiveStringMap)
    extends ScanBuilder with SupportsPushDownRequiredColumns {
  private var columns = table.schema()

  override def pruneColumns(required: StructType): Unit =
    columns = if (required.isEmpty) StructType(table.schema().take(1)) else required

  override def build(): Scan = new SearchScan(table, options, columns)
}

private final class SearchScan(table: LakeTable, options: CaseInsensitiveStringMap, columns: StructType)
    extends Scan with Batch {
  private lazy val planned = table.helper.ask("op" -> "plan_search", "pin" -> table.pin, "schema" -> columns.json,
    "options" -> Json.options(options))

  override def readSchema(): StructType = columns
  override def toBatch: Batch = this
  override def description(): String = s"search in ${table.shown}"
  override def columnarSupportMode(): Scan.ColumnarSupportMode = Scan.ColumnarSupportMode.SUPPORTED
  override def planInputPartitions(): Array[InputPartition] = Array(ScanPartition("{}"))
  override def createReaderFactory(): PartitionReaderFactory =
    new ScanReaders(table.python, planned.get("common").toString, columns)
}
