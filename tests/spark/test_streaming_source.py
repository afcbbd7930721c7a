"""`readStream`: the rows of a table, then those of each new version, each once and in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import conroi
from conroi.spark.options import Options
from tests.spark.support import by_pylance
from tests.support.arrow import column_values

pytest.importorskip("pyspark.sql.streaming.datasource", reason="a table is no stream in PySpark 4.1")
from pyspark.sql.streaming.datasource import ReadAllAvailable

from conroi.spark.streaming_source import ConroiStreamReader

TWO = pa.table({"id": [1, 2], "name": ["a", "b"]})


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "name": [f"n{number}" for number in ids]})


class Follower:
    """The reader by itself, driven as Spark drives it; `taken` are the ids of each batch."""

    def __init__(self, path: object, **options: object) -> None:
        self._given = Options({"path": str(path), **{name: str(value) for name, value in options.items()}})
        self.taken: list[list[int]] = []
        self.restart()
        self.at = self.reader.initialOffset()

    def restart(self) -> None:
        """A new process, which knows nothing but the offset."""
        scan = self._given.scan()
        self.reader = ConroiStreamReader(self._given, scan, scan.schema())

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
        tasks = self.reader.partitions(start, end)
        return [number for task in tasks for batch in self.reader.read(task) for number in column_values(batch["id"])]

    def step(self) -> list[int]:
        """One batch; offsets travel as JSON."""
        end = self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())
        end = json.loads(json.dumps(end))
        found = self.read(self.at, end)
        assert found == self.read(self.at, end)  # a task or a batch that is repeated gets the same
        self.reader.commit(end)
        self.at = end
        return found

    def all(self) -> list[list[int]]:
        """Batches until nothing is new."""
        self.taken = []
        while self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit()) != self.at:
            self.taken.append(self.step())
        return self.taken


@pytest.mark.contract("S5")
def test_a_stream_begins_with_all_rows_and_goes_on_with_new_ones(uri: str):
    table = conroi.create_table(uri, TWO).append(rows(3)).delete("id = 1")
    stream = Follower(uri)
    assert stream.step() == [2, 3]
    assert stream.step() == []
    lance.write_dataset(rows(4, 5), uri, mode="append")
    table.latest().append(rows(6))
    stream.restart()
    assert stream.step() == [4, 5, 6]
    assert stream.all() == []


@pytest.mark.contract("S5")
def test_a_stream_begins_where_it_is_told_to(uri: str):
    conroi.create_table(uri, TWO).append(rows(3)).append(rows(4))
    assert Follower(uri, startingVersion=1).step() == [1, 2, 3, 4]
    assert Follower(uri, startingVersion=3).step() == [4]
    newest, following = Follower(uri, startingVersion="latest"), Follower(uri, startingVersion=4)
    assert (newest.step(), following.step()) == ([], [])
    conroi.open_table(uri).append(rows(5))
    assert (newest.step(), following.step()) == ([5], [5])
    with pytest.raises(conroi.InvalidInputError, match="startingVersion=7, but the table's newest version is 4"):
        Follower(uri, startingVersion=7).step()
    for wrong in ["0", "soon"]:
        with pytest.raises(conroi.InvalidInputError, match="is not known"):
            Follower(uri, startingVersion=wrong)
    with pytest.raises(conroi.InvalidInputError, match="version cannot be given to a stream"):
        Follower(uri, version=1)


@pytest.mark.contract("S5")
def test_where_a_stream_began_stays_written_down_until_its_first_batch_is_through(uri: str):
    table = conroi.create_table(uri, TWO)
    stream = Follower(uri)
    start, end = stream.reader.initialOffset(), stream.reader.latestOffset({}, ReadAllAvailable())
    table.append(rows(3)).delete("id = 1")
    stream.restart()  # killed before the batch was through: Spark asks for the beginning again
    assert stream.reader.initialOffset() == start
    assert stream.read(start, end) == [1, 2]


@pytest.mark.contract("S5")
def test_limits_cut_versions_into_batches(uri: str):
    table = conroi.create_table(uri, rows(*range(10)))
    table.delete("id IN (0, 5)").append(rows(20, 21, 22)).append(rows(30)).compact().append(rows(40))
    assert Follower(uri, maxRowsPerTrigger=4).all() == [[1, 2, 3, 4], [6, 7, 8, 9], [20, 21, 22, 30], [40]]
    assert Follower(uri, startingVersion=1, maxVersionsPerTrigger=1, skipChanges="true").all() == [
        [*range(10)],
        [20, 21, 22],
        [30],
        [40],
    ]
    both = Follower(uri, startingVersion=3, maxVersionsPerTrigger=2, maxRowsPerTrigger=2)
    assert both.all() == [[20, 21], [22, 30], [40]]
    assert Follower(uri, startingVersion=3, maxRowsPerTrigger=2, filter="id != 21").all() == [[20], [22, 30], [40]]
    everything = Follower(uri, startingVersion=3, maxRowsPerTrigger=1)
    end = everything.reader.latestOffset({}, ReadAllAvailable())
    assert everything.read({}, end) == [20, 21, 22, 30, 40]
    for name in ["maxRowsPerTrigger", "maxVersionsPerTrigger"]:
        with pytest.raises(conroi.InvalidInputError, match="not a number above 0"):
            Follower(uri, **{name: 0})


@pytest.mark.contract("S5")
def test_what_is_there_when_availableNow_begins_is_all_that_it_reads(uri: str):
    table = conroi.create_table(uri, TWO)
    stream = Follower(uri, maxRowsPerTrigger=1)
    stream.reader.prepareForTriggerAvailableNow()
    table.append(rows(3))
    assert stream.all() == [[1], [2]]
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.all() == [[3]]


@pytest.mark.contract("S5")
def test_versions_that_leave_the_rows_as_they_were_bring_nothing(uri: str):
    table = conroi.create_table(uri, TWO, key="id")
    stream = Follower(uri)
    assert stream.step() == [1, 2]
    table.append(rows(3)).create_index("id").compact().set_config({"some": "thing"}).add_columns({"more": "id * 2"})
    lance.dataset(uri).optimize.compact_files()
    table.latest().append([{"id": 4, "name": "d", "more": 8, "late": 1}], evolve_schema=True)
    merging = table.latest().merge([{"id": 5, "name": "e", "more": 0, "late": 0}], on="id")
    merging.when_not_matched_insert_all().execute()
    table.latest().rename_columns({"late": "later"}).drop_columns(["later"]).append(
        [{"id": 6, "name": "f", "more": 12}]
    )
    assert stream.step() == [3, 4, 5, 6]


@pytest.mark.contract("S5")
@pytest.mark.parametrize("change", ["delete", "update", "overwrite", "merge", "replace", "restore"])
def test_a_version_that_changes_rows_ends_the_stream_unless_such_are_skipped(uri: str, change: str):
    table = conroi.create_table(uri, TWO)
    failing, skipping = Follower(uri), Follower(uri, skipChanges="true")
    assert (failing.step(), skipping.step()) == ([1, 2], [1, 2])
    table = table.append(rows(3))
    merging = table.merge(rows(3, 99), on="id").when_matched_update_all().when_not_matched_insert_all()
    changes: dict[str, Any] = {
        "delete": lambda: table.delete("id = 1"),
        "update": lambda: table.update({"name": "'new'"}, where="id = 1"),
        "overwrite": lambda: table.overwrite(rows(1, 2, 3)),
        "merge": merging.execute,
        "replace": lambda: table.replace_column_data({"id": "id + 0"}),
        "restore": lambda: table.restore(1),
    }
    changes[change]()
    table.latest().append(rows(4))
    assert (failing.step(), skipping.step()) == ([3], [3, 4])
    with pytest.raises(conroi.UnsupportedError, match="Version 3 changed rows that were there before") as refused:
        failing.step()
    assert (refused.value.version, "skipChanges" in str(refused.value.hint)) == (3, True)


@pytest.mark.contract("S5")
def test_a_version_that_was_collected_before_it_was_read_ends_the_stream(uri: str):
    conroi.create_table(uri, TWO)
    stream = Follower(uri)
    assert stream.step() == [1, 2]
    conroi.open_table(uri).append(rows(3)).append(rows(4))
    manifests = sorted((Path(uri) / "_versions").iterdir())  # newest first
    manifests[1].unlink()
    stream.restart()
    with pytest.raises(conroi.NotFoundError, match="must continue at version 2, which expired") as refused:
        stream.step()
    assert refused.value.version == 2


@pytest.mark.contract("S5")
def test_a_table_that_was_made_again_is_another_table(tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("orders", TWO)
    stream = Follower(lake.uri, table="orders")
    assert stream.step() == [1, 2]
    lake["orders"].append(rows(3))
    lake.rename_table("orders", "sales")
    stream = followed_on(stream, Follower(lake.uri, table="sales"))
    assert stream.step() == [3]
    lake.create_table("orders", rows(8, 9))
    stream = followed_on(stream, Follower(lake.uri, table="orders"))
    with pytest.raises(conroi.NotFoundError, match="dropped and created again"):
        stream.step()


def followed_on(before: Follower, after: Follower) -> Follower:
    after.at = before.at
    return after


def test_columns_that_a_version_has_not_are_named(uri: str):
    table = conroi.create_table(uri, TWO).add_columns({"more": "id"})
    stream = Follower(uri, startingVersion=1)
    with pytest.raises(conroi.InvalidInputError, match="no column more") as refused:
        stream.step()
    assert refused.value.version == 1
    assert Follower(uri, startingVersion=1, columns='["id"]').step() == [1, 2]
    assert table.version == 2


def test_a_checkpoint_of_another_source_is_refused(uri: str):
    conroi.create_table(uri, TWO)
    stream = Follower(uri)
    with pytest.raises(conroi.CorruptionError, match="none of conroi's"):
        stream.reader.latestOffset({"logOffset": 3}, ReadAllAvailable())


# ------------------------------------------------------------------------------ with Spark


def copied(frame: DataFrame, folder: Path) -> StreamingQuery:
    """What the stream gives, in a table, by a query that ends when it has read what there is."""
    writing = frame.writeStream.format("conroi").option("checkpointLocation", str(folder / "checkpoint"))
    query = writing.trigger(availableNow=True).start(str(folder / "copy.lance"))
    query.awaitTermination()
    return query


@pytest.mark.contract("S5")
def test_source_and_sink_in_one_query_go_on_after_a_restart(spark: SparkSession, tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("orders", rows(*range(7)))

    def following() -> DataFrame:
        reading = spark.readStream.format("conroi").option("table", "orders").option("maxRowsPerTrigger", 3)
        return reading.load(lake.uri)

    query = copied(following().where("id != 5"), tmp_path)
    assert [progress["numInputRows"] for progress in query.recentProgress] == [3, 3, 1]
    lake["orders"].append(rows(7, 8))
    copied(following(), tmp_path)
    found = by_pylance(str(tmp_path / "copy.lance"))
    assert sorted(column_values(found["id"])) == [0, 1, 2, 3, 4, 6, 7, 8]
    assert sorted(column_values(found["name"])) == [f"n{number}" for number in [0, 1, 2, 3, 4, 6, 7, 8]]
    lake["orders"].delete("id = 0")
    with pytest.raises(StreamingQueryException, match="UnsupportedError: Version 3 changed rows"):
        copied(following(), tmp_path)


def test_options_of_streams_mean_nothing_to_a_read_that_is_none(spark: SparkSession, uri: str):
    conroi.create_table(uri, TWO)
    with pytest.raises(Exception, match="startingVersion cannot be given to a read that is no stream"):
        spark.read.format("conroi").option("startingVersion", 1).load(uri).collect()
