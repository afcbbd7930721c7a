"""A transaction on one table alone: `table.begin()`, with or without a lake."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Any, cast

import lance
import pytest

import conroi
from tests.support.instruments import interrupted
from tests.support.refusals import assert_helpful
from tests.transaction.folded import sorted_rows
from tests.transaction.model import FIRST, SCHEMA, SECOND, Model, apply, row_of


@pytest.fixture(params=["alone", "in a lake"])
def table(request: pytest.FixtureRequest, uri: str) -> conroi.Table:
    """A table at version 2."""
    import pyarrow as pa

    rows = pa.Table.from_pylist([row_of(i) for i in FIRST], schema=SCHEMA)
    if request.param == "alone":
        made = conroi.create_table(uri, rows, key="id")
    else:
        made = conroi.connect(uri).create_table("t", rows, key="id")
    return made.append([row_of(i) for i in SECOND])


@pytest.mark.contract("W6", "W12")
@pytest.mark.parametrize("names", list(itertools.permutations(("append", "delete", "update", "merge"), 3)))
def test_changes_of_rows_become_one_version(table: conroi.Table, names: tuple[str, ...]):
    model = Model.base()
    with table.begin("several") as tx:
        apply(tx, model, names)
        assert sorted_rows(tx.to_arrow()) == model.listed()
        assert table.latest().version == 2
    assert tx.result.version == 3
    newest = table.latest()
    assert (newest.version, newest.history()[0].message) == (3, "several")
    assert sorted_rows(newest.to_arrow()) == model.listed()
    assert sorted_rows(lance.dataset(newest.uri).to_table()) == model.listed()


@pytest.mark.contract("W12")
@pytest.mark.parametrize(
    "second",
    [
        lambda t: t.set_config({"a": "b"}),
        lambda t: t.add_columns({"x": "id"}),
        lambda t: t.create_index("v"),
        lambda t: t.overwrite([row_of(1)]),
        lambda t: t.restore(1),
        lambda t: t.compact(),
        lambda t: t.update({"v": "0"}, mode="columns"),
    ],
)
def test_what_is_not_one_operation_is_refused_and_the_rest_can_be_committed(table: conroi.Table, second: Any):
    with table.begin() as tx:
        tx.append([row_of(7)])
        with pytest.raises(conroi.UnsupportedError) as caught:
            second(tx)
        assert_helpful(caught.value, conroi.UnsupportedError, "lake.begin()")
        assert tx.count_rows() == 7
    assert table.latest().count_rows() == 7
    assert table.latest().version == 3


@pytest.mark.contract("W12")
@pytest.mark.parametrize("name", ["add_columns", "config", "create_index", "overwrite", "restore"])
def test_one_statement_of_any_kind_is_fine(table: conroi.Table, name: str):
    model = Model.base()
    with table.begin() as tx:
        apply(tx, model, [name])
    assert sorted_rows(table.latest().to_arrow()) == model.listed()
    assert table.latest().version == 3


@pytest.mark.contract("W1", "W3")
def test_concurrent_commits_are_kept_and_not_seen(table: conroi.Table):
    with table.begin() as tx:
        tx.update({"v": "v + 1"}, where="id = 1")
        table.append([row_of(9)])
        table.delete("id = 6")
        assert tx.count_rows() == 6
        tx.append([row_of(7)])
    assert tx.result.rebased == (3, 4)
    rows = {row["id"]: row["v"] for row in table.latest().to_arrow().to_pylist()}
    assert rows == {1: 11, 2: 20, 3: 30, 4: 40, 5: 50, 7: 70, 9: 90}


@pytest.mark.contract("W3")
def test_the_same_rows_are_refused(table: conroi.Table):
    tx = table.begin()
    tx.append([row_of(7)])
    tx.update({"v": "v + 1"}, where="id = 1")
    table.delete("id = 1")
    with pytest.raises(conroi.RetryableConflict):
        tx.commit()
    assert table.latest().count_rows() == 5


@pytest.mark.contract("W3")
def test_strict_refuses_any_other_commit(table: conroi.Table):
    tx = table.begin(strict=True)
    tx.append([row_of(7)])
    table.append([row_of(8)])
    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        tx.commit()
    assert (caught.value.expected, caught.value.actual) == (2, 3)


@pytest.mark.contract("W8")
def test_after_its_end_it_cannot_be_used(table: conroi.Table):
    tx = table.begin()
    tx.append([row_of(7)])
    tx.commit()
    for use in (lambda: tx.append([row_of(8)]), lambda: tx.to_arrow(), lambda: tx.commit(), lambda: tx.rollback()):
        with pytest.raises(conroi.ClosedError) as caught:
            use()
        assert_helpful(caught.value, conroi.ClosedError, "table.begin()")


@pytest.mark.contract("W8")
def test_an_error_inside_leaves_nothing(table: conroi.Table):
    tx = table.begin()
    with contextlib.suppress(ZeroDivisionError), tx:
        tx.append([row_of(7)])
        _ = 1 / 0
    assert table.latest().version == 2
    with pytest.raises(conroi.ClosedError):
        _ = tx.result


def test_nothing_to_do_makes_no_version(table: conroi.Table):
    with table.begin() as tx:
        tx.delete("id = 99")
    assert tx.result.version == 2
    assert table.latest().version == 2


def test_a_lost_race_is_tried_again(tmp_path: Path):
    table = conroi.create_table(tmp_path / "t.lance", [{"id": 1}])
    raced = interrupted(table, lambda: table.append([{"id": 2}]), at="_versions/*.manifest", verb="put_if_absent")
    with raced.begin() as tx:
        tx.append([{"id": 3}])
        tx.append([{"id": 4}])
    assert (tx.result.version, tx.result.attempts, tx.result.rebased) == (3, 2, (2,))


def test_a_transaction_inside_a_transaction_is_refused(table: conroi.Table):
    with table.begin() as tx, pytest.raises(conroi.InvalidInputError) as caught:
        cast("Any", tx).begin()
    assert_helpful(caught.value, conroi.InvalidInputError)
