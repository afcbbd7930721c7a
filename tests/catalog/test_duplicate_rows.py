"""Two rows of `__manifest` for one table: neither is taken, because one of them would be the wrong one."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

import conroi


@pytest.mark.contract("P7", "P8")
def test_two_rows_for_one_table_are_refused(tmp_path: Path) -> None:
    """pylance appends without a look at the key."""
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"id": 1}])
    before = lake.version
    manifest = f"{lake.uri}/__manifest"
    old = lance.dataset(manifest).to_table()
    lake["t"].append([{"id": 2}])
    lance.write_dataset(old, manifest, mode="append")
    for look in (
        lambda: conroi.connect(lake.uri).tables(),
        lambda: conroi.connect(lake.uri)["t"],
        lambda: lake["t"].append([{"id": 3}]),
        lambda: lake.create_table("other", [{"id": 1}]),
    ):
        with pytest.raises(conroi.CorruptionError, match="two rows for 't'"):
            look()
    assert lake.at(version=before)["t"].to_arrow()["id"].to_pylist() == [1]
    assert lake.at(version=before + 1)["t"].to_arrow()["id"].to_pylist() == [1, 2]
