package conroi.spark

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** One catalog in one session: its helper, its settings, and the transaction that it is bound to. */
private[spark] final class LakeSession(
    val catalog: String,
    val python: Python,
    val helper: Helper,
    settings: CaseInsensitiveStringMap,
    val transaction: Option[String],
    isJoined: Boolean = false) {

  def setting(name: String): Option[String] = Option(settings.get(name))

  def within(id: String): LakeSession = new LakeSession(catalog, python, helper, settings, Some(id))

  /** The transaction over several statements that the Spark session is in: `CALL lake.system.begin()` made it. */
  def joined: Option[LakeSession] =
    SparkSession.getActiveSession.flatMap(_.conf.getOption(s"spark.conroi.transaction.$catalog")).filter(_.nonEmpty)
      .map(id => new LakeSession(catalog, python, helper, settings, Some(id), isJoined = true))

  /** The transaction in which tables are read and defined. */
  def current: Option[String] = transaction.orElse(joined.flatMap(_.transaction))

  /** The transaction of a write: that of the statement or of the session, else a new one for this write alone. */
  def begin(): LakeSession = if (transaction.isDefined) this else joined.getOrElse {
    val id = java.util.UUID.randomUUID().toString
    helper.ask("op" -> "begin", "transaction" -> id)
    within(id)
  }

  @volatile private var isEnded = false

  /** Commit the transaction, if it is that of one statement. CREATE TABLE AS commits it; Spark may ask for it again. */
  def commit(): Unit = if (!isEnded && !isJoined) {
    isEnded = true
    helper.ask("op" -> "commit", "transaction" -> transaction.get)
    ()
  }

  /** Roll back; what failed before is the error to tell, so one of this is not. */
  def rollback(): Unit = if (!isEnded && !isJoined)
    try { isEnded = true; helper.ask("op" -> "rollback", "transaction" -> transaction.get); () }
    catch { case _: LakeException => () }

  /** Tables of one execution are read at one version of the lake. */
  def execution: String = {
    val context = SparkSession.active.sparkContext
    val found = Option(context.getLocalProperty("spark.sql.execution.root.id"))
      .orElse(Option(context.getLocalProperty("spark.sql.execution.id")))
    found.map(id => s"${context.applicationId}/$id").orNull
  }
}

private[spark] object LakeSession {

  /** The hash of the sources that this jar was compiled from: a helper of another version would not understand it. */
  private def sources: String = {
    val mark = classOf[LakeCatalog].getResourceAsStream("/META-INF/conroi-sources")
    if (mark == null) "" else try new String(mark.readAllBytes(), "UTF-8") finally mark.close()
  }

  /** Of the Python process that makes a DataFrame, or runs a verb: it gives its socket in the options. */
  def ofDriver(options: CaseInsensitiveStringMap): LakeSession = {
    val settings = Seq("socket", "pythonPath").flatMap(name => Option(options.get(name)).map(name -> _)).toMap
    of("conroi", new CaseInsensitiveStringMap(settings.asJava))
  }

  def of(catalog: String, settings: CaseInsensitiveStringMap): LakeSession = {
    val conf = SparkSession.active.sparkContext.getConf
    val command = Option(settings.get("python")).orElse(conf.getOption("spark.pyspark.python"))
      .orElse(sys.env.get("PYSPARK_PYTHON")).getOrElse("python3")
    val path = Option(settings.get("pythonPath")).toSeq.flatMap(_.split(java.io.File.pathSeparator))
    val python = Python(command, path)
    val given = settings.asCaseSensitiveMap().asScala.toMap
    val opening = Json.obj("op" -> "open", "catalog" -> catalog, "settings" -> given, "sources" -> sources)
    new LakeSession(catalog, python, Helpers.of(python, opening), settings, None)
  }
}
