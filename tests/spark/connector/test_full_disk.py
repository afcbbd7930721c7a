"""Workers that find no room for their files: a typed error, nothing visible, and the next statement works."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import lance
import pytest
from pyspark.sql import SparkSession

import conroi
from conroi.spark.connector.configuration import catalog_settings
from conroi.spark.connector.errors import typed
from tests.spark.connector.support import rows

pytestmark = [pytest.mark.contract("S21"), pytest.mark.soak]

MEBIBYTE = 1 << 20
TEXTS = "SELECT id, sha2(cast(id AS STRING), 512) AS text FROM range(0, 60000, 1, 2)"
"""About 8 MiB that do not compress well."""


def catalog(spark: SparkSession, name: str, **settings: str) -> SparkSession:
    session = spark.newSession()
    for key, value in catalog_settings({name: settings}, is_local=True).items():
        session.conf.set(key, value)
    return session


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_bsize


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount; the test of a limit for files needs no rights")
def test_a_full_disk_is_a_typed_error_and_leaves_nothing(spark: SparkSession, small: Path):
    lake = conroi.connect(small / "lake")
    session = catalog(spark, "small", uri=lake.uri)
    session.sql("CREATE TABLE small.t (id BIGINT, text STRING)")
    session.sql("INSERT INTO small.t VALUES (-1, 'first')")
    before = lake.version
    filler = small / "filler"
    with open(filler, "wb") as filling:
        filling.write(b"x" * (free(small) - 2 * MEBIBYTE))
    room = free(small)
    with pytest.raises(Exception, match="No space left on device") as refused:
        session.sql(f"INSERT INTO small.t {TEXTS}")
    error = typed(refused.value)
    assert isinstance(error, conroi.StoreError), refused.value
    assert "No space left on device" in error.message
    assert lake.version == before
    assert rows(session, "SELECT id, text FROM small.t") == [(-1, "first")]
    assert free(small) >= room - 64 * 1024, "what failed tasks wrote is gone"

    filler.unlink()
    session.sql(f"INSERT INTO small.t {TEXTS}")
    found = lance.dataset(lake["t"].uri).to_table(columns=["id"]).sort_by("id")
    assert found["id"].to_pylist() == list(range(-1, 60_000))


def test_a_limit_for_the_size_of_files_is_a_typed_error_and_leaves_nothing(spark: SparkSession, tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    limit, python = tmp_path / "limit", tmp_path / "limited-python"
    limit.write_text("1024")  # blocks of 1 KiB
    python.write_text(f'#!/bin/bash\nulimit -f $(cat {limit})\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    session = catalog(spark, "limited", uri=lake.uri, python=str(python))
    session.sql("CREATE TABLE limited.t (id BIGINT, text STRING)")
    before = lake.version
    with pytest.raises(Exception, match="File too large") as refused:
        session.sql(f"INSERT INTO limited.t {TEXTS}")
    error = typed(refused.value)
    assert isinstance(error, conroi.StoreError), refused.value
    assert "File too large" in error.message
    assert lake.version == before
    assert rows(session, "SELECT count(*) FROM limited.t") == [(0,)]

    limit.write_text("unlimited")
    session.sql(f"INSERT INTO limited.t {TEXTS}")
    assert lance.dataset(lake["t"].uri).count_rows() == 60_000
