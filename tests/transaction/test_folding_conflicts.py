"""Several changes in one version, met by other writers: what they cannot see in it must not be lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.format.on_disk import FOLDED_PROPERTY
from tests.support.arrow import column_values

Stage = Callable[[Any], object]


@pytest.fixture
def lake(tmp_path: Path) -> conroi.Lake:
    lake = conroi.connect(tmp_path)
    lake.create_table("t", [{"id": i, "n": 10 * i} for i in range(6)])
    return lake


def fold(lake: conroi.Lake, *stages: Stage) -> conroi.Table:
    with lake.begin("several") as tx:
        for stage in stages:
            stage(tx["t"])
    return lake["t"]


def delete_one(table: Any) -> None:
    table.delete("id = 1")


def configure(table: Any) -> None:
    table.set_config({"color": "blue"})


def index(table: Any) -> None:
    table.create_index("id", name="by_id")


def change_in_place(table: Any) -> None:
    table.update({"n": "n + 1000"}, mode="columns")


def replace_all(table: Any) -> None:
    table.overwrite([{"id": 7, "n": 7}], if_moved="win")


@pytest.mark.contract("W12")
@pytest.mark.parametrize(
    ("stages", "operation"),
    [((delete_one, configure), "Merge"), ((configure, index), "Merge"), ((replace_all, configure), "Overwrite")],
)
def test_the_version_says_what_was_done_in_it(lake: conroi.Lake, stages: tuple[Stage, ...], operation: str):
    table = fold(lake, *stages)
    commit = table.history()[0]
    assert (commit.version, commit.operation, commit.message) == (2, operation, "several")
    dataset = lance.dataset(table.uri)
    transaction = dataset.read_transaction(2)
    assert transaction is not None
    assert transaction.transaction_properties is not None
    names: dict[Stage, str] = {
        delete_one: "Delete",
        configure: "UpdateConfig",
        index: "CreateIndex",
        replace_all: "Overwrite",
    }
    assert transaction.transaction_properties[FOLDED_PROPERTY] == ",".join(names[stage] for stage in stages)


@pytest.mark.contract("W3", "W9", "W12")
@pytest.mark.parametrize(
    "mine",
    [
        lambda t: t.set_config({"color": "red"}),
        lambda t: t.create_index("id", name="by_id"),
        lambda t: t.create_index("n", name="by_n"),
        lambda t: t.delete("id = 2"),
        lambda t: t.update({"n": "0"}, where="id = 2"),
        lambda t: t.append([{"id": 9, "n": 9}]),
        lambda t: t.add_columns({"x": "id"}),
        lambda t: t.compact(),
    ],
    ids=["config", "same index", "index of changed values", "delete", "update", "append", "columns", "compact"],
)
def test_a_writer_that_meets_several_changes_works_again_on_the_result(lake: conroi.Lake, mine: Stage):
    lake["t"].append([{"id": 8, "n": 80}])  # two fragments, so that there is something to compact
    tx = lake.begin()
    mine(tx["t"])
    fold(conroi.connect(lake.uri), change_in_place, configure, index)
    with pytest.raises(conroi.RetryableConflict):
        tx.commit()
    assert lake["t"].config["color"] == "blue"
    assert lake["t"].to_arrow(filter="id = 2")["n"].to_pylist() == [1020]


@pytest.mark.contract("W3", "W12")
@pytest.mark.parametrize(
    "other",
    [
        lambda t: t.append([{"id": 9, "n": 9}]),
        lambda t: t.set_config({"shape": "round"}),
        lambda t: t.create_index("n", name="by_n"),
        lambda t: t.reserve_fragments(3),
        lambda t: t.drop_columns(["n"]),
    ],
    ids=["append", "config", "index", "reserve", "drop columns"],
)
def test_several_changes_are_never_put_on_top_of_another_one(lake: conroi.Lake, other: Stage):
    tx = lake.begin()
    delete_one(tx["t"])
    configure(tx["t"])
    other(conroi.connect(lake.uri)["t"])
    with pytest.raises(conroi.RetryableConflict) as caught:
        tx.commit()
    assert caught.value.reason is not None
    assert caught.value.reason.rule == "table/several"
    assert lake["t"].version == 2


@pytest.mark.contract("W3", "W12")
def test_run_does_several_changes_again(lake: conroi.Lake):
    calls: list[int] = []

    def work(tx: Any) -> None:
        delete_one(tx["t"])
        configure(tx["t"])
        if not calls:
            conroi.connect(lake.uri)["t"].append([{"id": 9, "n": 9}])
        calls.append(1)

    lake.run(work)
    assert len(calls) == 2
    assert sorted(column_values(lake["t"].to_arrow()["id"])) == [0, 2, 3, 4, 5, 9]
    assert lake["t"].config == {"color": "blue"}


@pytest.mark.contract("W12")
@pytest.mark.parametrize("stages", [(delete_one, configure), (change_in_place, index), (replace_all, configure)])
def test_a_pylance_writer_with_an_old_handle_loses_nothing_of_it(lake: conroi.Lake, stages: tuple[Stage, ...]):
    """By path, and so past the lake; it sees that it is late, and does its work again or gives up."""
    stale = lance.dataset(lake["t"].uri)
    table = fold(lake, *stages)
    before = table.to_arrow().to_pylist()
    if replace_all in stages:
        with pytest.raises(OSError, match="Incompatible"):
            stale.delete("id = 2")
    else:
        stale.delete("id = 2")
    newest = lance.dataset(table.uri)
    assert newest.to_table().to_pylist() == [row for row in before if row["id"] != 2]
    assert newest.config() == table.config


@pytest.mark.contract("W12")
def test_pylance_goes_on_from_a_version_of_several_changes(lake: conroi.Lake):
    table = fold(lake, delete_one, configure, index, change_in_place)
    dataset = lance.dataset(table.uri)
    dataset.insert(pa.table({"id": [9], "n": [9]}))
    dataset.delete("id = 2")
    dataset.optimize.compact_files()
    rows = {row["id"]: row["n"] for row in lance.dataset(table.uri).to_table().to_pylist()}
    assert rows == {0: 1000, 3: 1030, 4: 1040, 5: 1050, 9: 9}
    lake["t"].append([{"id": 10, "n": 10}])
    assert lake["t"].count_rows() == 6
