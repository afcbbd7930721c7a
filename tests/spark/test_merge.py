"""Merges on Spark: whichever way they are done, they do what the merge in one process does."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import conroi
from conroi.merge.builder import MergeBuilder
from conroi.merge.plan_choice import Way
from conroi.spark import merge, write_task
from tests.spark.support import Counting, by_pylance, manifests
from tests.support.sampling import sampled

WAYS: list[Way] = ["process", "probe", "join"]
ON_EXECUTORS: list[Way] = ["probe", "join"]
TARGET = pa.table(
    {
        "id": pa.array(range(40), pa.int64()),
        "name": [f"old{n}" for n in range(40)],
        "n": pa.array([n % 7 for n in range(40)], pa.int32()),
    }
)
Build = Callable[[MergeBuilder], MergeBuilder]

CLAUSES: dict[str, Build] = {
    "upsert": lambda m: m.when_matched_update_all().when_not_matched_insert_all(),
    "insert only": lambda m: m.when_not_matched_insert_all(),
    "update only": lambda m: m.when_matched_update_all(),
    "delete matched": lambda m: m.when_matched_delete(),
    "replace": lambda m: m.when_matched_update_all().when_not_matched_insert_all().when_not_matched_by_source_delete(),
    "values": lambda m: m.when_matched_update({"n": "target.n + source.n"}).when_not_matched_insert(
        {"id": "source.id", "name": "'new'"}
    ),
    "conditions": lambda m: (
        m.when_matched_delete("target.n = 0")
        .when_matched_update_all("source.n > target.n")
        .when_matched_update({"name": "concat(target.name, '+', source.name)"}, "source.n = 1")
        .when_not_matched_insert_all("source.n <> 3")
        .when_not_matched_insert({"id": "source.id", "n": "99"}, "source.id > 44")
    ),
    "not in source": lambda m: (
        m.when_not_matched_by_source_delete("target.n = 2")
        .when_not_matched_by_source_update({"name": "'gone'"}, "target.id < 5")
        .when_matched_update({"n": "source.n * 10"})
    ),
}


def source(spark: SparkSession, start: int = 30, end: int = 50, partitions: int = 3) -> DataFrame:
    rows = spark.range(start, end, numPartitions=partitions)
    return rows.selectExpr("id", "concat('new', id) AS name", "CAST(id % 5 AS INT) AS n")


def made(uri: str, *, stable: bool = False, key: str | None = "id") -> conroi.Table:
    """A table of several fragments, some of whose rows are gone."""
    table = conroi.create_table(uri, TARGET.slice(0, 15), key=key, stable_row_ids=stable)
    table = table.append(TARGET.slice(15, 15)).append(TARGET.slice(30))
    return table.delete("id IN (3, 33)")


def rows(uri: str) -> list[dict[str, Any]]:
    return sorted(by_pylance(uri).to_pylist(), key=lambda row: (row["id"] is None, row["id"], row["name"]))


@pytest.mark.usefixtures("both")
@pytest.mark.contract("S3")
@pytest.mark.parametrize(
    ("way", "clauses"),
    sampled(
        "clauses",
        [
            *(("join", clauses) for clauses in CLAUSES),
            *(("probe", c) for c in ("upsert", "conditions", "not in source")),
        ],
        least=3,
        covers=False,
    ),
)
def test_every_clause_does_what_it_does_in_one_process(spark: SparkSession, tmp_path: Path, way: Way, clauses: str):
    here, there = made(str(tmp_path / "here.lance")), made(str(tmp_path / "there.lance"))
    frame = source(spark)
    expected = CLAUSES[clauses](here.merge(frame.toArrow(), on="id")).execute()
    result = CLAUSES[clauses](there.merge(frame, on="id")).execute(plan=way)
    assert rows(there.uri) == rows(here.uri)
    counts = [(r.rows_inserted, r.rows_updated, r.rows_deleted) for r in (result, expected)]
    assert counts[0] == counts[1]
    assert any(counts[0])
    assert result.version == expected.version
    done = [lance.dataset(table.uri).read_transaction(result.version) for table in (here, there)]
    assert [type(each.operation).__name__ for each in done if each is not None] == ["Update", "Update"]


@pytest.mark.contract("S3")
def test_an_upsert_by_join_does_what_pylance_does(spark: SparkSession, tmp_path: Path):
    ours = made(str(tmp_path / "ours.lance"))
    made(str(tmp_path / "theirs.lance"))
    frame = source(spark)
    CLAUSES["upsert"](ours.merge(frame, on="id")).execute(plan="join")
    theirs = lance.dataset(str(tmp_path / "theirs.lance"))
    theirs.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(frame.toArrow())
    assert rows(ours.uri) == rows(str(tmp_path / "theirs.lance"))


@pytest.mark.usefixtures("both")
@pytest.mark.contract("S3")
@pytest.mark.parametrize(("way", "clauses"), [("join", "upsert"), ("join", "conditions"), ("probe", "conditions")])
def test_rows_keep_their_ids_and_versions(spark: SparkSession, tmp_path: Path, way: Way, clauses: str):
    def lineage(uri: str) -> dict[int, tuple[int, ...]]:
        columns = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
        found = lance.dataset(uri).scanner(columns=columns).to_table().to_pylist()
        return {row["id"]: tuple(row[name] for name in columns[1:]) for row in found}

    here, there = (made(str(tmp_path / f"{name}.lance"), stable=True) for name in ("here", "there"))
    before = lineage(here.uri)
    frame = source(spark)
    CLAUSES[clauses](here.merge(frame.toArrow(), on="id")).execute()
    CLAUSES[clauses](there.merge(frame, on="id")).execute(plan=way)
    ours, expected = lineage(there.uri), lineage(here.uri)
    is_old = {number for number in ours if number in before}
    assert {n: ours[n] for n in is_old} == {n: expected[n] for n in is_old}
    # New rows have new ids; which of them has which is a matter of order.
    assert sorted(ours[n] for n in ours.keys() - is_old) == sorted(expected[n] for n in expected.keys() - is_old)


KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["", "a", "żółć", None, "a" * 300]),
    "fixed binary": (pa.binary(3), [b"abc", b"\0\0\0", b"xyz", None, b"zzz"]),
    "decimal": (pa.decimal128(20, 2), [Decimal("1.10"), Decimal("-5.00"), Decimal("0.00"), None, Decimal("9.99")]),
    "float": (pa.float64(), [0.0, float("nan"), 1.5, None, float("inf")]),
    "date": (pa.date32(), [date(2024, 2, 29), date(1969, 1, 1), date(1600, 1, 1), None, date(2, 1, 1)]),
    "time": (pa.timestamp("us"), [datetime(2024, 2, 29, 1, 2, 3, n) for n in range(3)] + [None, datetime(1900, 1, 1)]),
    "bool": (pa.bool_(), [True, None]),
}


@pytest.mark.usefixtures("both")
@pytest.mark.contract("S3")
@pytest.mark.parametrize("way", ON_EXECUTORS)
def test_keys_of_every_type_are_compared_exactly(spark: SparkSession, tmp_path: Path, way: Way):
    names = list(KEYS) if way == "join" else ["text", "float"]
    for name, (type_, values) in [(name, KEYS[name]) for name in names]:
        there = pa.table(
            {"id": pa.array(values[: len(values) // 2 + 1], type_), "n": pa.array(["old"] * (len(values) // 2 + 1))}
        )
        come = pa.table({"id": pa.array(values, type_), "n": pa.array(["new"] * len(values))})
        tables = [conroi.create_table(str(tmp_path / f"{name}-{n}.lance"), there) for n in range(2)]
        CLAUSES["upsert"](tables[0].merge(come, on="id")).execute()
        CLAUSES["upsert"](tables[1].merge(spark.createDataFrame(come), on="id")).execute(plan=way)
        found = [sorted(map(str, by_pylance(table.uri).to_pylist())) for table in tables]
        assert found[0] == found[1], name


@pytest.mark.contract("S3")
def test_a_part_of_the_source_that_is_too_big_is_shared_out(
    spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(write_task, "MOST_PART_BYTES", 200)
    result = CLAUSES["upsert"](made(uri).merge(source(spark, partitions=1), on="id")).execute(plan="join")
    assert (result.rows_updated, result.rows_inserted, len(rows(uri))) == (9, 11, 49)


@pytest.mark.contract("S3")
@pytest.mark.parametrize("way", ON_EXECUTORS)
def test_keys_of_two_columns(spark: SparkSession, tmp_path: Path, way: Way):
    frame = source(spark).selectExpr("id", "concat('old', id) AS name", "77 AS n")
    tables = [made(str(tmp_path / f"{n}.lance"), key=None) for n in range(2)]
    CLAUSES["upsert"](tables[0].merge(frame.toArrow(), on=["name", "id"])).execute()
    CLAUSES["upsert"](tables[1].merge(frame, on=["name", "id"])).execute(plan=way)
    assert rows(tables[1].uri) == rows(tables[0].uri)
    assert sum(row["n"] == 77 for row in rows(tables[1].uri)) == 20


# ------------------------------------------------------------------------------ what is refused


@pytest.mark.usefixtures("both")
@pytest.mark.contract("S3")
@pytest.mark.parametrize("way", WAYS)
def test_a_key_twice_in_the_source_is_refused(spark: SparkSession, uri: str, way: Way):
    table = made(uri)
    twice = source(spark, 5, 8, 1).unionAll(source(spark, 7, 9, 1))  # in two tasks
    with pytest.raises(conroi.DuplicateKeyError, match="more than once: 7") as refused:
        CLAUSES["upsert"](table.merge(twice, on="id")).execute(plan=way)
    assert (refused.value.keys, refused.value.table) == (({"id": 7},), uri)
    assert (len(manifests(uri)), rows(uri)[7]["name"]) == (4, "old8")


@pytest.mark.contract("S3")
@pytest.mark.parametrize("way", WAYS)
def test_a_key_twice_in_the_table_is_refused(spark: SparkSession, uri: str, way: Way):
    table = made(uri)
    lance.write_dataset(TARGET.slice(9, 1), uri, mode="append")  # checks nothing
    with pytest.raises(conroi.DuplicateKeyError, match="table itself has the key id more than once: 9"):
        CLAUSES["upsert"](table.latest().merge(source(spark, 8, 11), on="id")).execute(plan=way)


MISTAKES: dict[str, Build] = {
    "source.nothing": lambda m: m.when_matched_update({"n": "source.nothing"}),
    "gives": lambda m: m.when_matched_update({"n": "'text'"}),
    "not true or false": lambda m: m.when_matched_delete("source.n"),
    "nothing": lambda m: m.when_not_matched_by_source_delete("nothing = 1"),
    "no column": lambda m: m.when_not_matched_insert({"nothing": "1"}),
}


@pytest.mark.contract("S3")
@pytest.mark.parametrize("way", [None, *WAYS])
def test_a_mistake_is_found_before_the_work_starts(spark: SparkSession, tmp_path: Path, uri: str, way: Way | None):
    table = made(uri)
    counting = Counting(tmp_path / "tasks")
    frame = counting.over(source(spark))
    for text, build in MISTAKES.items():
        with pytest.raises(conroi.ConroiError, match=text):
            build(table.merge(frame, on="id")).execute(plan=way)
    assert (counting.started, len(manifests(uri))) == (0, 4)


@pytest.mark.usefixtures("both")
@pytest.mark.contract("S3")
@pytest.mark.parametrize("way", ON_EXECUTORS)
def test_what_does_not_fit_is_refused_in_our_words(spark: SparkSession, tmp_path: Path, uri: str, way: Way):
    table = made(uri)
    counting = Counting(tmp_path / "tasks")
    with pytest.raises(conroi.InvalidInputError, match="no column 'id' to match on"):
        CLAUSES["upsert"](table.merge(counting.over(source(spark)).drop("id"), on="id")).execute(plan=way)
    assert counting.started == 0
    big = source(spark).selectExpr("id", "name", "id + 3000000000 AS n")
    with pytest.raises(conroi.InvalidInputError, match="does not fit int32"):
        CLAUSES["upsert"](table.merge(big, on="id")).execute(plan=way)
    with pytest.raises(conroi.InvalidInputError, match="may not be null"):
        CLAUSES["upsert"](table.merge(source(spark).selectExpr("nullif(id, 49) AS id", "name", "n"), on="id")).execute(
            plan=way
        )
    assert len(manifests(uri)) == 4


@pytest.mark.contract("S3")
@pytest.mark.parametrize("way", WAYS)
def test_the_declared_key_stays_unique_also_where_others_are_matched(spark: SparkSession, uri: str, way: Way):
    table = made(uri)
    strange = source(spark, 5, 7).selectExpr("id", "concat('x', id) AS name", "n")
    with pytest.raises(conroi.DuplicateKeyError, match=r"already: [56]"):
        CLAUSES["upsert"](table.merge(strange, on="name")).execute(plan=way)
    moved = table.merge(source(spark, 5, 7), on="id").when_matched_update({"id": "source.id + 1"})
    with pytest.raises(conroi.DuplicateKeyError, match="already: 7"):
        moved.execute(plan=way)
    away = table.merge(source(spark, 5, 7), on="id").when_matched_update({"id": "source.id + 1000"})
    assert away.execute(plan=way).rows_updated == 2
    assert [row["id"] for row in rows(uri)][-2:] == [1005, 1006]


# ------------------------------------------------------------------------------ concurrent commits


class ConcurrentCommit:
    """Does something once, between the job of a merge and its commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
        from conroi.merge import verb

        self.plans = 0
        planned = verb.planned

        def hooked(*arguments: Any) -> Any:
            plan = planned(*arguments)
            self.plans += 1
            if self.plans == 1:
                work()
            return plan

        monkeypatch.setattr(verb, "planned", hooked)
        monkeypatch.setattr(merge, "planned", hooked)


