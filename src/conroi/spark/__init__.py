"""Tables of conroi in Spark 4, through PySpark and without a jar.

`session()` gives a local Spark, also on a machine without Java; `register(spark)` makes `format("conroi")` known to
any session; `ship(spark)` sends conroi to executors that lack it. Everything else is on the tables themselves:
`table.to_spark(spark)`, and verbs that take DataFrames.
"""

from conroi.spark.registering import register
from conroi.spark.sessions import session
from conroi.spark.shipping import ship
from conroi.spark.sizes import Statistics, statistics

__all__ = ["Statistics", "register", "session", "ship", "statistics"]
