"""Metadata of the schema: what a change of columns does not name is kept, and an overwrite brings its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pandas as pd
import pyarrow as pa
import pytest

import conroi
from conroi.format import decode_transaction
from conroi.testing import call_before
from tests.interop.test_commit import transactions_after, without_versions_after
from tests.support.lakes import faulty

pytestmark = pytest.mark.contract("T25")

ROWS = pa.table({"v": [1, 2]}).replace_schema_metadata({"owner": "gdpr", "unit": "m"})
KEPT = {b"owner": b"gdpr", b"unit": b"m"}


def metadata(root: Path) -> Any:
    return lance.dataset(str(root)).schema.metadata


@pytest.mark.parametrize(
    "verb",
    [
        lambda d: d.add_columns({"w": "v + 1"}),
        lambda d: d.add_columns({"one": "1"}),
        lambda d: d.add_columns(pa.field("n", pa.int64())),
        lambda d: d.alter_columns({"path": "v", "data_type": pa.int32()}),
        lambda d: d.alter_columns({"path": "v", "name": "w"}),
        lambda d: d.merge(pa.table({"v": [1, 2], "m": ["a", "b"]}), "v"),
    ],
    ids=["expression", "constant", "nulls", "type", "name", "merge"],
)
def test_a_change_of_columns_by_pylance_committed_by_us_keeps_it(tmp_path: Path, verb: Any) -> None:
    """A5: empty on the wire means "keep"; the commit erased it."""
    root = tmp_path / "t"
    dataset = lance.write_dataset(ROWS, str(root))
    verb(dataset)
    assert metadata(root) == KEPT, "pylance keeps it"
    wire = transactions_after(root, 1)
    without_versions_after(root, 1, conroi.ManifestNaming.V2)
    for data in wire:
        conroi.commit(root, decode_transaction(data))
    assert metadata(root) == KEPT


def test_our_own_changes_of_columns_keep_it(tmp_path: Path) -> None:
    root = tmp_path / "t"
    table = conroi.create_table(root, ROWS)
    table = table.add_columns({"w": "v + 1"}).alter_columns({"v": {"type": pa.int32()}}).rename_columns({"w": "x"})
    table.append(pa.table({"v": [3], "x": [4], "y": [5]}), evolve_schema=True).drop_columns(["x"])
    assert metadata(root) == KEPT


def test_lake_mend_keeps_it_when_it_replays_a_change_of_columns(tmp_path: Path) -> None:
    def described(table: Any) -> Any:
        return table.add_columns({"k": "n"})

    lake = conroi.connect(str(tmp_path / "lake"))
    path = lake.create_table("t", pa.table({"n": [1]}).replace_schema_metadata({"owner": "gdpr", "unit": "m"})).uri
    hook = call_before(lambda _: described(lance.dataset(path)), "rename_if_absent", "_versions/*.manifest")
    faulty(lake.uri, [hook], only="t.lance")["t"].set_config({"a": "b"})
    lake = conroi.connect(lake.uri)
    lake.mend("t")
    mended = conroi.connect(lake.uri)["t"]
    assert mended.schema.metadata == KEPT
    assert mended.to_arrow().to_pydict() == {"n": [1], "k": [1]}


@pytest.mark.parametrize("new", [None, {"owner": "other"}])
def test_an_overwrite_takes_that_of_the_new_data_as_pylance_does(tmp_path: Path, new: Any) -> None:
    data = pa.table({"v": [3]}).replace_schema_metadata(new)
    lance.write_dataset(ROWS, str(tmp_path / "theirs"))
    lance.write_dataset(data, str(tmp_path / "theirs"), mode="overwrite")
    conroi.create_table(tmp_path / "ours", ROWS).overwrite(data)
    assert metadata(tmp_path / "ours") == metadata(tmp_path / "theirs")


@pytest.mark.parametrize("data", [[{"v": 3}], pd.DataFrame({"v": [3]})], ids=["rows", "pandas"])
def test_data_that_has_no_place_for_it_leaves_it_as_it_is(tmp_path: Path, data: Any) -> None:
    conroi.create_table(tmp_path / "t", ROWS).overwrite(data)
    assert metadata(tmp_path / "t") == KEPT