def files_of(uri: str) -> int:
    return len(os.listdir(Path(uri) / "data"))


@pytest.mark.contract("S3")
@pytest.mark.parametrize("way", ON_EXECUTORS)
def test_a_merge_is_put_on_top_of_what_others_committed(
    spark: SparkSession, uri: str, tmp_path: Path, way: Way, monkeypatch: pytest.MonkeyPatch
):
    table = made(uri)
    files: list[int] = []

    def work() -> None:
        other = conroi.open_table(uri).append([{"id": 1000, "name": "other", "n": 1}])
        other.update({"name": "'other'"}, where="id = 2").delete("id = 31")  # 31 is not in the source
        files.append(files_of(uri))

    concurrent = ConcurrentCommit(monkeypatch, work)
    counting = Counting(tmp_path / "tasks")
    frame = counting.over(source(spark, 34, 50))
    result = CLAUSES["upsert"](table.merge(frame, on="id")).execute(plan=way)
    assert (concurrent.plans, counting.started, files_of(uri)) == (1, 3, files[0])  # nothing was done again
    names = {row["id"]: row["name"] for row in rows(uri)}
    assert (names[1000], names[2], names[40], 31 in names, len(names)) == ("other", "other", "new40", False, 48)
    assert (result.rows_updated, result.rows_inserted, result.version) == (6, 10, 8)


