"""Settings and metadata of tables are merged key by key, on whichever side the table is built."""

from __future__ import annotations

import pyarrow as pa
import pytest

import conroi
from conroi.branches.results import Choice
from tests.branches.conftest import numbers, upsert


def notes(lake: conroi.Lake) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """The metadata of the table, of its schema and of the column n, without what others keep there."""
    table = lake["orders"]
    column = table.schema.field("n").metadata or {}
    return (
        dict(table.metadata),
        _texts(table.schema.metadata or {}),
        {key: value for key, value in _texts(column).items() if not key.startswith("conroi.")},
    )


def _texts(found: dict[bytes, bytes]) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in found.items()}


@pytest.mark.contract("B7")
def test_metadata_comes_with_a_fast_forward(lake: conroi.Lake, dev: conroi.Lake) -> None:
    """I16: a change of metadata alone was no change."""
    dev["orders"].set_metadata({"owner": "ada"}, schema={"unit": "m"})
    assert lake.merge("dev").has_changes
    assert notes(lake) == ({"owner": "ada"}, {"unit": "m"}, {})


@pytest.mark.parametrize("is_retyped", [False, True])
@pytest.mark.contract("B7")
def test_metadata_of_both_sides_comes_together(lake: conroi.Lake, dev: conroi.Lake, is_retyped: bool) -> None:
    """I16. If the source has other columns its table is the one below, and the target's notes go on top."""
    lake["orders"].set_metadata({"a": "0", "gone": "0"}, schema={"s": "0"}, fields={"n": {"f": "0"}})
    dev.merge("main")
    dev["orders"].set_metadata({"dev": "1", "gone": None}, schema={"s": "1"}, fields={"n": {"f": "1"}})
    dev["orders"].set_config({"c": "1"})
    if is_retyped:
        dev["orders"].alter_columns({"n": {"type": pa.float64()}})
    lake["orders"].set_metadata({"main": "2"}, schema={"t": "2"}, fields={"n": {"g": "2"}})
    lake["orders"].set_config({"d": "2"})
    upsert(lake, {4: 40})
    lake.merge("dev")
    assert notes(lake) == ({"a": "0", "dev": "1", "main": "2"}, {"s": "1", "t": "2"}, {"f": "1", "g": "2"})
    assert lake["orders"].config == {"c": "1", "d": "2"}
    assert numbers(lake)[4] == 40
    assert not lake.merge("dev").has_changes


@pytest.mark.parametrize("is_retyped", [False, True])
@pytest.mark.parametrize("prefer", ["source", "target"])
@pytest.mark.contract("B7")
def test_a_key_that_both_changed_is_a_conflict_of_that_key(
    lake: conroi.Lake, dev: conroi.Lake, prefer: Choice, is_retyped: bool
) -> None:
    for each, value in ((lake, "target"), (dev, "source")):
        each["orders"].set_metadata({"k": value}, schema={"k": value}, fields={"n": {"k": value}})
        each["orders"].set_config({"k": value})
    if is_retyped:
        dev["orders"].alter_columns({"n": {"type": pa.float64()}})
    dry = lake.merge("dev", dry_run=True)
    assert sorted(each.kind for each in dry.conflicts) == ["metadata", "metadata", "metadata", "setting"]
    with pytest.raises(conroi.MergeConflict):
        lake.merge("dev")
    lake.merge("dev", prefer=prefer)
    assert notes(lake) == ({"k": prefer}, {"k": prefer}, {"k": prefer})
    assert lake["orders"].config == {"k": prefer}


def test_metadata_of_a_column_that_one_side_dropped_goes_with_it(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev["orders"].drop_columns(["n"])
    lake["orders"].set_metadata(fields={"n": {"doc": "amount"}})
    lake.merge("dev")
    assert lake["orders"].schema.names == ["id"]


@pytest.mark.contract("B7")
def test_a_table_whose_metadata_was_changed_is_not_dropped_without_a_conflict(
    lake: conroi.Lake, dev: conroi.Lake
) -> None:
    dev.drop_table("orders")
    lake["orders"].set_metadata({"owner": "ada"})
    with pytest.raises(conroi.MergeConflict) as caught:
        lake.merge("dev")
    assert [(each.table, each.kind) for each in caught.value.conflicts] == [("orders", "dropped")]
