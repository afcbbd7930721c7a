"""Tables in Spark: one version for all tasks, no more columns and rows than are asked for."""

from __future__ import annotations

import contextlib
import io
import json
import os
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import lance
import pandas
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter

import conroi
import conroi.spark
from conroi.spark.options import Options
from conroi.spark.source import silence_pandas_warning
from tests.spark.support import SPARK
from tests.support.arrow_types import TYPES

pytestmark = pytest.mark.usefixtures("way")

FAILED = (PySparkException, Py4JJavaError)
"""What PySpark raises if a task failed: in Python, and in the JVM."""
FIVE = pa.table({"id": [1, 2, 3, 4, 5], "name": ["a", "b", None, "d", "e"]})


def ids(frame: DataFrame) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())


@pytest.mark.contract("S1")
def test_a_dataframe_stays_at_its_version_whatever_is_committed_before_it_is_used(spark: SparkSession, uri: str):
    table = conroi.create_table(uri, FIVE.slice(0, 3)).append(FIVE.slice(3))
    frame = table.to_spark(spark)
    loaded = spark.read.format("conroi").load(uri)
    table.delete("id < 4").append([{"id": 9, "name": "z"}]).compact()
    assert ids(frame) == ids(loaded) == [1, 2, 3, 4, 5]
    assert ids(frame.join(loaded, "id")) == [1, 2, 3, 4, 5]
    assert ids(spark.read.format("conroi").load(uri)) == [4, 5, 9]


@pytest.mark.contract("S1")
def test_version_tag_and_time_choose_what_is_read(spark: SparkSession, uri: str):
    first = conroi.create_table(uri, FIVE)
    first.tags.create("five")
    moment = datetime.now(UTC)
    first.delete("id > 1")

    def read(**options: str) -> list[int]:
        return ids(spark.read.format("conroi").options(**options).load(uri))

    assert read() == [1]
    assert read(version="1") == read(tag="five") == read(asOf=moment.isoformat()) == [1, 2, 3, 4, 5]
    assert read(version="1", filter="id >= 4") == [4, 5]
    assert ids(first.to_spark(spark, filter="name = 'b'")) == [2]