@pytest.mark.contract("S3", "K2")
@pytest.mark.parametrize("way", ON_EXECUTORS)
def test_a_concurrently_inserted_key_is_updated(
    spark: SparkSession, uri: str, tmp_path: Path, way: Way, monkeypatch: pytest.MonkeyPatch
):
    table = made(uri)
    concurrent = ConcurrentCommit(
        monkeypatch, lambda: conroi.open_table(uri).append([{"id": 45, "name": "other", "n": 1}])
    )
    counting = Counting(tmp_path / "tasks")
    result = CLAUSES["upsert"](table.merge(counting.over(source(spark)), on="id")).execute(plan=way)
    assert (concurrent.plans, counting.started) == (2, 3)  # done again, but the source was not worked out again
    assert [row["name"] for row in rows(uri) if row["id"] == 45] == ["new45"]
    assert (result.rows_updated, result.rows_inserted) == (10, 10)


@pytest.mark.contract("S3", "T8")
@pytest.mark.parametrize("way", ON_EXECUTORS)
def test_a_concurrently_changed_row_is_merged_again(
    spark: SparkSession, uri: str, way: Way, monkeypatch: pytest.MonkeyPatch
):
    table = made(uri)
    concurrent = ConcurrentCommit(monkeypatch, lambda: conroi.open_table(uri).update({"n": "1000"}, where="id = 35"))
    builder = table.merge(source(spark), on="id").when_matched_update({"n": "target.n + source.n"})
    builder.execute(plan=way)
    assert concurrent.plans == 2
    assert [row["n"] for row in rows(uri) if row["id"] == 35] == [1000]  # 35 % 5 is 0
    assert [row["n"] for row in rows(uri) if row["id"] == 36] == [36 % 7 + 36 % 5]


