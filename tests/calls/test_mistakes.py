"""Mistakes that new users make: each is refused where it would lose or change data, and the message says what helps."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import conroi
from conroi.export.clickhouse_engine import parse
from conroi.versions.retention import other_ages

ROWS = [{"id": 1, "First Name": "A"}, {"id": 2, "First Name": "B"}]


@pytest.fixture
def lake(tmp_path: Path) -> conroi.Lake:
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", ROWS, key="id")
    return lake


@pytest.mark.contract("U13")
@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.delete("\"First Name\" != 'A'"),
        lambda t: t.update({"id": "7"}, where='"id" = 1'),
        lambda t: t.update({"First Name": '"id"'}),
        lambda t: t.count_rows('"id" = 1'),
        lambda t: t.to_arrow(filter='"id" = 1'),
        lambda t: t.overwrite(ROWS, where='"id" > 0'),
    ],
)
def test_a_column_in_double_quotes_is_refused(lake: conroi.Lake, call: Callable[[conroi.Table], object]) -> None:
    """Lance takes it for a text, so the condition held for every row, and all were deleted."""
    with pytest.raises(conroi.InvalidInputError, match="double quotes") as refused:
        call(lake["t"])
    assert "`" in (refused.value.hint or "")
    assert (lake.version, lake["t"].to_arrow().to_pylist()) == (2, ROWS)


def test_double_quotes_inside_a_text_or_a_name_are_what_they_are(lake: conroi.Lake) -> None:
    assert lake["t"].count_rows("""`First Name` = 'A' AND '"id"' = '"id"' AND id::int = 1""") == 1


@pytest.mark.contract("U13")
@pytest.mark.parametrize(
    "call", [lambda t: t.delete("id = :id"), lambda t: t.count_rows("id IN :ids"), lambda t: t.update({"id": ":id"})]
)
def test_a_parameter_without_params_is_refused(lake: conroi.Lake, call: Callable[[conroi.Table], object]) -> None:
    with pytest.raises(conroi.InvalidInputError, match="has no value") as refused:
        call(lake["t"])
    assert "params=" in (refused.value.hint or "")


@pytest.mark.contract("U13")
@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.delete("id = 1"),
        lambda t: t.append([{"id": 9}]),
        lambda t: t.merge([{"id": 9}], on="id").when_not_matched_insert_all().execute(),
        lambda t: t.begin(),
        lambda t: t.set_config({"a": "b"}),
        lambda t: t.restore(1),
    ],
)
def test_a_table_of_a_past_lake_can_only_be_read(lake: conroi.Lake, write: Callable[[conroi.Table], object]) -> None:
    """It wrote to the table as it is today."""
    past = lake.at(2)["t"]
    lake["t"].append([{"id": 3}])
    with pytest.raises(conroi.InvalidInputError, match="can only be read"):
        write(past)
    assert (past.count_rows(), lake["t"].count_rows(), lake.version) == (2, 3, 3)
    assert past.latest().delete("id = 3").count_rows() == 2


@pytest.mark.contract("U13")
def test_an_index_with_a_name_is_a_column(lake: conroi.Lake) -> None:
    frame = pd.DataFrame({"customer": ["a", "b", "a"], "n": [1, 2, 3]})
    totals = lake.create_table("totals", frame.groupby("customer").sum())
    assert totals.to_arrow().to_pylist() == [{"customer": "a", "n": 4}, {"customer": "b", "n": 2}]
    some = lake.create_table("some", frame[frame["n"] > 1])
    assert some.schema.names == ["customer", "n"]


def test_categories_of_polars_are_written(lake: conroi.Lake) -> None:
    frame = pl.DataFrame({"id": [5, 6], "name": ["c", None]}).with_columns(pl.col("name").cast(pl.Categorical))
    rows = [{"id": 5, "name": "c"}, {"id": 6, "name": None}]
    assert lake.create_table("new", frame).to_arrow().to_pylist() == rows
    lake.create_table("texts", [{"id": 1, "name": "x"}])
    assert lake["texts"].append(frame).to_arrow().to_pylist()[1:] == rows


@pytest.mark.contract("E7")
def test_a_table_that_may_exist_has_all_columns_of_the_data(lake: conroi.Lake) -> None:
    assert lake.create_table("t", [{"id": 1}], key="id", exist_ok=True).count_rows() == 2
    for data in ([{"id": 1, "other": 1}], pl.DataFrame({"other": [1]}), pd.DataFrame({"other": [1]})):
        with pytest.raises(conroi.AlreadyExistsError, match="with other columns"):
            lake.create_table("t", data, exist_ok=True)


def test_a_file_is_no_lake(tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("x")
    with pytest.raises(conroi.InvalidInputError, match="is a file, not a folder"):
        conroi.connect(tmp_path / "file.txt")


def test_an_endpoint_without_a_scheme_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before Lance sees it: there it is a panic, which `except Exception` does not catch."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with pytest.raises(conroi.InvalidInputError, match="aws_endpoint does not begin with http"):
        conroi.connect("s3://bucket/lake", storage_options={"aws_endpoint": "127.0.0.1:9"})
    monkeypatch.setenv("AWS_ENDPOINT_URL", "127.0.0.1:9")
    with pytest.raises(conroi.InvalidInputError, match="AWS_ENDPOINT_URL does not begin with http"):
        conroi.connect("s3://bucket/lake")


def test_hints_name_what_helps(lake: conroi.Lake) -> None:
    table = lake["t"]
    with pytest.raises(conroi.InvalidInputError) as refused:
        table.update({"First Name": "Ada Lovelace"})
    assert "conroi.literal(" in (refused.value.hint or "")
    table.add_columns({"country": "'DE'"})
    with pytest.raises(conroi.InvalidInputError) as refused:
        table.append([{"id": 3, "First Name": "C"}])
    assert '"nullable": True' in (refused.value.hint or "")


def test_a_merge_says_that_it_was_not_executed(lake: conroi.Lake) -> None:
    shown = repr(lake["t"].merge([{"id": 1}], on="id").when_matched_update_all())
    assert "on=['id'], matched: update; not executed yet" in shown


def test_a_commit_lock_that_is_no_context_manager_is_named(tmp_path: Path) -> None:
    def no_lock(version: int) -> None: ...

    path = tmp_path / "t.lance"
    with pytest.raises(conroi.InvalidInputError, match=r"commit_lock\(1\) returned NoneType"):
        conroi.create_table(path, ROWS, commit_lock=no_lock)  # pyright: ignore[reportArgumentType]
    assert conroi.create_table(path, ROWS, commit_lock=lambda version: threading.Lock()).count_rows() == 2


def test_a_branch_of_a_lake_that_does_not_exist_creates_no_lake(tmp_path: Path) -> None:
    with pytest.raises(conroi.NotFoundError):
        conroi.connect(tmp_path / "new", branch="dev")
    assert list(tmp_path.iterdir()) == []
    assert conroi.connect(tmp_path / "new", branch="main").branch_name == "main"


def test_values_nested_too_deeply_to_print_are_refused(lake: conroi.Lake) -> None:
    deep: list[object] = []
    for _ in range(3_000):
        deep = [deep]
    with pytest.raises(conroi.InvalidInputError):
        lake["t"].add_columns(deep)  # pyright: ignore[reportArgumentType]
    lake.branches.create("dev")
    with pytest.raises(conroi.InvalidInputError):
        lake.merge("dev", prefer=deep)  # pyright: ignore[reportArgumentType]


def _breaking() -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"id": [1]})
    raise ZeroDivisionError


def _broken() -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), _breaking())


@pytest.mark.parametrize(
    "write",
    [
        lambda lake: lake.create_table("new", _broken()),
        lambda lake: lake.write("new", _broken()),
    ],
    ids=["create_table", "write"],
)
def test_a_stream_that_breaks_creates_no_table(lake: conroi.Lake, write: Callable[[conroi.Lake], object]) -> None:
    """What was written for it is no table, does not stop the next one, and is collected."""
    version = lake.version
    with pytest.raises(ZeroDivisionError):
        write(lake)
    assert ("new" in lake, lake.version) == (False, version)
    assert lake.write("new", pa.table({"id": [1, 2]})).count_rows() == 2
    with other_ages(0, 0):
        lake.gc(min_age=dt.timedelta(0), dry_run=False)
    folders = {path.relative_to(lake.uri).parts[0] for path in Path(lake.uri).rglob("_conroi/created")}
    assert folders == {lake[name].uri.rpartition("/")[2] for name in ("t", "new")}


def test_a_stream_that_breaks_leaves_no_row_in_clickhouse(chdb_folder: Path) -> None:
    target = f"chdb://{chdb_folder}/broken/t"
    with pytest.raises(ZeroDivisionError):
        conroi.export.clickhouse(_broken(), target)
    with contextlib.closing(parse(target).engine()) as engine:
        assert engine.ask("SELECT * FROM broken.t") == []
    assert conroi.export.clickhouse(pa.table({"id": [7]}), target).rows == 1


@pytest.mark.parametrize("size", [0, -1, 2**63])
def test_a_number_of_rows_that_no_insert_has_is_refused_before_a_table_is_made(lake: conroi.Lake, size: int) -> None:
    with pytest.raises(conroi.InvalidInputError, match="not a number of rows"):
        lake.write("fresh", ROWS, chunk_rows=size)
    assert "fresh" not in lake


def test_an_export_that_cannot_be_sorted_creates_nothing(tmp_path: Path) -> None:
    target = f"chdb://{tmp_path}/clickhouse/db/t"
    with pytest.raises(conroi.InvalidInputError, match="order_by names 'other'"):
        conroi.export.clickhouse(pa.table({"id": [7]}), target, order_by="other")
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    with pytest.raises(conroi.InvalidInputError, match="id appears twice"):
        conroi.export.clickhouse(twice, target)
    assert not (tmp_path / "clickhouse").exists()
