"""table.diff(): what one version of a table has that another has not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import conroi
from conroi.errors import InvalidInputError, NotFoundError
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("C9")


@pytest.fixture(params=["alone", "lake"])
def orders(request: pytest.FixtureRequest, tmp_path: Path) -> conroi.Table:
    """Version 1: rows 1 to 3. 2: row 4. 3: row 1 changed. 4: row 2 deleted. 5: a column. 6: compacted."""
    rows = [{"id": n, "v": "a"} for n in (1, 2, 3)]
    if request.param == "alone":
        table = conroi.create_table(tmp_path / "t", rows, key="id")
    else:
        table = conroi.connect(tmp_path / "lake").create_table("t", rows, key="id")
    table = table.append([{"id": 4, "v": "a"}]).update({"v": "'b'"}, where="id = 1").delete("id = 2")
    return table.add_columns([pa.field("n", pa.int64())]).compact()


def ids(keys: pa.Table) -> list[int]:
    return sorted(column_values(keys["id"]))


def test_keys_that_were_inserted_updated_and_deleted(orders: conroi.Table) -> None:
    found = orders.diff(1, 4)
    assert found.keys is not None
    assert (ids(found.keys.inserted), ids(found.keys.updated), ids(found.keys.deleted)) == ([4], [1], [2])
    assert (found.version_before, found.version_after, found.rows_before, found.rows_after) == (1, 4, 3, 3)
    assert found.name == orders.name
    back = orders.diff(4, 1).keys
    assert back is not None
    assert (ids(back.inserted), ids(back.updated), ids(back.deleted)) == ([2], [1], [4])


def test_the_second_is_by_default_this_version_and_each_may_be_a_tag(orders: conroi.Table) -> None:
    orders.tags.create("q3", 3)
    assert orders.diff("q3").version_before == 3
    assert orders.diff("q3").version_after == orders.version
    found = orders.at(2).diff(orders.at(1)).keys
    assert found is not None
    assert ids(found.inserted) == [4]


def test_columns_are_compared_and_a_compaction_is_no_difference(orders: conroi.Table) -> None:
    newer = orders.diff(4, 5)
    assert dict(newer.columns_added) == {"n": "int64"}
    assert newer.is_different
    assert not orders.diff(5, orders.version).is_different


def test_without_a_key_rows_are_counted(tmp_path: Path) -> None:
    table = conroi.create_table(tmp_path / "t", pa.table({"v": [1, 2, 3]})).append(pa.table({"v": [4]})).delete("v = 1")
    found = table.diff(1)
    assert (found.keys, found.rows_added, found.rows_removed) == (None, 1, 1)


def test_what_is_no_version_of_the_table(orders: conroi.Table, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        orders.diff(99)
    with pytest.raises(NotFoundError):
        orders.diff("nope")
    other = conroi.create_table(tmp_path / "other", pa.table({"v": [1]}))
    with pytest.raises(InvalidInputError, match="another table"):
        orders.diff(other)