# ------------------------------------------------------------------------------ failing tasks


@pytest.mark.usefixtures("both")
@pytest.mark.contract("S3")
@pytest.mark.parametrize(("way", "kill"), [("probe", False), ("join", False), ("join", True)])
def test_a_task_of_the_source_that_fails_at_first_lands_once(
    spark: SparkSession, uri: str, tmp_path: Path, way: Way, kill: bool
):
    table = made(uri)
    counting = Counting(tmp_path / "tasks", failing_attempts=1, kill=kill)
    result = CLAUSES["upsert"](table.merge(counting.over(source(spark)), on="id")).execute(plan=way)
    assert (result.rows_updated, result.rows_inserted, len(rows(uri))) == (9, 11, 49)


@pytest.mark.usefixtures("both")
@pytest.mark.contract("S3")
@pytest.mark.parametrize("way", ON_EXECUTORS)
def test_a_job_that_fails_leaves_nothing_visible(spark: SparkSession, uri: str, tmp_path: Path, way: Way):
    table = made(uri)
    before = rows(uri)
    counting = Counting(tmp_path / "tasks", failing_attempts=99)
    with pytest.raises(PySparkException, match="spoiled by the test"):
        CLAUSES["upsert"](table.merge(counting.over(source(spark)), on="id")).execute(plan=way)
    assert (len(manifests(uri)), rows(uri)) == (4, before)


