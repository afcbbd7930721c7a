"""`df.write.format("conroi")` makes tables of a lake, in the commit of the job; before it there is nothing to see."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import conroi
from conroi.environment import LONG_AGO
from conroi.spark.options import Options
from conroi.storage.local_folders import settable_times
from tests.spark.support import by_pylance, numbers
from tests.spark.test_format import TWO, written
from tests.support.aging import files_below, make_older
from tests.support.arrow import column_values


def ids(lake: conroi.Lake, name: str) -> list[int]:
    return sorted(column_values(lake[name].to_arrow()["id"]))


@pytest.mark.contract("S12")
def test_save_makes_tables_in_a_lake_by_path_and_by_name(spark: SparkSession, tmp_path: Path):
    """C4: a false RetryableConflict and an orphan folder by path, NotFoundError by name."""
    lake = conroi.connect(tmp_path / "lake")
    by_path = numbers(spark, 0, 3).write.format("conroi").option("key", "id")
    by_path.mode("append").save(f"{lake.uri}/new.lance")
    by_name = numbers(spark, 5, 7).write.format("conroi").option("table", "sales.other").option("message", "first")
    by_name.mode("overwrite").save(lake.uri)
    assert lake.tables() == ["new", "sales.other"]
    assert (ids(lake, "new"), lake["new"].key, ids(lake, "sales.other")) == ([0, 1, 2], ("id",), [5, 6])
    assert [commit.message for commit in lake.history()][:2] == ["first", "create new"]
    folders = {"__manifest", "new.lance", os.path.basename(lake["sales.other"].uri)}
    assert set(os.listdir(lake.uri)) == folders
    assert by_pylance(f"{lake.uri}/new.lance").num_rows == 3
    by_name.mode("append").save(lake.uri)
    assert ids(lake, "sales.other") == [5, 5, 6, 6]
    assert lake.doctor(deep=True).is_healthy
    for mode in ("errorifexists", "ignore"):  # Spark itself offers these two to no source in Python
        with pytest.raises(PySparkException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
            numbers(spark, 0, 1).write.format("conroi").mode(mode).save(f"{lake.uri}/third.lance")
    with pytest.raises(PySparkException, match=r"is a lake, not a table.*It has new, sales\.other"):
        spark.read.format("conroi").load(lake.uri)
    with pytest.raises(PySparkException, match="is a lake, not a table"):
        numbers(spark, 0, 1).write.format("conroi").mode("append").save(lake.uri)
    assert set(os.listdir(lake.uri)) == folders


# ------------------------------------------------------------------------------ the writer by itself, without Spark


@pytest.mark.contract("S12")
def test_a_new_table_of_a_lake_is_made_by_the_commit_and_once(tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    writer, messages = written(f"{lake.uri}/new.lance", TWO)
    assert lake.tables() == []
    writer.commit(messages)
    version = lake.version
    writer.commit(messages)
    assert (lake.version, ids(lake, "new")) == (version, [1, 2])


@pytest.mark.contract("S12")
def test_a_name_that_is_taken_concurrently_stays_with_its_table(tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    writer, messages = written(lake.uri, TWO, table="new")
    lake.create_table("new", [{"id": 9}])
    with pytest.raises(conroi.AlreadyExistsError):
        writer.commit(messages)
    assert ids(lake, "new") == [9]


@pytest.mark.contract("S12")
def test_a_job_that_never_commits_leaves_a_folder_that_is_collected(tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    written(lake.uri, TWO, table="new")
    assert (lake.tables(), os.path.isdir(f"{lake.uri}/new.lance")) == ([], True)
    with settable_times():
        make_older(lake.uri, hours=200)
        lake.gc(dry_run=False)
    assert files_below(f"{lake.uri}/new.lance") == set()


@pytest.mark.contract("S12")
def test_a_path_whose_table_was_dropped_is_made_anew_and_not_written_into_the_old_folder(tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("new", [{"id": 7, "name": "old"}])
    lake.drop_table("new")
    for expected in ([1, 2], [1, 1, 2, 2]):
        writer, messages = written(f"{lake.uri}/new.lance", TWO)
        writer.commit(messages)
        assert ids(lake, "new") == expected
    assert Options({"path": f"{lake.uri}/new.lance"}).head().count_rows() == 4


@pytest.mark.contract("S12")
def test_a_table_of_other_software_in_a_lakes_folder_stays_what_it_is(tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    path = f"{lake.uri}/foreign.lance"
    lance.write_dataset(TWO, path)
    writer, messages = written(path, TWO)
    writer.commit(messages)
    assert (lake.tables(), by_pylance(path).num_rows) == ([], 4)


@pytest.mark.contract("S12")
def test_a_new_table_on_a_branch(tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", TWO)
    lake.branches.create("dev")
    places: list[dict[str, Any]] = [{"table": "one"}, {}]
    for place in places:
        uri = lake.uri if place else f"{lake.uri}/two.lance"
        writer, messages = written(uri, TWO, branch="dev", **place)
        writer.commit(messages)
    assert (lake.tables(), lake.branch("dev").tables()) == (["t"], ["one", "t", "two"])
    assert ids(lake.branch("dev"), "two") == [1, 2]


@pytest.mark.contract("S12")
def test_what_cannot_be_made_is_refused_before_any_task_runs(tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", TWO)
    with pytest.raises(conroi.NotFoundError, match="no lake"):
        written(str(tmp_path / "typo"), TWO, table="new")
    assert not (tmp_path / "typo").exists()
    with pytest.raises(conroi.AlreadyExistsError, match="is a table"):
        written(lake.uri, TWO, table="t.inside")
    with pytest.raises(conroi.InvalidInputError, match="key column 'none'"):
        written(lake.uri, TWO, table="new", key="none")
    with pytest.raises(conroi.InvalidInputError, match="A lake commits"):
        written(f"{lake.uri}/new.lance", TWO, put="rename")
    assert sorted(os.listdir(lake.uri)) == ["__manifest", "t.lance"]


@pytest.mark.contract("S13")
@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("is_in_lake", [True, False])
def test_files_that_were_collected_before_the_commit_are_noticed(tmp_path: Path, is_in_lake: bool, is_new: bool):
    """A job that took longer than files stay: the version would name files that are gone."""
    lake = conroi.connect(tmp_path / "lake")
    uri = f"{lake.uri}/t.lance" if is_in_lake else str(tmp_path / "t.lance")
    if not is_new:
        conroi.create_table(uri, TWO)
    writer, messages = written(uri, TWO)
    if is_new and not is_in_lake:
        for file in Path(uri).glob("data/*.lance"):
            file.unlink()  # gc() needs a table
    else:
        with settable_times():
            make_older(tmp_path, hours=200)
            (lake if is_in_lake else conroi.open_table(uri)).gc(dry_run=False)
    writer._begun_at = LONG_AGO
    with pytest.raises(conroi.RetryableConflict, match="took so long"):
        writer.commit(messages)
    assert lake.tables() == ([] if is_new or not is_in_lake else ["t"])
    if not is_new:
        assert conroi.open_table(uri).to_arrow().num_rows == 2


@pytest.mark.contract("S13")
def test_a_slow_job_whose_files_stayed_is_committed(tmp_path: Path):
    uri = str(tmp_path / "t.lance")
    conroi.create_table(uri, TWO)
    writer, messages = written(uri, TWO)
    writer._begun_at = LONG_AGO
    writer.commit(messages)
    assert by_pylance(uri).num_rows == 4


def test_rows_of_another_schema(tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", pa.table({"other": [1]}))
    with pytest.raises(conroi.InvalidInputError, match="columns the table does not have"):
        written(lake.uri, TWO, table="t")
