"""Update: rows written anew, or only the changed columns; the same outcome."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
import pytest

import conroi
from conroi import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.snapshots.snapshot import load_transaction
from tests.support.refusals import refused

Mode = Literal["auto", "rows", "columns"]
MODES: tuple[Mode, ...] = ("auto", "rows", "columns")


@pytest.fixture(params=[False, True], ids=["addresses", "stable row ids"])
def table(request: pytest.FixtureRequest, uri: str) -> conroi.Table:
    """Two fragments of five rows; one row of the first is deleted. `wide` makes rewriting whole rows dear."""
    made = conroi.create_table(uri, data(0, 5), stable_row_ids=request.param)
    return made.append(data(5, 10)).delete("id = 3")


def data(first: int, after: int) -> pa.Table:
    numbers = range(first, after)
    return pa.table({"id": numbers, "v": [10 * n for n in numbers], "wide": [[float(n)] * 64 for n in numbers]})


def values(table: conroi.Table) -> dict[int, int]:
    rows = table.to_arrow(["id", "v"]).to_pylist()
    return {row["id"]: row["v"] for row in rows}


def mode_of(table: conroi.Table) -> str:
    """How the newest version was made."""
    transaction = load_transaction(table._files.objects, table._pinned.snapshot)
    assert transaction is not None
    is_columns = transaction.wire.update.update_mode == pb.Transaction.Update.REWRITE_COLUMNS
    return "columns" if is_columns else "rows"


@pytest.mark.contract("T5")
@pytest.mark.parametrize("mode", MODES)
def test_all_modes_give_the_same_rows(mode: Mode, table: conroi.Table) -> None:
    updated = table.update({"v": "v + id"}, where="id >= 4", mode=mode)
    assert values(updated) == {0: 0, 1: 10, 2: 20, 4: 44, 5: 55, 6: 66, 7: 77, 8: 88, 9: 99}
    assert updated.count_rows() == 9
    assert updated.version == table.version + 1


@pytest.mark.contract("T5")
@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_the_caller_can_force_a_mode(mode: Mode, table: conroi.Table) -> None:
    assert mode_of(table.update({"v": "0"}, where="id = 0", mode=mode)) == mode
    assert mode_of(table.update({"v": "1"}, mode=mode)) == mode


@pytest.mark.contract("T5")
def test_the_cheaper_mode_is_taken(table: conroi.Table) -> None:
    assert mode_of(table.update({"v": "0"})) == "columns"  # a narrow column of all rows
    assert mode_of(table.update({"v": "1"}, where="id = 0")) == "columns"  # still 40 bytes against 520
    assert mode_of(table.update({"v": "2", "wide": "wide"}, where="id = 0")) == "rows"


@pytest.mark.parametrize("mode", MODES)
def test_updating_nothing_makes_no_version(mode: Mode, table: conroi.Table) -> None:
    assert table.update({"v": "1"}, where="id = 99", mode=mode).version == table.version
    assert table.update({"v": "1"}, where="id = 3", mode=mode).version == table.version  # deleted


@pytest.mark.parametrize("mode", MODES)
def test_an_expression_that_fails_on_rows_that_do_not_match_does_no_harm(mode: Mode, table: conroi.Table) -> None:
    updated = table.update({"v": "100 / id"}, where="id > 0", mode=mode)
    assert values(updated) == {0: 0, 1: 100, 2: 50, 4: 25, 5: 20, 6: 16, 7: 14, 8: 12, 9: 11}


@pytest.mark.parametrize("mode", MODES)
def test_an_expression_that_fails_on_rows_that_match_changes_nothing(mode: Mode, table: conroi.Table) -> None:
    with refused(table, InvalidInputError, "zero"):
        table.update({"v": "100 / id"}, mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_an_expression_that_fails_on_a_deleted_row_does_no_harm(mode: Mode, table: conroi.Table) -> None:
    assert values(table.update({"v": "100 / (id - 3)"}, where="id < 5", mode=mode))[4] == 100


@pytest.mark.parametrize("mode", MODES)
def test_values_are_computed_from_the_rows_before(mode: Mode, uri: str) -> None:
    table = conroi.create_table(uri, pa.table({"a": [1, 2], "b": [10, 20], "c": ["x", "y"]}))
    swapped = table.update({"a": "b", "b": "a"}, mode=mode)
    assert swapped.to_arrow().to_pylist() == [{"a": 10, "b": 1, "c": "x"}, {"a": 20, "b": 2, "c": "y"}]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("given", "stored"), [("'text'", "text"), (None, None), ("NULL", None), ("upper(s)", "A"), ("'it''s'", "it's")]
)
def test_expressions_and_plain_values(given: object, stored: object, mode: Mode, uri: str) -> None:
    table = conroi.create_table(uri, pa.table({"s": ["a"], "n": [1]}))
    assert table.update({"s": given}, mode=mode).to_arrow()["s"].to_pylist() == [stored]


@pytest.mark.parametrize(("given", "stored"), [(7, 7.0), (2.5, 2.5), (True, None), ("f * 2", 3.0)])
def test_numbers_stand_for_themselves(given: object, stored: float | None, uri: str) -> None:
    table = conroi.create_table(uri, pa.table({"f": [1.5]}))
    if stored is None:
        with refused(table, InvalidInputError):
            table.update({"f": given})
    else:
        assert table.update({"f": given}).to_arrow()["f"].to_pylist() == [stored]


def test_rows_keep_their_ids_where_ids_are_stable(table: conroi.Table) -> None:
    if not table.has_stable_row_ids:
        assert "_rowid" in table.to_arrow(["id"], with_row_id=True).column_names
        return

    def row_ids(of: conroi.Table) -> dict[int, int]:
        rows = of.to_arrow(["id"], with_row_id=True).to_pylist()
        return {row["id"]: row["_rowid"] for row in rows}

    updated = table.update({"v": "0"}, where="id > 5", mode="rows").update({"v": "1"}, mode="columns")
    assert row_ids(updated) == row_ids(table)