# ------------------------------------------------------------------------------ which way


@pytest.mark.usefixtures("both")
def test_explain_says_which_way_and_why(spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch):
    from conroi.merge import plan_choice

    table = made(uri)
    builder = CLAUSES["upsert"](table.merge(source(spark), on="id"))
    plan = builder.explain()
    assert (plan.way, plan.source_rows, plan.table_rows, plan.table_key_bytes) == ("process", 20, 38, 38 * 16)
    assert str(plan).splitlines()[0] == "merge on id: process"
    monkeypatch.setattr(plan_choice, "MOST_TABLE_KEY_BYTES", 100)
    assert builder.explain().way == "probe"
    leaving = builder.when_not_matched_by_source_update({"n": "0"})
    assert leaving.explain().way == "join"
    monkeypatch.setattr(plan_choice, "MOST_KEY_BYTES", 100)
    assert (builder.explain().way, "20" in str(builder.explain())) == ("join", True)
    monkeypatch.setattr(plan_choice, "MOST_TABLE_KEY_BYTES", 1000)
    monkeypatch.setattr(plan_choice, "MOST_SOURCE_ROWS", 10)
    assert builder.explain().why == "the source has more than 10 rows"
    assert builder.explain(plan="probe").why == "you asked for it"
    result = builder.execute()
    assert (result.rows_updated, result.rows_inserted) == (9, 11)


