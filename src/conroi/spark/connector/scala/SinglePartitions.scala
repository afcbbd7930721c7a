package conroi.spark

import org.apache.spark.sql.catalyst.plans.physical.SinglePartition
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{FilterExec, ProjectExec, SparkPlan}
import org.apache.spark.sql.execution.aggregate.{HashAggregateExec, ObjectHashAggregateExec, SortAggregateExec}
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec
import org.apache.spark.sql.execution.exchange.{ENSURE_REQUIREMENTS, ShuffleExchangeExec}

/** No exchange into one partition after a scan that is one task: Spark does not know that it has one partition already.
  *
  * Only where nothing above looks at how rows are partitioned: unions and joins rely on what the exchange says of itself.
  */
private[spark] object SinglePartitions extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan = plan match {
    case exchange: ShuffleExchangeExec
        if exchange.outputPartitioning == SinglePartition && exchange.shuffleOrigin == ENSURE_REQUIREMENTS &&
          isOne(exchange.child) =>
      exchange.child
    case _ if isNarrow(plan) => plan.withNewChildren(plan.children.map(apply))
    case _ => plan
  }

  private def isNarrow(plan: SparkPlan): Boolean = plan match {
    case _: ProjectExec | _: FilterExec | _: HashAggregateExec | _: ObjectHashAggregateExec | _: SortAggregateExec => true
    case _ => false
  }

  private def isOne(plan: SparkPlan): Boolean = plan match {
    case batch: BatchScanExec => batch.runtimeFilters.isEmpty && LakeScan.isOneTask(batch.scan)
    case _ => isNarrow(plan) && isOne(plan.children.head)
  }
}