@pytest.mark.contract("S1")
def test_a_lake_is_read_at_one_version(spark: SparkSession, tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("orders", FIVE)
    then = lake.version
    with lake.begin() as tx:
        tx["orders"].delete("id > 2")
        inside = ids(tx["orders"].to_spark(spark))  # what only the transaction sees yet
    reader = spark.read.format("conroi").option("table", "orders")
    assert inside == [1, 2] == ids(lake["orders"].to_spark(spark)) == ids(reader.load(lake.uri))
    assert ids(lake.at(then)["orders"].to_spark(spark)) == [1, 2, 3, 4, 5]
    assert ids(reader.option("version", then).load(lake.uri)) == [1, 2, 3, 4, 5]


@pytest.mark.contract("S1")
def test_columns_that_are_not_asked_for_are_not_read(spark: SparkSession, uri: str):
    table = conroi.create_table(uri, FIVE).add_columns({"double": "id * 2"})
    added = table.to_lance().get_fragments()[0].data_files()[1].path
    os.remove(Path(uri) / "data" / added)
    assert ids(table.to_spark(spark, ["id"])) == [1, 2, 3, 4, 5]
    assert ids(spark.read.schema("id long").format("conroi").load(uri)) == [1, 2, 3, 4, 5]
    assert [row.x for row in table.to_spark(spark, {"x": "id + 1"}).collect()] == [2, 3, 4, 5, 6]
    with pytest.raises(FAILED, match=r"missing|Not found"):
        table.to_spark(spark).collect()


@pytest.mark.contract("S1")
def test_a_filter_is_applied_in_the_scan(spark: SparkSession, uri: str, way: str):
    # Spark cannot hold the second moment: a read of that row fails, and a scan that filters it out does not.
    moments = pa.array([0, 2**60], pa.timestamp("s"))
    table = conroi.create_table(uri, pa.table({"id": [1, 2], "at": moments}))
    assert ids(table.to_spark(spark, filter="id = 1")) == [1]
    assert ids(spark.read.format("conroi").option("filter", "id < 2").load(uri)) == [1]
    with pytest.raises(FAILED, match="Spark cannot hold"):
        table.to_spark(spark).where("id % 7 = 1").collect()
    if way == "connector":  # the source in Python takes no filters of Spark
        assert table.to_spark(spark).where("id = 1").count() == 1


@pytest.mark.contract("S1")
def test_one_dataframe_may_be_filtered_in_several_ways_in_one_query(spark: SparkSession, uri: str):
    frame = conroi.create_table(uri, FIVE).to_spark(spark)
    assert ids(frame.where("id = 1").unionAll(frame)) == [1, 1, 2, 3, 4, 5]
    assert ids(frame.where("id < 3").unionAll(frame.where("id > 3"))) == [1, 2, 4, 5]


class Pushing(DataSourceReader):
    """As Spark's own guide shows it."""

    def __init__(self) -> None:
        self.wanted: list[object] = []

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        for each in filters:
            if isinstance(each, EqualTo):
                self.wanted.append(each.value)
            else:
                yield each

    def read(self, partition: object) -> Iterator[tuple[int]]:
        return ((number,) for number in range(10) if all(number == value for value in self.wanted))


class PushingSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "pushing"

    def schema(self) -> str:
        return "id long"

    def reader(self, schema: object) -> Pushing:
        return Pushing()


def test_filters_that_spark_hands_over_would_reach_the_wrong_scan(spark: SparkSession):
    """Why we take none. If this fails Spark is fixed, and ConroiReader may have a pushFilters."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        spark.dataSource.register(PushingSource)
        frame = spark.read.format("pushing").load()
        assert frame.count() == 10
        assert frame.where("id = 1").unionAll(frame).count() == 2  # 11 would be right
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.contract("S1")
def test_counts_and_sizes_come_from_metadata(uri: str):
    table = conroi.create_table(uri, FIVE).append(FIVE).delete("id = 1")
    sizes = {
        file.path: os.path.getsize(Path(uri) / "data" / file.path)
        for fragment in table.to_lance().get_fragments()
        for file in fragment.data_files()
    }
    for name in sizes:
        os.remove(Path(uri) / "data" / name)
    assert table.count_rows() == 8
    assert conroi.spark.statistics(table) == conroi.spark.Statistics(8, 2, sum(sizes.values()))


@pytest.mark.contract("S1")
def test_tasks_are_fragments_that_fill_them(spark: SparkSession, uri: str):
    table = conroi.create_table(uri, pa.table({"id": pa.array(range(100), pa.int64())}))
    for start in range(100, 400, 100):
        table = table.append(pa.table({"id": pa.array(range(start, start + 100), pa.int64())}))

    def tasks(size: int) -> int:
        frame = spark.read.format("conroi").option("bytesPerTask", size).load(uri)
        assert ids(frame) == list(range(400))
        return frame.rdd.getNumPartitions()

    assert (tasks(1), tasks(1600), tasks(10**9)) == (4, 2, 1)
    assert table.delete("true").to_spark(spark).count() == 0


@pytest.mark.contract("S1")
def test_every_type_of_pylance_is_read(spark: SparkSession, uri: str):
    known = [each for each in TYPES if "2.2" in each.formats and each.name != "decimal256"]
    columns = {f"c{number}": _column(each) for number, each in enumerate(known)}
    schema = pa.schema([known[number].field(f"c{number}") for number in range(len(known))])
    lance.write_dataset(pa.table(list(columns.values()), schema=schema), uri, data_storage_version="2.2")
    read = spark.read.format("conroi").load(uri).toArrow()
    stored = conroi.open_table(uri).to_lance().scanner(blob_handling="all_binary").to_table()
    for number, each in enumerate(known):
        assert _plain(read[f"c{number}"]) == _plain(stored[f"c{number}"]), each.name


def _column(each: Any) -> pa.Array[Any]:
    if not isinstance(each.type, pa.BaseExtensionType):
        return pa.array(each.values, each.type)
    return pa.ExtensionArray.from_storage(each.type, pa.array(each.values, each.type.storage_type))


def _plain(column: Any) -> str:
    """As text, in which NaN is NaN, extensions are what they hold, and no moment has parts of microseconds."""
    type_ = column.type
    if isinstance(type_, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], cast("Any", type_.storage_type))
    for nanos, micros in ((pa.time64("ns"), pa.time64("us")), (pa.duration("ns"), pa.duration("us"))):
        column = column.cast(micros) if column.type == nanos else column
    if pa.types.is_timestamp(column.type):
        zone = cast("Any", None if column.type.tz is None else "UTC")
        column = column.cast(pa.timestamp("us", zone))
    return str(
        [int(value) if isinstance(value, Decimal) and value == int(value) else value for value in column.to_pylist()]
    )


def test_a_type_that_spark_lacks_is_named_and_can_be_left_out(spark: SparkSession, uri: str):
    big = pa.array([Decimal(1)], pa.decimal256(60, 2))
    table = conroi.create_table(uri, pa.table({"id": [1], "big": big}))
    with pytest.raises(conroi.UnsupportedError, match="'big'"):
        table.to_spark(spark)
    assert ids(table.to_spark(spark, ["id"])) == [1]


def test_what_cannot_be_read_is_refused_with_a_hint(spark: SparkSession, uri: str):
    table = conroi.create_table(uri, FIVE)
    with pytest.raises(conroi.InvalidInputError, match="columns="):
        table.to_spark(spark, "id")
    with pytest.raises(conroi.InvalidInputError, match="at least one column"):
        table.to_spark(spark, [])
    with pytest.raises(conroi.InvalidInputError):
        table.to_spark(spark, ["nothing"])
    for options, text in [({"versoin": "1"}, "versoin"), ({"version": "one"}, "not a number"), ({"version": "7"}, "7")]:
        with pytest.raises(PySparkException, match=text):
            spark.read.format("conroi").options(**options).load(uri)
    with pytest.raises(PySparkException, match="no column other"):
        spark.read.schema("other long").format("conroi").load(uri).collect()
    with pytest.raises(PySparkException, match="No path"):
        spark.read.format("conroi").load().collect()


@pytest.mark.contract("S15")
def test_bases_and_parameters_reach_the_executors(spark: SparkSession, tmp_path: Path):
    source = conroi.create_table(tmp_path / "source", FIVE)
    source.clone(str(tmp_path / "clone"))
    reader = spark.read.format("conroi")
    with pytest.raises(PySparkException, match="outside of"):
        reader.load(str(tmp_path / "clone")).collect()
    for named in (str(tmp_path / "source"), json.dumps([str(tmp_path / "source"), "/nowhere"])):
        assert ids(reader.option("allowBases", named).load(str(tmp_path / "clone"))) == [1, 2, 3, 4, 5]
    source.append([{"id": 6, "name": "x' OR true --"}])
    newest = source.latest()
    found = newest.to_spark(spark, ["id"], "name = :n OR id IN :some", params={"n": "x' OR true --", "some": [2]})
    assert ids(found) == [2, 6]
    with pytest.raises(conroi.InvalidInputError, match=":n has no value"):
        newest.to_spark(spark, filter="name = :n", params={})


@pytest.mark.contract("S15")
@pytest.mark.parametrize("wrong", ["[7]", '[""]', '["/a"', ""])
def test_bases_are_paths(wrong: str, tmp_path: Path):
    conroi.create_table(tmp_path / "t", FIVE)
    with pytest.raises(conroi.InvalidInputError):
        Options({"path": str(tmp_path / "t"), "allowBases": wrong}).head()


def test_the_warning_about_pandas_is_silenced_and_no_other():
    """C10: it came in every run, though rows go as Arrow."""
    from pyspark.sql.pandas.utils import require_minimum_pandas_version

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        require_minimum_pandas_version()
        is_said = pandas.__version__ >= "3" and SPARK >= (4, 2)
        assert len(said) == is_said, "the control: it is still said"
        silence_pandas_warning()
        require_minimum_pandas_version()
        warnings.warn("PySpark has another", FutureWarning, stacklevel=1)
    assert [str(each.message) for each in said if "pandas" not in str(each.message)] == ["PySpark has another"]
    assert len(said) <= 2


def test_credentials_are_in_no_plan_and_no_error(spark: SparkSession, uri: str):
    conroi.create_table(uri, FIVE)
    options = json.dumps({"aws_secret_access_key": "hunter2"})
    frame = spark.read.format("conroi").option("storageOptions", options).load(uri)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        frame.where("id = 1").explain(True)
    assert "conroi" in said.getvalue()
    assert "hunter2" not in said.getvalue() + repr(frame)
    with pytest.raises(PySparkException) as refused:
        spark.read.format("conroi").option("storageOptions", options + "x").load(uri)
    assert "hunter2" not in str(refused.value)