def test_explain_of_a_merge_without_spark(spark: SparkSession, uri: str):
    builder = CLAUSES["upsert"](made(uri).merge(source(spark).toArrow(), on="id"))
    assert builder.explain().way == "process"
    for way in ON_EXECUTORS:
        with pytest.raises(conroi.InvalidInputError, match="needs"):
            builder.execute(plan=way)
    with pytest.raises(conroi.InvalidInputError, match="plan="):
        builder.explain(plan="other")  # pyright: ignore[reportArgumentType]
    assert builder.execute(plan="probe", spark=spark).rows_inserted == 11  # rows from here, looked for by tasks


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize("way", ON_EXECUTORS)
def test_an_empty_table_and_an_empty_source(spark: SparkSession, uri: str, way: Way):
    table = conroi.create_table(uri, TARGET.schema, key="id")
    assert CLAUSES["upsert"](table.merge(source(spark, 0, 0), on="id")).execute(plan=way).version == 1
    result = CLAUSES["upsert"](table.merge(source(spark), on="id")).execute(plan=way)
    assert (result.rows_inserted, result.version) == (20, 2)
    nothing = CLAUSES["upsert"](result.table.merge(source(spark).where("id < 0"), on="id")).execute(plan=way)
    assert nothing.version == 2


# ------------------------------------------------------------------------------ transactions


@pytest.mark.usefixtures("both")
@pytest.mark.contract("S4")
def test_a_transaction_mixes_spark_and_arrow_over_many_tables(spark: SparkSession, tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("orders", TARGET, key="id")
    lake.create_table("days", pa.table({"day": [1, 2], "total": [10, 20]}), key="day")
    lake.create_table("notes", pa.table({"text": ["first"]}))
    before = lake.version
    with lake.begin("nightly") as tx:
        tx["orders"].append([{"id": 45, "name": "arrow", "n": 1}])  # which the merge then finds
        merged = CLAUSES["upsert"](tx["orders"].merge(source(spark), on="id")).execute(plan="join")
        assert (merged.rows_updated, merged.rows_inserted) == (11, 9)
        tx["orders"].delete("id < 5")
        probed = tx["orders"].merge(source(spark, 6, 8), on="id").when_matched_delete().execute(plan="probe")
        assert probed.rows_deleted == 2
        CLAUSES["upsert"](tx["days"].merge([{"day": 2, "total": 25}, {"day": 3, "total": 5}], on="day")).execute()
        tx["notes"].append(spark.sql("SELECT 'second' AS text"))
        assert len(by_pylance(lake["orders"].uri)) == 40  # no reader sees any of it yet
    assert lake.version == before + 1
    assert tx.result.tables == {"orders": 2, "days": 2, "notes": 2}
    found = rows(lake["orders"].uri)
    assert [row["id"] for row in found] == [5, *range(8, 50)]
    assert {row["name"] for row in found if row["id"] >= 30} == {f"new{n}" for n in range(30, 50)}
    assert by_pylance(lake["days"].uri).sort_by("day")["total"].to_pylist() == [10, 25, 5]
    assert {row["text"] for row in by_pylance(lake["notes"].uri).to_pylist()} == {"first", "second"}


@pytest.mark.usefixtures("both")
@pytest.mark.contract("S3")
@pytest.mark.parametrize("way", WAYS)
def test_null_vectors_of_a_frame_come_in_by_expression(spark: SparkSession, tmp_path: Path, way: Way):
    """I11: killed the driver, or a Python worker."""
    vectors = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
    table = conroi.create_table(str(tmp_path / "t"), pa.table({"id": [1, 2], "x": vectors}), key="id")
    frame = spark.createDataFrame([(1, None), (9, None)], "id bigint, x array<float>")

    merging = table.merge(frame, on="id").when_matched_update({"x": "source.x"})
    merging.when_not_matched_insert({"id": "source.id", "x": "source.x"}).execute(plan=way)

    found = {row["id"]: row["x"] for row in by_pylance(str(tmp_path / "t")).to_pylist()}
    assert found == {1: None, 2: [3.0, 4.0], 9: None}
