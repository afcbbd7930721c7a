"""Update, delete, compaction and new columns as jobs: what they do in one process, done by tasks."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import conroi
from conroi.data.table_version import TableVersion
from conroi.spark import fragment_jobs
from conroi.spark.fragment_jobs import Each
from conroi.spark.packets import Answer
from tests.spark.support import by_pylance, manifests, numbers
from tests.support.sampling import sampled

ROWS = pa.table({"id": range(60), "name": [f"n{i}" for i in range(60)], "v": [float(i % 9) for i in range(60)]})
FRAGMENTS = 6


def made(uri: str, *, stable: bool = False) -> conroi.Table:
    """Six fragments, of which some rows are gone."""
    table = conroi.create_table(uri, ROWS.slice(0, 10), key="id", stable_row_ids=stable)
    for start in range(10, 60, 10):
        table = table.append(ROWS.slice(start, 10))
    return table.delete("id IN (5, 25)")


def rows(uri: str) -> list[dict[str, Any]]:
    return sorted(by_pylance(uri).to_pylist(), key=lambda row: row["id"])


def operation(uri: str, version: int) -> str:
    transaction = lance.dataset(uri).read_transaction(version)
    assert transaction is not None
    return type(transaction.operation).__name__


def lineage(uri: str) -> list[tuple[int, ...]]:
    columns = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    found = lance.dataset(uri).scanner(columns=columns).to_table().to_pylist()
    return sorted(tuple(row[name] for name in columns) for row in found)


@pytest.fixture(autouse=True)
def one_task_per_fragment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragment_jobs, "BYTES_PER_TASK", 1)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Started:
    """Counts the tasks that worked on fragments."""
    counted = Started(tmp_path / "tasks")
    monkeypatch.setattr(fragment_jobs, "Each", counted.each)
    return counted


class Started:
    """Notes every start of a task in a folder, and may spoil the first attempts of some."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.spoil: tuple[int, bool] | None = None

    def each(self, task: Any, *rest: Any) -> Each:
        return Each(Noting(task, str(self.folder), self.spoil), *rest)

    def count(self) -> int:
        return len(os.listdir(self.folder))


class Noting:
    """A task that is noted, and maybe spoiled after its work is done and before its result is sent."""

    def __init__(self, task: Any, folder: str, spoil: tuple[int, bool] | None) -> None:
        self.task = task
        self.folder = folder
        self.spoil = spoil

    @property
    def asked(self) -> Hashable:
        return self.task.asked

    def do(self, pinned: TableVersion, ids: Sequence[int]) -> Answer:
        context = TaskContext.get()
        assert context is not None
        (Path(self.folder) / f"{context.stageId()}-{context.partitionId()}-{context.attemptNumber()}").touch()
        answer = self.task.do(pinned, ids)
        if self.spoil is not None and context.partitionId() == 1 and context.attemptNumber() < self.spoil[0]:
            if self.spoil[1]:
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("spoiled by the test")
        return answer


def tripled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"triple": pc.multiply(batch.column("v"), 3.0)})


Verb = Callable[[conroi.Table, "SparkSession | None"], object]
VERBS: dict[str, Verb] = {
    "delete": lambda table, spark: table.delete("v > 4 OR id = 10", spark=spark),
    "delete all": lambda table, spark: table.delete("true", spark=spark),
    "update": lambda table, spark: table.update({"v": "v + 100", "name": "upper(name)"}, "id % 2 = 0", spark=spark),
    "update rows": lambda table, spark: table.update({"v": "v * 2"}, "id > 40", mode="rows", spark=spark),
    "update columns": lambda table, spark: table.update({"v": "-v"}, "id % 20 < 3", mode="columns", spark=spark),
    "update keys": lambda table, spark: table.update({"id": "id + 1000"}, "id % 10 = 1", spark=spark),
    "compact": lambda table, spark: table.compact(rows_per_fragment=20, spark=spark),
    "function": lambda table, spark: table.add_columns(tripled, spark=spark),
    "expressions": lambda table, spark: table.add_columns({"a": "id * 2", "b": "concat(name, '!')"}, spark=spark),
}


