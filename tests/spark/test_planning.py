"""What a process imports in which Spark plans: there is one for each step, from a daemon that is not ours."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import types as st

import conroi
from conroi.spark.options import PIN, Options
from conroi.spark.pins import PinnedVersion
from conroi.spark.writer import ConroiWriter
from tests.support.source import REPOSITORY

PROGRAM = """
import importlib, json, pickle, sys

module, step, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
importlib.import_module(f"pyspark.sql.worker.{module}")
before = set(sys.modules)

from pyspark import cloudpickle
from pyspark.sql.types import LongType, StringType, StructField, StructType

from conroi.spark.source import ConroiDataSource

if step == "commit":
    with open(options["pickled"], "rb") as file:
        writer, message = pickle.load(file)
    pickle.loads(writer).commit([message])
    print(json.dumps(sorted(set(sys.modules) - before)))
    sys.exit()
schema = StructType([StructField("id", LongType()), StructField("v", StringType())])
source = pickle.loads(cloudpickle.dumps(ConroiDataSource(options)))
if step == "schema":
    assert source.schema() == schema
elif step == "writer":
    assert cloudpickle.dumps(source.writer(schema, False))
else:
    reader = source.reader(schema)
    partitions = reader.partitions()
    assert len(partitions) == 1
    assert cloudpickle.dumps((reader.read, partitions))
    if step == "rows":
        assert sum(batch.num_rows for batch in reader.read(partitions[0])) == 2
print(json.dumps(sorted(set(sys.modules) - before)))
"""
"""Calls what Spark's worker module calls, in a process that has imported that module."""

ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})
CREATE, READ = "create_data_source", "plan_data_source_read"
WRITE, COMMIT = "write_into_data_source", "commit_data_source_write"


def imported(module: str, step: str, options: dict[str, str]) -> set[str]:
    """Modules that a planning process imports for its step, after Spark's own."""
    arguments = [sys.executable, "-c", PROGRAM, module, step, json.dumps(options)]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert ended.returncode == 0, ended.stderr
    return set(json.loads(ended.stdout))


@pytest.mark.parametrize(("module", "step"), [(CREATE, "schema"), (READ, "partitions"), (WRITE, "writer")])
def test_planning_imports_neither_pylance_nor_pandas(tmp_path: Path, module: str, step: str):
    conroi.create_table(tmp_path / "t", ROWS)
    found = imported(module, step, {"path": str(tmp_path / "t")})
    assert "conroi.spark.source" in found
    assert not found & {"lance", "pandas", "pyarrow.dataset"}


def test_the_commit_of_what_tasks_wrote_imports_neither_pylance_nor_pandas(tmp_path: Path):
    table = conroi.create_table(tmp_path / "t", ROWS)
    schema = st.StructType([st.StructField("id", st.LongType()), st.StructField("v", st.StringType())])
    writer = ConroiWriter(Options({"path": table.uri}), schema, overwrite=False)
    pickled = tmp_path / "pickled"
    for_commit = pickle.dumps(writer)  # before it writes: so Spark sends it
    pickled.write_bytes(pickle.dumps((for_commit, writer.write(iter(ROWS.to_batches())))))
    found = imported(COMMIT, "commit", {"pickled": str(pickled)})
    assert table.latest().count_rows() == 4
    assert not found & {"lance", "pandas", "pyarrow.dataset"}


@pytest.mark.parametrize(("module", "step"), [(CREATE, "schema"), (READ, "partitions")])
def test_planning_a_version_that_was_chosen_imports_no_part_of_conroi_that_commits(
    tmp_path: Path, module: str, step: str
):
    pinned = conroi.create_table(tmp_path / "t", ROWS).pinned
    found = imported(module, step, {PIN: PinnedVersion.of(pinned).to_text()})
    assert not found & {"lance", "pandas", "conroi.table", "conroi.lake", "conroi.commit", "conroi.conflicts"}
    assert len({name for name in found if name.startswith("conroi")}) < 45


def test_reading_rows_imports_pylance(tmp_path: Path):
    """The control: the same way of looking sees pylance where rows are read."""
    conroi.create_table(tmp_path / "t", ROWS)
    assert "lance" in imported(READ, "rows", {"path": str(tmp_path / "t")})
