"""The Spark application of the pipeline: one Spark Connect server, whose clients are the workers.

    python -m orders.spark_server NAME

One driver JVM serves all workers, so that a worker starts in a second and a killed one takes no other down. It tells
its address when it is ready, and runs until its input is closed.
"""

from __future__ import annotations

import sys
from typing import Any, cast

import conroi.spark

from .events import Event, What, speaker

SETTINGS = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",  # any free one
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # starts fast, for a run of a minute
    "spark.scheduler.mode": "FAIR",  # jobs of different workers share the cores
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",  # with one partition there is nothing to adapt
}


def main(name: str) -> None:
    """Serve until the driver closes our input."""
    tell = speaker()
    spark = conroi.spark.session(name, memory="1g", config=SETTINGS)
    services = cast("Any", spark).sparkContext._jvm.org.apache.spark.sql.connect.service
    service = getattr(getattr(services, "SparkConnectService$"), "MODULE$")
    tell(Event(What.READY, name, note=f"sc://127.0.0.1:{service.localPort()}"))
    sys.stdin.read()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
