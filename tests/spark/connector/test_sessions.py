"""A session with a lake in one line: its catalogs, its processes, and no credential in anything that Spark shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar, cast

import pytest
from pyspark.sql import SparkSession

import conroi
import conroi.spark
from conroi.errors import InvalidInputError, UnsupportedError
from conroi.spark.connector.configuration import EXTENSION, catalog_settings
from conroi.spark.sessions import _add_catalogs, _together
from tests.spark.connector.support import rows
from tests.spark.support import SPARK
from tests.support.source import REPOSITORY

pytestmark = pytest.mark.contract("S22")

SECRET, CONTROL = "hunter2-of-the-catalog", "seen-in-every-plan"


@pytest.mark.timeout(600)
def test_a_session_with_a_lake_shows_no_credential(tmp_path: Path):
    (tmp_path / "log").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connector.catalog_program", str(tmp_path), SECRET, CONTROL],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert "all is well" in done.stdout, done.stderr[-4000:]
    (log,) = (tmp_path / "log").iterdir()
    seen = {"the event log": log.read_text(), "the log of the driver": done.stderr}
    seen |= {name: (tmp_path / name).read_text() for name in ("plans.txt", "ui.txt", "commands.txt")}
    for what, text in seen.items():
        control = "conroi.spark.connector.helper" if what == "commands.txt" else CONTROL
        assert control in text or what == "the log of the driver", f"the negative control: {what}"
        outside = text.replace(f"catalog_program {tmp_path} {SECRET} {CONTROL}", "")  # the arguments of the program
        assert SECRET not in outside, what


def test_a_running_session_gets_another_lake(spark: SparkSession, tmp_path: Path):
    conroi.connect(tmp_path / "lake").create_table("t", [{"id": 1}])
    found = conroi.spark.session(lake={"later": tmp_path / "lake"})
    assert found.sparkContext is spark.sparkContext
    assert rows(found, "SELECT * FROM later.t") == [(1,)]


def test_settings_of_a_catalog(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CONROI_DEV_STORAGEOPTIONS", raising=False)
    found = catalog_settings({"dev": {"uri": "s3://b/l", "storage_options": {"k": "v"}, "branch": "b"}}, is_local=False)
    assert found == {
        "spark.sql.catalog.dev": f"conroi.spark.{'TransactionalLakeCatalog' if SPARK >= (4, 2) else 'LakeCatalog'}",
        "spark.sql.catalog.dev.uri": "s3://b/l",
        "spark.sql.catalog.dev.branch": "b",
        "spark.sql.catalog.dev.storageOptionsVariable": "CONROI_DEV_STORAGEOPTIONS",
    }
    assert os.environ["CONROI_DEV_STORAGEOPTIONS"] == '{"k": "v"}'
    assert catalog_settings("lake", is_local=False)["spark.sql.catalog.lake.uri"] == os.path.abspath("lake")
    running = catalog_settings({"dev": {"store": "s", "storage_options": {}}}, is_local=False, is_running=True)
    assert running["spark.sql.catalog.dev.secretStore"] == "s"
    assert running["spark.sql.catalog.dev.secretStorageOptions"] == "{}"
    with pytest.raises(InvalidInputError, match="this process alone"):
        catalog_settings("memory://lake", is_local=True)
    with pytest.raises(InvalidInputError, match="no name for a catalog"):
        catalog_settings({"not a name": "x"}, is_local=True)


def test_a_catalog_of_a_branch(spark: SparkSession, tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"id": 1}])
    lake.branches.create("dev")
    session = conroi.spark.session(lake={"dev": {"uri": str(tmp_path / "lake"), "branch": "dev"}})
    session.sql("INSERT INTO dev.t VALUES (2)")
    assert rows(session, "SELECT id FROM dev.t ORDER BY id") == [(1,), (2,)]
    assert lake["t"].count_rows() == 1
    assert lake.branch("dev")["t"].count_rows() == 2


def test_a_session_that_started_without_the_connector_says_so(tmp_path: Path):
    class Session:
        conf: ClassVar = {"spark.jars": "other.jar"}

    with pytest.raises(UnsupportedError, match=r"without the connector.*Hint: Call"):
        _add_catalogs(cast("SparkSession", Session()), tmp_path)


def test_a_session_has_the_extensions_of_the_user_and_ours() -> None:
    ours, theirs = {"spark.sql.extensions": EXTENSION}, {"spark.sql.extensions": "io.other.Extensions"}
    assert _together(ours, theirs) == {"spark.sql.extensions": f"io.other.Extensions,{EXTENSION}"}
    assert _together({}, theirs) == theirs
    assert _together(ours, {}) == ours
