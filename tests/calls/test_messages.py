"""Messages that name the table as users do, the author, and what helps in that place."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import conroi


@pytest.fixture
def lake(tmp_path: Path) -> conroi.Lake:
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"id": i, "v": "a"} for i in range(5)], key="id")
    return lake


def lose(lake: conroi.Lake, tx: conroi.Transaction, number: int) -> None:
    """Change a row that another writer changes before the commit."""
    tx["t"].update({"v": "'mine'"}, where="id = 1")
    with conroi.connect(lake.uri).begin(f"forget {number}", author="gdpr") as other:
        other["t"].update({"v": "'theirs'"}, where="id = 1")


@pytest.mark.contract("U4", "U8")
def test_a_conflict_names_author_message_table_and_what_runs_it_again(lake: conroi.Lake):
    with pytest.raises(conroi.RetryableConflict) as caught, lake.begin() as tx:
        lose(lake, tx, 1)
    assert caught.value.table == "t"
    for part in ("of the table", "“forget 1”", "by gdpr", "lake.run(work)"):
        assert part in str(caught.value)


@pytest.mark.contract("U8")
def test_lake_run_logs_retries_and_counts_them(lake: conroi.Lake, caplog: pytest.LogCaptureFixture):
    done: list[int] = []

    def work(tx: conroi.Transaction) -> None:
        done.append(1)
        lose(lake, tx, len(done))

    with caplog.at_level(logging.INFO, "conroi.lake"), pytest.raises(conroi.ConflictError, match="3 times"):
        lake.run(work, retries=2)
    assert next(text for text in caplog.messages if "attempt" in text).startswith("lake.run: attempt 1 lost")


@pytest.mark.contract("U4")
def test_errors_of_lake_tables_carry_the_name(lake: conroi.Lake):
    for call in (
        lambda: lake["t"].to_arrow(["nope"]),
        lambda: lake["t"].delete("nope = 1"),
        lambda: lake["t"].merge([{"id": 1, "new": 2}], on="id").when_matched_update_all().execute(),
        lambda: lake["t"].tags.get("nope"),
    ):
        with pytest.raises(conroi.ConroiError) as caught:
            call()
        assert caught.value.table == "t"


def _vectors(lake: conroi.Lake) -> conroi.Table:
    fixed = pa.array([[float(i)] * 16 for i in range(300)], pa.list_(pa.float32(), 16))
    return lake.create_table("v", pa.table({"v": fixed, "d": pa.array([[float(i)] * 16 for i in range(300)])}))


def _only_nulls(lake: conroi.Lake) -> conroi.Table:
    return lake.create_table("n", [{"id": 1, "x": None}]).append([{"id": 2, "x": "text"}])


def _new_column(lake: conroi.Lake) -> object:
    return lake["t"].merge([{"id": 1, "v": "a", "new": 1}], on="id").when_matched_update_all().execute()


PLACES: dict[str, tuple[Callable[[conroi.Lake], object], str]] = {
    "text without quotes": (lambda lake: lake["t"].update({"v": "hello"}), "\"'hello'\""),
    "filter without quotes": (lambda lake: lake["t"].delete("v = hello"), "\"'hello'\""),
    "a table of later": (lambda lake: lake.at(1)["t"], "The lake has it at version 2"),
    "a table that never was, in the past": (lambda lake: lake.at(1)["x"], "It had no table then"),
    "a lake before its time": (lambda lake: lake.at(as_of="2020-01-01"), "The lake has no version that old"),
    "a version that is not there": (lambda lake: lake.at(99), "lake.history()"),
    "a tag of the lake": (lambda lake: lake.at(tag="x"), "lake.tags lists"),
    "a tag of the lake to delete": (lambda lake: lake.tags.delete("x"), "lake.tags lists"),
    "a version of the lake to tag": (lambda lake: lake.tags.create("x", version=99), "lake.history()"),
    "a tag of a table": (lambda lake: lake["t"].at(tag="x"), "table.tags lists"),
    "a table twice": (lambda lake: lake.create_table("t", [{"id": 1}]), "lake[name]"),
    "a column of nulls": (_only_nulls, "alter_columns({'x': {\"type\": pa.string()}})"),
    "a merge with a new column": (_new_column, "evolve_schema=True in append() and merge()"),
    "an index without its options": (lambda lake: _vectors(lake).create_index("v", "IVF_PQ"), "options={"),
    "lists of any length": (
        lambda lake: _vectors(lake).create_index("d", "IVF_PQ", options={"num_partitions": 1, "num_sub_vectors": 2}),
        'alter_columns({"vec": {"type": pa.list_(pa.float32(), 16)}})',
    ),
    "a host that is not there": (
        lambda lake: conroi.export.clickhouse(lake["t"], "clickhouse://nowhere.invalid:8123/d/t"),
        "Name or service not known",
    ),
    "a query with a wrong word": (lambda lake: lake.query("selec * from t"), 'near "selec"'),
}


@pytest.mark.contract("U12")
@pytest.mark.parametrize("place", PLACES)
def test_a_message_says_what_helps_in_that_place(place: str, lake: conroi.Lake):
    """H: hints named calls that are not there, or that do not help."""
    work, helps = PLACES[place]
    with pytest.raises(conroi.ConroiError) as caught:
        work(lake)
    assert helps in str(caught.value)
    assert "__manifest" not in str(caught.value)
