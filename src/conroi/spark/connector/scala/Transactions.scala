package conroi.spark

import org.apache.spark.sql.connector.catalog.{CatalogPlugin, TransactionalCatalogPlugin}
import org.apache.spark.sql.connector.catalog.transactions.{Transaction, TransactionInfo}
import org.apache.spark.sql.connector.read.Scan

/** For Spark 4.2 and newer: a statement that writes reads all its tables, and commits, in one transaction. */
class TransactionalLakeCatalog extends LakeCatalog with TransactionalCatalogPlugin {
  override def beginTransaction(info: TransactionInfo): Transaction = {
    val bound = new TransactionalLakeCatalog
    bound.session = session.joined.getOrElse {
      session.helper.ask("op" -> "begin", "transaction" -> info.id())
      session.within(info.id())
    }
    new LakeTransaction(bound, bound.session)
  }
}

private final class LakeTransaction(bound: CatalogPlugin, session: LakeSession) extends Transaction {
  override def catalog(): CatalogPlugin = bound
  override def registerScans(scans: Array[Scan]): Boolean = true

  override def commit(): Unit = session.commit()
  override def abort(): Unit = session.rollback()
  override def close(): Unit = session.rollback()
}
