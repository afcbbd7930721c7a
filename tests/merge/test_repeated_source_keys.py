"""Several rows of the source with one key: they may delete, and may not update."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import conroi
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("K7")


@pytest.fixture(params=[None, "id"], ids=["no key", "key"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> conroi.Table:
    return conroi.create_table(tmp_path / "t", pa.table({"id": [1, 2, 3], "v": [10, 20, 30]}), key=request.param)


def ids(table: conroi.Table) -> list[int]:
    return sorted(column_values(table.latest().to_arrow()["id"]))


def merge(table: conroi.Table, *rows: tuple[int, int]) -> Any:
    source = pa.table({"id": [key for key, _ in rows], "w": [w for _, w in rows]})
    return table.merge(source, on="id")


def test_rows_that_several_source_rows_delete_are_deleted_once(table: conroi.Table) -> None:
    """B8: legal SQL was refused."""
    done = merge(table, (2, 0), (2, 1), (3, 0), (9, 0), (9, 0)).when_matched_delete().execute()
    assert done.rows_deleted == 2
    assert ids(table) == [1]


def test_a_row_goes_if_any_source_row_deletes_it(table: conroi.Table) -> None:
    found = merge(table, (2, 0), (2, 1), (3, 0), (3, 0), (1, 1)).when_matched_delete("source.w = 1")
    assert found.execute().rows_deleted == 2
    assert ids(table) == [3]


def test_an_update_by_several_is_refused(table: conroi.Table) -> None:
    with pytest.raises(conroi.DuplicateKeyError):
        merge(table, (2, 0), (2, 1)).when_matched_update({"v": "source.w"}).execute()
    with pytest.raises(conroi.DuplicateKeyError):
        merge(table, (2, 0), (2, 1)).when_matched_delete("source.w = 1").when_matched_update({"v": "0"}).execute()
    assert table.latest().to_arrow()["v"].to_pylist() == [10, 20, 30]