@pytest.mark.contract("S3")
@pytest.mark.parametrize(
    ("verb", "stable"),
    sampled(
        "verbs as jobs",
        [
            *((verb, False) for verb in VERBS),
            *((verb, True) for verb in ("update", "update columns", "update keys", "compact")),
        ],
        least=4,
        covers=False,
    ),
)
def test_a_job_does_what_is_done_in_one_process(
    spark: SparkSession, tmp_path: Path, verb: str, stable: bool, started: Started
):
    here, there = (made(str(tmp_path / f"{name}.lance"), stable=stable) for name in ("here", "there"))
    VERBS[verb](here, None)
    assert started.count() == 0
    VERBS[verb](there, spark)
    assert started.count() >= 2  # the work was shared out
    assert (rows(there.uri), len(manifests(there.uri))) == (rows(here.uri), len(manifests(here.uri)))
    if stable:
        assert lineage(there.uri) == lineage(here.uri)
    assert operation(there.uri, 8) == operation(here.uri, 8)
    fragments = [len(lance.dataset(table.uri).get_fragments()) for table in (here, there)]
    assert fragments[0] == fragments[1] or verb.startswith("update")  # each task writes its own


@pytest.mark.contract("S3")
def test_nothing_to_do_makes_no_version(spark: SparkSession, uri: str):
    table = made(uri)
    for done in (table.delete("id > 1000", spark=spark), table.update({"v": "0"}, "id > 1000", spark=spark)):
        assert done.version == 7
    assert table.compact(rows_per_fragment=5, spark=spark).version == 7
    empty = conroi.create_table(f"{uri}-2", ROWS.schema)
    assert empty.delete("true", spark=spark).update({"v": "1"}, spark=spark).compact(spark=spark).version == 1


# ------------------------------------------------------------------------------ what is refused


@pytest.mark.contract("S3")
def test_mistakes_are_errors_of_ours(spark: SparkSession, uri: str):
    table = made(uri)
    with pytest.raises(conroi.InvalidInputError, match="nothing"):
        table.delete("nothing = 1", spark=spark)
    with pytest.raises(conroi.InvalidInputError, match="pyarrow expression"):
        table.delete(pc.field("id") > 3, spark=spark)
    with pytest.raises(conroi.InvalidInputError, match="CAST"):
        table.update({"v": "name"}, spark=spark)
    with pytest.raises(conroi.DuplicateKeyError, match="more than once: 7"):
        table.update({"id": "7"}, spark=spark)
    with pytest.raises(conroi.DuplicateKeyError, match="already: 50"):
        table.update({"id": "50"}, "id = 7", spark=spark)
    with pytest.raises(conroi.InvalidInputError, match="ZeroDivisionError"):
        table.add_columns(lambda batch: 1 / 0, spark=spark)  # pyright: ignore[reportArgumentType]
    with pytest.raises(conroi.InvalidInputError, match="as many as it was given"):
        table.add_columns(lambda batch: tripled(batch).slice(1), spark=spark)
    with pytest.raises(conroi.InvalidInputError, match="already"):
        table.add_columns({"v": "1"}, spark=spark)
    with pytest.raises(conroi.InvalidInputError, match="Sorting"):
        table.compact("id", spark=spark)
    assert len(manifests(uri)) == 7


# ------------------------------------------------------------------------------ concurrent commits


