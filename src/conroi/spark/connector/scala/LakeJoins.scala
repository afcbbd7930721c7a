package conroi.spark

import scala.util.DynamicVariable
import scala.util.control.NonFatal

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.plans.Inner
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.datasources.v2.{DataSourceV2Relation, DataSourceV2ScanRelation, V2ScanRelationPushDown}
import org.apache.spark.sql.internal.SQLConf

/** `spark.sql.extensions = conroi.spark.LakeExtensions`: joins that are pushed down, and scans without an exchange. */
class LakeExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    extensions.injectPreCBORule(_ => LakeJoins)
    extensions.injectQueryStagePrepRule(_ => SinglePartitions)
  }
}

/** Join pushdown below an aggregate that is pushed down with it.
  *
  * Spark pushes a join before it knows what becomes of the aggregate above, and does not take it back. Without the
  * aggregate a broadcast join is better. So the rule tries both on the aggregate alone, and keeps the result if one
  * scan is left.
  */
private[spark] object LakeJoins extends Rule[LogicalPlan] {
  private val Setting = "spark.sql.optimizer.datasourceV2JoinPushdown"
  private val trying = new DynamicVariable(false)

  /** Whether a join may be pushed down now; not if the user has set Spark's own setting for other sources. */
  def isTrying: Boolean = trying.value

  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformDown {
    case aggregate: Aggregate if isOfTables(aggregate.child) && aggregate.child.exists(_.isInstanceOf[Join]) =>
      tried(aggregate).getOrElse(aggregate)
  }

  private def isOfTables(plan: LogicalPlan): Boolean = plan match {
    case _: Project | _: Filter => plan.children.forall(isOfTables)
    case join: Join => join.joinType == Inner && join.condition.isDefined && plan.children.forall(isOfTables)
    case relation: DataSourceV2Relation => relation.table.isInstanceOf[LakeTable]
    case _ => false
  }

  private def tried(aggregate: Aggregate): Option[LogicalPlan] = {
    val conf = SQLConf.get.clone()
    conf.setConfString(Setting, "true")
    try {
      val pushed = trying.withValue(true)(SQLConf.withExistingConf(conf)(V2ScanRelationPushDown(aggregate)))
      Some(pushed).filter(_.collectLeaves() match {
        case Seq(relation: DataSourceV2ScanRelation) => LakeScan.isAggregatedJoin(relation.scan)
        case _ => false
      })
    } catch { // of another release of Spark, or what the scan without a join may not meet
      case failed @ (NonFatal(_) | _: LinkageError) =>
        logWarning("A join was not pushed down.", failed)
        None
    }
  }
}
