"""Print the path of the connector's jar, for a Spark that is configured elsewhere: `spark-submit --jars $(…)`, dbt.

::

    python -m conroi.spark.connector
"""

import sys

from conroi.spark.connector.configuration import connector_jar
from conroi.spark.sessions import java_home

if __name__ == "__main__":
    sys.stdout.write(f"{connector_jar(java_home())}\n")