class ConcurrentCommit:
    """Does something once, between a job and its commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
        run = fragment_jobs.FragmentJobs.run
        self.is_done = False

        def hooked(*arguments: Any) -> list[Answer]:
            answers = run(*arguments)
            if not self.is_done and not isinstance(arguments[2], fragment_jobs.SchemaTask):
                self.is_done = True
                work()
            return answers

        for module in (fragment_jobs, fragment_jobs, fragment_jobs):
            monkeypatch.setattr(module.FragmentJobs, "run", hooked)


@pytest.mark.contract("S3")
@pytest.mark.parametrize("verb", ["delete", "update rows", "compact"])
def test_what_others_change_elsewhere_is_kept_and_no_task_runs_again(
    spark: SparkSession, uri: str, verb: str, monkeypatch: pytest.MonkeyPatch, started: Started
):
    """Of a compaction, also deletions in the very fragments that it rewrites: they are translated."""
    table = made(uri)

    def work() -> None:
        other = conroi.open_table(uri).append([{"id": 1000, "name": "other", "v": 0.0}])
        other.update({"name": "'other'"}, where="id = 2", mode="rows")
        other.delete("id = 3")

    ConcurrentCommit(monkeypatch, work)
    VERBS[verb](table, spark)
    assert started.count() == {"delete": 6, "update rows": 6, "compact": 2}[verb]
    found = {row["id"]: row for row in rows(uri)}
    assert (found[1000]["name"], found[2]["name"], 3 in found) == ("other", "other", False)
    left = [i for i in range(60) if i not in (3, 5, 25)]
    if verb == "delete":
        left = [i for i in left if i % 9 <= 4 and i != 10]
    assert sorted(found) == [*left, 1000]
    if verb == "update rows":
        assert [found[i]["v"] for i in (39, 41)] == [39 % 9, 41 % 9 * 2]


@pytest.mark.contract("S3", "T8")
def test_work_that_is_done_again_reads_only_what_changed(
    spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch, started: Started
):
    table = made(uri)
    ConcurrentCommit(monkeypatch, lambda: conroi.open_table(uri).update({"v": "1000"}, where="id = 12", mode="columns"))
    table.update({"v": "v + 1"}, mode="rows", spark=spark)
    assert started.count() == FRAGMENTS + 1
    found = {row["id"]: row["v"] for row in rows(uri)}
    assert (found[12], found[13], found[59], len(found)) == (1001, 13 % 9 + 1, 59 % 9 + 1, 58)


@pytest.mark.contract("S3")
def test_new_columns_are_computed_for_concurrent_rows(
    spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch, started: Started
):
    table = made(uri)
    ConcurrentCommit(monkeypatch, lambda: conroi.open_table(uri).append([{"id": 1000, "name": "other", "v": 5.0}]))
    table.add_columns(tripled, spark=spark)
    found = {row["id"]: row["triple"] for row in rows(uri)}
    assert (found[1000], found[13], len(found)) == (15.0, 12.0, 59)
    assert started.count() == 1 + FRAGMENTS + 1  # the types, the fragments, and the one that came


# ------------------------------------------------------------------------------ failing tasks


@pytest.mark.contract("S3")
@pytest.mark.parametrize("kill", [False, True], ids=["raises", "killed"])
@pytest.mark.parametrize("verb", ["update rows", "compact"])
def test_a_task_that_fails_after_its_work_lands_once(
    spark: SparkSession, uri: str, verb: str, kill: bool, started: Started
):
    table = made(uri)
    expected = made(f"{uri}-2")
    VERBS[verb](expected, None)
    started.spoil = (1, kill)
    VERBS[verb](table, spark)
    assert (rows(uri), len(manifests(uri))) == (rows(expected.uri), 8)
    assert len(os.listdir(Path(uri) / "data")) > len(lance.dataset(uri).get_fragments())  # what no manifest names


@pytest.mark.contract("S3")
@pytest.mark.parametrize("verb", ["update", "compact"])
def test_a_job_that_fails_leaves_nothing_visible(spark: SparkSession, uri: str, verb: str, started: Started):
    table = made(uri)
    before = rows(uri)
    started.spoil = (99, False)
    with pytest.raises(PySparkException, match="spoiled by the test"):
        VERBS[verb](table, spark)
    assert (len(manifests(uri)), rows(uri)) == (7, before)


# ------------------------------------------------------------------------------ transactions, progress


@pytest.mark.contract("S4")
def test_a_transaction_mixes_jobs_and_work_done_here(spark: SparkSession, tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("orders", ROWS, key="id")
    lake.create_table("notes", ROWS.slice(0, 3))
    with lake.begin() as tx:
        tx["orders"].append(numbers(spark, 100, 104).selectExpr("id", "name", "1D AS v"))
        tx["orders"].update({"v": "v + 1"}, "id >= 50", spark=spark)  # its own new rows too
        tx["orders"].delete("id < 50", spark=spark)
        tx["orders"].update({"name": "'here'"}, "id = 55")
        tx["notes"].delete("id = 1", spark=spark)
        tx["notes"].add_columns(tripled, spark=spark)
    assert tx.result.tables == {"orders": 2, "notes": 2}
    found = {row["id"]: row for row in rows(lake["orders"].uri)}
    assert sorted(found) == [*range(50, 60), *range(100, 104)]
    assert (found[55]["name"], found[55]["v"], found[103]["v"]) == ("here", 55 % 9 + 1, 2.0)
    assert [row["triple"] for row in rows(lake["notes"].uri)] == [0.0, 6.0]


def test_progress_is_told_as_the_tasks_end(spark: SparkSession, uri: str):
    told: list[int] = []
    table = made(uri)
    table.compact(rows_per_fragment=20, spark=spark, progress=told.append)
    assert told == [30, 60]
    del told[:]
    table.add_columns(tripled, spark=spark, progress=told.append)
    assert (len(told), told[-1]) == (len(lance.dataset(uri).get_fragments()), 58)


def test_a_bar_is_drawn_on_a_terminal(spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch):
    from io import StringIO

    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    made(uri).compact(rows_per_fragment=20, spark=spark)
    assert "compact" in screen.getvalue()
    assert "100%" in screen.getvalue()
