"""What Spark writes down of a query: plans and event logs show no credential that conroi was given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source import REPOSITORY

SECRET = "hunter2-of-the-lake"

PROGRAM = """
import json, sys
import conroi, conroi.spark
from conroi.spark import registering
root, secret, is_redacted = sys.argv[1], sys.argv[2], sys.argv[3] == "redacted"
if not is_redacted:
    registering._redact = lambda spark: None  # as it was
config = {
    "spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{root}/log", "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false", "spark.sql.warehouse.dir": f"{root}/warehouse",
}
spark = conroi.spark.session("credentials", master="local[1]", config=config)
store, options = f"sqlite:///{root}/{secret}.db", {"note": secret}
lake = conroi.connect(f"{root}/lake", store=store, storage_options=options)
lake.create_table("t", [{"id": 1, "v": "a"}])
frame = spark.createDataFrame([(2, "b")], "id long, v string")
given = {"table": "t", "store": store, "storageOptions": json.dumps(options)}
frame.write.format("conroi").options(**given).mode("append").save(f"{root}/lake")
assert spark.read.format("conroi").options(**given).load(f"{root}/lake").count() == 2
assert lake["t"].to_spark(spark).count() == 2
lake["t"].merge(frame, on="id").when_matched_update_all().execute(spark=spark)
spark.stop()
"""


@pytest.mark.contract("U6")
def test_the_event_log_holds_no_credential(tmp_path: Path):
    """D6: the store's address stood there in clear, and a table's storage options as base64."""
    (tmp_path / "log").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), SECRET, "redacted"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (log,) = (tmp_path / "log").iterdir()
    written = log.read_text()
    events = [json.loads(line)["Event"] for line in written.splitlines()]
    assert any("SQLExecutionStart" in event for event in events)
    assert SECRET not in written
    assert SECRET not in done.stderr + done.stdout
