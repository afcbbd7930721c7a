package conroi.spark

import java.io.File

import org.apache.spark.{SparkEnv, SparkFiles}

/** How a Python process is started: chosen on the driver, sent to the executors. */
final case class Python(command: String, path: Seq[String]) {

  /** A process that runs a module; files in the working folder do not shadow packages (-P). No argument and no variable holds a credential: those go by its standard input. */
  def start(module: String, arguments: Seq[String], variables: Map[String, String]): Process = {
    val all = new java.util.ArrayList[String]()
    (Seq(command, "-P", "-m", module) ++ arguments).foreach(all.add)
    val builder = new ProcessBuilder(all)
    builder.redirectError(ProcessBuilder.Redirect.INHERIT)
    val environment = builder.environment()
    val before = Option(environment.get("PYTHONPATH")).toSeq
    val whole = (path ++ shipped ++ before ++ ofSpark).filter(_.nonEmpty)
    if (whole.nonEmpty) environment.put("PYTHONPATH", whole.mkString(File.pathSeparator))
    variables.foreach { case (name, value) => environment.put(name, value) }
    builder.start()
  }

  /** Packages that were sent with the application. */
  private def shipped: Seq[String] = {
    if (SparkEnv.get == null) return Nil
    val root = new File(SparkFiles.getRootDirectory())
    val archives = Option(root.listFiles()).toSeq.flatten.map(_.getPath)
    root.getPath +: archives.filter(name => name.endsWith(".zip") || name.endsWith(".egg")).sorted
  }

  /** Spark's own Python packages, for an interpreter that has none. */
  private def ofSpark: Seq[String] = {
    val folders = sys.env.get("SPARK_HOME").map(home => new File(new File(home, "python"), "lib"))
    val found = folders.flatMap(folder => Option(folder.listFiles())).toSeq.flatten.map(_.getPath)
    found.filter(_.endsWith(".zip")).sorted
  }
}
