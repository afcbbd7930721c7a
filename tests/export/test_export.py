"""Rows of a table or query in ClickHouse: what is made there, what is matched, and what is refused."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import conroi
from conroi import export
from conroi.export.clickhouse_engine import parse
from tests.export.queries import ask, rows
from tests.support.clickhouse import ClickHouseServer
from tests.support.insert_workers import end, hear, start

NewTarget = Callable[[str], str]


def test_a_table_is_made_and_the_next_export_is_appended_by_name(local: conroi.Lake, new_target: NewTarget) -> None:
    target = new_target("orders")
    first = export.clickhouse(local["orders"], target)
    second = export.clickhouse(pa.table({"name": ["z"], "id": [9]}), target, lake=local)
    assert (first.rows, second.rows, second.first) == (3, 1, first.next)
    assert rows(target) == [["1", "a", "1"], ["2", None, "2"], ["3", "c", "3"], ["9", "z", "4"]]


def test_many_sources_are_one_run(local: conroi.Lake, new_target: NewTarget) -> None:
    target = new_target("orders")
    more = pa.table({"name": ["d", "e"], "id": [4, 5]})
    done = export.clickhouse([local["orders"], more, more.slice(1)], target)
    assert done.rows == 6
    assert rows(target, "id, conroi_row") == [[n, str(i + 1)] for i, n in enumerate("123455")]


def test_a_table_of_others_gets_its_columns_and_keeps_its_rows(local: conroi.Lake, new_target: NewTarget) -> None:
    target = new_target("theirs")
    ask(
        target,
        "CREATE TABLE … (id Int64, name Nullable(String), note String DEFAULT 'none') ENGINE = MergeTree ORDER BY id",
    )
    ask(target, "INSERT INTO … (id) VALUES (100)")
    export.clickhouse(local["orders"], target, create=False)
    assert rows(target, "id, note, conroi_row") == [
        ["100", "none", "0"],
        ["1", "none", "1"],
        ["2", "none", "2"],
        ["3", "none", "3"],
    ]


def test_what_does_not_fit_is_refused_and_nothing_is_exported(local: conroi.Lake, new_target: NewTarget) -> None:
    target = new_target("orders")
    with pytest.raises(conroi.NotFoundError, match="no table"):
        export.clickhouse(local["orders"], target, create=False)
    export.clickhouse(local["orders"], target)
    for wrong in (pa.table({"unknown": [1]}), pa.table({"conroi_row": [1]})):
        with pytest.raises(conroi.InvalidInputError, match="has no column"):
            export.clickhouse(wrong, target, lake=local)
    with pytest.raises(conroi.InvalidInputError, match="different columns"):
        export.clickhouse([local["orders"], pa.table({"id": [1]})], target)
    with pytest.raises(conroi.InvalidInputError, match="nothing to export"):
        export.clickhouse([], target, lake=local)
    assert len(rows(target)) == 3


def test_no_rows_are_no_mistake(local: conroi.Lake, new_target: NewTarget) -> None:
    target = new_target("orders")
    for _ in range(2):
        assert export.clickhouse(local["orders"].to_arrow(filter="id > 9"), target, lake=local).rows == 0
    assert export.clickhouse(local["orders"], target).first == 1
    assert len(rows(target)) == 3


def test_options_that_mean_nothing_are_refused(local: conroi.Lake) -> None:
    for wrong in ({"wait_s": -1}, {"remains": "eat"}):
        with pytest.raises(conroi.InvalidInputError, match=next(iter(wrong))):
            export.clickhouse(local["orders"], "http://127.0.0.1:1/d/t", **wrong)  # type: ignore[arg-type]


@pytest.mark.contract("L5")
def test_a_source_that_fails_leaves_no_row_and_the_next_export_goes_on(
    local: conroi.Lake, new_target: NewTarget
) -> None:
    target = new_target("orders")

    def batches() -> Iterator[pa.RecordBatch]:
        yield from local["orders"].to_batches()
        raise OSError("the source broke")

    with pytest.raises(OSError, match="the source broke"):
        export.clickhouse(pa.RecordBatchReader.from_batches(local["orders"].schema, batches()), target, lake=local)
    assert rows(target) == []
    done = export.clickhouse(local["orders"], target)
    assert rows(target, "conroi_row") == [[str(number)] for number in range(done.first, done.next)]


def test_a_query_can_be_anything_with_an_arrow_stream(local: conroi.Lake, new_target: NewTarget) -> None:
    import duckdb

    orders = local["orders"].to_arrow()
    query = duckdb.sql("SELECT id * 10 AS id, name FROM orders WHERE id > 1")
    export.clickhouse(query, new_target("orders"), lake=local)
    assert rows(new_target("orders"), "id, name") == [["20", None], ["30", "c"]]
    assert orders.num_rows == 3


@pytest.mark.parametrize("new_target", ["chdb"], indirect=True)
def test_types_go_there_and_come_back(local: conroi.Lake, new_target: NewTarget) -> None:
    noon = datetime.datetime(2026, 11, 16, 12, 0, 0, 123456, datetime.UTC)
    values = {
        "small": pa.array([-1], pa.int8()),
        "big": pa.array([2**64 - 1], pa.uint64()),
        "half": pa.array([0.5], pa.float32()),
        "flag": pa.array([True]),
        "day": pa.array([noon.date()]),
        "at": pa.array([noon], pa.timestamp("us", "UTC")),
        "price": pa.array([Decimal("12.34")], pa.decimal128(10, 2)),
        "bytes": pa.array([b"xyz"]),
        "vector": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)),
        "kind": pa.array(["a"]).dictionary_encode(),
        "pair": pa.array([{"x": 1, "y": "b"}]),
    }
    target = new_target("types")
    export.clickhouse(pa.table(values), target)
    assert ask(target, "SELECT * EXCEPT (conroi_row, big), toString(big) FROM …") == [
        [
            -1,
            0.5,
            True,
            "2026-11-16",
            "2026-11-16 12:00:00.123456",
            12.34,
            "xyz",
            [1, 2],
            "a",
            {"x": 1, "y": "b"},
            "18446744073709551615",
        ]
    ]
    with pytest.raises(conroi.UnsupportedError, match="duration"):
        export.clickhouse(pa.table({"took": pa.array([1], pa.duration("s"))}), new_target("others"))


def test_a_new_table_can_be_sorted_by_columns(local: conroi.Lake, new_target: NewTarget) -> None:
    target = new_target("orders")
    table = local["orders"].to_arrow(filter="name IS NOT NULL")
    export.clickhouse(table, target, order_by="name", lake=local)
    database, name = parse(target).database, parse(target).table
    said = ask(target, f"SELECT sorting_key FROM system.tables WHERE database = '{database}' AND name = '{name}'")
    assert said == [["name, conroi_row"]]


def test_half_an_insert_is_not_exported(local: conroi.Lake, new_target: NewTarget) -> None:
    target, seen = new_target("orders"), list[int]()

    def batches() -> Iterator[pa.RecordBatch]:
        for number in (10, 11, 12):
            if number == 12:
                seen.append(local["orders"].count_rows())
                export.clickhouse(local["orders"], target)
            yield pa.RecordBatch.from_pylist([{"id": number, "name": None}], schema=local["orders"].schema)

    source = pa.RecordBatchReader.from_batches(local["orders"].schema, batches())
    local.insert("orders", source, chunk_rows=1)
    assert seen[0] > 3
    assert rows(target, "id") == [["1"], ["2"], ["3"]]


# ---------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "orders",
        "ftp://host/d/t",
        "http://host/table",
        "http:///d/t",
        "chdb:///d/t",
        "chdb://host/f/d/t/",
        "http://u:secret@host:port/d/t",
    ],
)
def test_addresses_that_cannot_be_read_are_refused_without_being_shown(wrong: str) -> None:
    with pytest.raises(conroi.InvalidInputError, match="cannot be read") as caught:
        export.clickhouse(pa.table({"id": [1]}), wrong)
    assert "secret" not in str(caught.value)


def test_no_password_is_shown(local: conroi.Lake) -> None:
    target = parse("http://user:secret@127.0.0.1:1/d/t?max_insert_block_size=5")
    assert "secret" not in repr(target) + str(target)
    assert (target.password, target.settings) == ("secret", {"max_insert_block_size": "5"})
    with pytest.raises(conroi.StoreUnavailable) as caught:
        export.clickhouse(local["orders"], "http://user:secret@127.0.0.1:1/d/t")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_wrong_password_is_said(local: conroi.Lake, server: ClickHouseServer) -> None:
    at = parse(server.new_target())
    with pytest.raises(conroi.StoreError, match=r"assword"):
        export.clickhouse(local["orders"], f"http://default:wrong@{at.host}:{at.port}/d/t")


def test_a_folder_that_another_process_has_open_is_said(local: conroi.Lake, tmp_path: Path) -> None:
    other = start(
        "import chdb, sys; c = chdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()", tmp_path
    )
    try:
        assert hear(other) == "open"
        with pytest.raises(conroi.StoreUnavailable, match="could not open"):
            export.clickhouse(local["orders"], f"chdb://{tmp_path}/d/t")
    finally:
        end(other)


@pytest.mark.contract("U5")
@pytest.mark.parametrize(
    "zone",
    ["UTC'), x String DEFAULT ('", "Europe/Berlin'); DROP TABLE orders; --", "\\'", "Nowhere/Town", "+02:00"],
)
def test_the_name_of_a_time_zone_is_not_sql(local: conroi.Lake, new_target: NewTarget, zone: str) -> None:
    """D5: the name went into the CREATE TABLE as it stood."""
    target = new_target("zoned")
    column = pa.array([0], pa.int64()).view(pa.timestamp("us", zone))
    with pytest.raises(conroi.UnsupportedError, match=r"time zone|has none for"):  # old servers have no such type
        export.clickhouse(pa.table({"at": column}), target, lake=local)
    assert ask(target, f"SELECT name FROM system.tables WHERE name = '{parse(target).table}'") == []


@pytest.mark.contract("U5")
def test_names_of_columns_are_not_sql(local: conroi.Lake, new_target: NewTarget) -> None:
    names = ["a`b", "a'b", "a\\b", "a\\`b", "a b", "x) ENGINE = Null --", "größe", '"']
    target = new_target("names")
    export.clickhouse(pa.table({name: [1] for name in names}), target, lake=local)
    made = ask(target, f"SELECT name FROM system.columns WHERE table = '{parse(target).table}'")
    assert {str(row[0]) for row in made} == {*names, "conroi_row", "conroi_lock"}
