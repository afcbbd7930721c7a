"""`lake.diff(a, b)`: by table, schema, row counts and changed keys, reading only what differs."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import conroi
from tests.branches.conftest import upsert
from tests.support.arrow import column_values


def keys(table: pa.Table) -> list[int]:
    return sorted(column_values(table["id"]))


def test_a_new_branch_differs_in_nothing(lake: conroi.Lake, dev: conroi.Lake) -> None:
    diff = lake.diff("main", "dev")
    assert not diff
    assert str(diff) == "main@2 -> dev@2\n  no difference"


def test_what_changed_by_table_and_key(lake: conroi.Lake, dev: conroi.Lake) -> None:
    upsert(dev, {2: 21, 4: 40})
    dev["orders"].delete("id = 1")
    dev["log"].append([{"text": "c"}])
    dev.create_table("fresh", [{"a": 1}])
    lake.create_table("mine", [{"a": 1}])

    diff = lake.diff("main", "dev")

    assert [(table.name, table.kind) for table in diff] == [
        ("fresh", "added"),
        ("log", "changed"),
        ("mine", "dropped"),
        ("orders", "changed"),
    ]
    orders, log = diff["orders"], diff["log"]
    assert orders.keys is not None
    assert [keys(each) for each in (orders.keys.inserted, orders.keys.updated, orders.keys.deleted)] == [[4], [2], [1]]
    assert (orders.rows_before, orders.rows_after, orders.version_before, orders.version_after) == (3, 3, 1, 3)
    assert (log.rows_added, log.rows_removed, log.keys) == (1, 0, None)
    assert str(diff).splitlines()[1:] == [
        "  fresh: added, 1 rows",
        "  log: 1 rows added, 0 removed, 2 -> 3 rows",
        "  mine: dropped, 1 rows",
        "  orders: 1 inserted, 1 updated, 1 deleted",
    ]


def test_columns_are_compared_and_a_new_column_is_no_changed_row(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev["orders"].add_columns({"double": "n * 2"})
    dev["orders"].alter_columns({"n": {"type": pa.float64()}})

    orders = lake.diff("main", "dev")["orders"]

    assert dict(orders.columns_added) == {"double": "int64"}
    assert dict(orders.columns_changed) == {"n": ("int64", "double")}
    assert orders.keys is not None
    assert not orders.keys.is_different


def test_compaction_and_indices_are_no_difference_where_there_is_a_key(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev["orders"].append([{"id": 4, "n": 40}])
    upsert(dev, {4: 40, 1: 10})
    dev["orders"].delete("id = 4")
    dev["orders"].compact()
    dev["orders"].create_index("id")
    assert not lake.diff("main", "dev")


def test_versions_tags_and_lakes_can_be_compared(lake: conroi.Lake, dev: conroi.Lake) -> None:
    lake.tags.create("start")
    lake["orders"].append([{"id": 4, "n": 40}])
    dev["orders"].append([{"id": 5, "n": 50}])

    for a, b in ((2, "main"), ("start", lake), (lake.at(version=2), 3)):
        found = lake.diff(a, b)["orders"].keys
        assert found is not None
        assert keys(found.inserted) == [4]
    both = lake.diff("dev", "main")["orders"].keys
    assert both is not None
    assert (keys(both.inserted), keys(both.deleted)) == ([4], [5])
    assert lake.diff("main", "dev", keys=False)["orders"].rows_added == 1


def test_rows_that_a_restore_brought_back_and_renamed_tables_are_seen(lake: conroi.Lake, dev: conroi.Lake) -> None:
    lake["orders"].delete("id < 3")
    dev.rename_table("orders", "sales")

    (table,) = lake.diff("main", "dev")

    assert (table.name, table.renamed_from) == ("sales", "orders")
    assert table.keys is not None
    assert keys(table.keys.inserted) == [1, 2]


def test_all_kinds_of_values_are_compared(lake: conroi.Lake) -> None:
    nan = float("nan")
    rows = [{"id": i, "f": nan, "l": [i], "s": {"a": i}, "t": None, "b": b"x"} for i in range(3)]
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("f", pa.float64()),
            pa.field("l", pa.list_(pa.int64())),
            pa.field("s", pa.struct([("a", pa.int64())])),
            pa.field("t", pa.string()),
            pa.field("b", pa.binary()),
        ]
    )
    lake.create_table("kinds", pa.Table.from_pylist(rows, schema=schema), key="id")
    lake.branches.create("dev")
    dev = lake.branch("dev")
    changed = [{**rows[1], "l": [1, 2]}, {**rows[2], "t": ""}, rows[0]]
    source = pa.Table.from_pylist(changed, schema=schema)
    dev["kinds"].merge(source, on="id").when_matched_update_all().execute()

    found = lake.diff("main", "dev")["kinds"].keys

    assert found is not None
    assert keys(found.updated) == [1, 2], "the row that was written again with the same values did not change"


def test_a_diff_travels_as_plain_values(lake: conroi.Lake, dev: conroi.Lake) -> None:
    import json

    upsert(dev, {2: 21})
    facts = json.loads(json.dumps(lake.diff("main", "dev").to_dict()))
    assert facts["tables"][0]["rows"] == {
        "inserted": 0,
        "updated": 1,
        "deleted": 0,
        "keys": {"inserted": [], "updated": [{"id": 2}], "deleted": []},
    }


# ---------------------------------------------------------------------------- what it reads


def read_bytes() -> int:
    """What this process has read so far, pylance included."""
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])


def bytes_of(folder: str) -> int:
    return sum(os.path.getsize(os.path.join(root, name)) for root, _, names in os.walk(folder) for name in names)


def wide_lake(folder: Path, rows: int, files: int) -> conroi.Lake:
    """A table of many rows that do not compress, in several files."""
    lake = conroi.connect(folder)
    random = np.random.default_rng(7)
    each = rows // files
    for n in range(files):
        part = pa.table(
            {
                "id": pa.array(np.arange(n * each, (n + 1) * each)),
                "n": pa.array(random.integers(0, 1 << 60, each)),
                "m": pa.array(random.integers(0, 1 << 60, each)),
            }
        )
        if n:
            lake["big"].append(part)
        else:
            schema = pa.schema([field.with_nullable(field.name != "id") for field in part.schema])
            lake.create_table("big", part.cast(schema), key="id")
    return lake


def _compare(folder: Path, rows: int) -> None:
    lake = wide_lake(folder, rows, files=8)
    size = bytes_of(lake["big"].uri)
    lake.branches.create("dev")
    dev = lake.branch("dev")
    dev["big"].delete(f"id IN (5, {rows - 5})")
    dev["big"].update({"n": "1"}, where=f"id IN (7, {rows // 2})", mode="rows")
    dev["big"].append(dev["big"].to_arrow(filter="id = 7").set_column(0, "id", pa.array([rows])))
    again = conroi.connect(folder)

    before = read_bytes()
    found = again.diff("main", "dev")["big"].keys
    spent = read_bytes() - before

    assert found is not None
    assert (keys(found.inserted), keys(found.updated), keys(found.deleted)) == ([rows], [7, rows // 2], [5, rows - 5])
    assert spent < size / 10, (spent, size)
    before = read_bytes()
    again["big"].to_arrow()
    assert read_bytes() - before > size / 2, "the instrument sees what pylance reads"


@pytest.mark.contract("B3")
def test_a_diff_of_a_small_change_reads_only_what_differs(tmp_path: Path) -> None:
    _compare(tmp_path / "lake", 400_000)


@pytest.mark.soak
@pytest.mark.contract("B3")
def test_also_of_five_million_rows(tmp_path: Path) -> None:
    _compare(tmp_path / "lake", 5_000_000)
