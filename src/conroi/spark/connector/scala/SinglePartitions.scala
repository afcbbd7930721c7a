package conroi.spark

import org.apache.spark.sql.catalyst.plans.physical.SinglePartition
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.aggregate.HashAggregateExec
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec
import org.apache.spark.sql.execution.exchange.{ENSURE_REQUIREMENTS, ShuffleExchangeExec}

/** No exchange into one partition of a scan that is one task: Spark does not know that it has one partition already. */
private[spark] object SinglePartitions extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan = plan.transformUp {
    case exchange: ShuffleExchangeExec
        if exchange.outputPartitioning == SinglePartition && exchange.shuffleOrigin == ENSURE_REQUIREMENTS &&
          isOne(exchange.child) =>
      exchange.child
  }

  private def isOne(plan: SparkPlan): Boolean = plan match {
    case batch: BatchScanExec => batch.runtimeFilters.isEmpty && LakeScan.isOneTask(batch.scan)
    case _: ProjectExec | _: FilterExec | _: HashAggregateExec | _: ColumnarToRowExec => isOne(plan.children.head)
    case _ => false
  }
}
