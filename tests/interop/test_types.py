"""Every type that a column can have, through every way in which rows are written, moved and rewritten."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, cast

import lance
import pandas
import polars
import pyarrow as pa
import pytest

import conroi
from tests.support.arrow import column_values
from tests.support.arrow_types import NOT_STORED, TYPES, Typed
from tests.support.pylance import knows_offsets, takes_marked_blobs
from tests.support.sampling import sampled

pytestmark = pytest.mark.contract("T5")


def label(value: Typed | str) -> str:
    return (value if isinstance(value, str) else value.name).replace(" ", "-")


def array(typed: Typed, values: list[Any]) -> pa.Array[Any]:
    if isinstance(typed.type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(typed.type, pa.array(values, typed.type.storage_type))
    if typed.type == pa.string_view():
        return pa.array(values, pa.string()).cast(pa.string_view())
    return pa.array(values, typed.type)


def comparable(value: Any) -> Any:
    """The value with what is equal made equal (not-a-number), and what differs made different (minus zero)."""
    if isinstance(value, dict):
        return {key: comparable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(each) for each in value]
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (math.copysign(1, value), value)
    return value


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["id"])  # pyarrow cannot sort every type


@dataclass
class Rows:
    """The rows of a table with columns id, n and x, of which x has the type under test."""

    typed: Typed
    rows: dict[int, tuple[int, Any]] = field(default_factory=dict[int, tuple[int, Any]])

    def data(self, ids: range, shift: int = 0) -> pa.Table:
        """New rows; each gets one of the six values."""
        values = [self.typed.values[(i + shift) % 6] for i in ids]
        self.rows |= {i: (i, value) for i, value in zip(ids, values, strict=True)}
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64()), self.typed.field()])
        return pa.table(
            [pa.array(ids, pa.int64()), pa.array(ids, pa.int64()), array(self.typed, values)], schema=schema
        )

    def delete(self, *ids: int) -> None:
        self.rows = {i: row for i, row in self.rows.items() if i not in ids}

    def count_up(self, *ids: int) -> None:
        self.rows |= {i: (self.rows[i][0] + 1, self.rows[i][1]) for i in ids if i in self.rows}

    def assert_seen(self, root: Path, column: str = "x") -> None:
        ids = sorted(self.rows)
        expected = array(self.typed, [self.rows[i][1] for i in ids]).to_pylist()
        for reader, table in (
            ("pylance", lance.dataset(str(root)).to_table()),
            ("conroi", conroi.open_table(root).to_arrow()),
        ):
            assert table.schema.field(column).type == self.typed.read_type, reader
            found = sorted_rows(table)
            assert [row["id"] for row in found] == ids, reader
            assert [row["n"] for row in found] == [self.rows[i][0] for i in ids], reader
            assert comparable([row[column] for row in found]) == comparable(expected), reader
        assert conroi.open_table(root).schema.field(column).type == self.typed.read_type


def made(root: Path, rows: Rows, maker: str, version: str = "2.2") -> None:
    """A table that both have appended to, and of which some rows are gone."""
    if maker == "conroi":
        conroi.create_table(root, rows.data(range(6)), data_format=version)
    else:
        lance.write_dataset(rows.data(range(6)), str(root), data_storage_version=cast("Any", version))
    rows.assert_seen(root)
    conroi.open_table(root).append(rows.data(range(6, 12), shift=1))
    lance.dataset(str(root)).insert(rows.data(range(12, 18), shift=2))
    rows.assert_seen(root)
    conroi.open_table(root).delete("id IN (2, 7, 14)")
    rows.delete(2, 7, 14)


@pytest.mark.parametrize(
    ("typed", "maker"),
    sampled("types", list(product(TYPES, ("conroi", "pylance"))), least=16, covers=False, label=label),
)
def test_values_come_back_from_every_writer_and_every_rewrite(tmp_path: Path, typed: Typed, maker: str) -> None:
    root, rows = tmp_path / "table", Rows(typed)
    made(root, rows, maker)
    conroi.open_table(root).update({"n": "n + 1"}, "id IN (0, 3, 6, 13)", mode="rows")
    rows.count_up(0, 3, 6, 13)
    rows.assert_seen(root)
    lance.dataset(str(root)).update({"n": "n + 1"}, "id IN (1, 3, 8)")
    rows.count_up(1, 3, 8)
    conroi.open_table(root).compact()
    rows.assert_seen(root)
    conroi.open_table(root).append(rows.data(range(18, 19)))  # one row
    conroi.open_table(root).append(rows.data(range(19, 19)))  # none
    source = rows.data(range(16, 21), shift=4)
    conroi.open_table(root).merge(source, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
    rows.assert_seen(root)
    conroi.open_table(root).compact("n")
    rows.assert_seen(root)
    lance.dataset(str(root)).delete("id = 4")
    rows.delete(4)
    lance.dataset(str(root)).optimize.compact_files()
    rows.assert_seen(root)
    conroi.open_table(root).overwrite(rows.data(range(20, 23)), "id >= 20")
    rows.assert_seen(root)
    conroi.open_table(root).overwrite(Rows(typed).data(range(3)))
    rows.rows.clear()
    rows.data(range(3))
    rows.assert_seen(root)


OLDER = [(typed, version) for typed in TYPES for version in typed.formats if version != "2.2"]


@pytest.mark.parametrize(
    ("typed", "version"), sampled("types in older files", OLDER, least=16, covers=False, label=label)
)
def test_values_come_back_in_older_file_versions(tmp_path: Path, typed: Typed, version: str) -> None:
    root, rows = tmp_path / "table", Rows(typed)
    made(root, rows, "conroi", version)
    conroi.open_table(root).update({"n": "n + 1"}, "id IN (0, 3, 6, 13)", mode="rows")
    rows.count_up(0, 3, 6, 13)
    conroi.open_table(root).compact()
    rows.assert_seen(root)


@pytest.mark.parametrize(
    "typed", sampled("types of columns", [(each,) for each in TYPES], least=16, covers=False, label=label)
)
def test_a_column_of_every_type_is_added_rewritten_replaced_and_dropped(tmp_path: Path, typed: Typed) -> None:
    root, rows = tmp_path / "table", Rows(typed)
    conroi.create_table(root, rows.data(range(6)))
    conroi.open_table(root).append(rows.data(range(6, 12), shift=3)).delete("id = 5")
    rows.delete(5)
    conroi.open_table(root).update({"x": "x"}, "id < 9", mode="columns")
    rows.assert_seen(root)
    conroi.open_table(root).replace_column_data({"x": "x"})
    rows.assert_seen(root)
    conroi.open_table(root).add_columns({"y": "x"})
    rows.assert_seen(root)
    rows.assert_seen(root, "y")
    conroi.open_table(root).drop_columns(["y"]).add_columns(typed.field("z"))
    rows.assert_seen(root)
    assert lance.dataset(str(root)).to_table(["z"])["z"].null_count == 11
    conroi.open_table(root).update({"z": "x"})
    rows.assert_seen(root, "z")
    conroi.open_table(root).rename_columns({"z": "w"}).compact()
    rows.assert_seen(root, "w")
    lance.dataset(str(root)).drop_columns(["w"])
    rows.assert_seen(root)
    conroi.open_table(root).update({"x": None}, "id = 1", mode="columns")
    conroi.open_table(root).update({"x": None}, "id = 7", mode="rows")
    rows.rows |= {1: (1, None), 7: (7, None)}
    rows.assert_seen(root)


@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
@pytest.mark.parametrize("maker", ["conroi", "pylance"])
def test_all_types_in_one_table_with_no_rows_with_one_and_with_some(tmp_path: Path, maker: str, stable: bool) -> None:
    """Side by side, so that what a type does to its neighbours shows."""
    root = tmp_path / "table"
    columns = [typed for typed in TYPES if typed.stored is None]
    schema = pa.schema([pa.field("id", pa.int64()), *(typed.field(typed.name) for typed in columns)])

    def data(ids: range) -> pa.Table:
        arrays = [array(typed, [typed.values[i % 6] for i in ids]) for typed in columns]
        return pa.table([pa.array(ids, pa.int64()), *arrays], schema=schema)

    def assert_rows(*ids: int) -> None:
        expected = {
            typed.name: comparable(array(typed, [typed.values[i % 6] for i in ids]).to_pylist()) for typed in columns
        }
        for table in (lance.dataset(str(root)).to_table(), conroi.open_table(root).to_arrow()):
            assert table.schema.names == schema.names
            found = sorted_rows(table)
            assert [row["id"] for row in found] == list(ids)
            for typed in columns:
                assert table.schema.field(typed.name).type == typed.read_type
                assert comparable([row[typed.name] for row in found]) == expected[typed.name], typed.name

    if maker == "conroi":
        conroi.create_table(root, schema, stable_row_ids=stable)
    else:
        lance.write_dataset(data(range(0)), str(root), schema=schema, enable_stable_row_ids=stable)
    assert_rows()
    conroi.open_table(root).append(data(range(1)))
    assert_rows(0)
    lance.dataset(str(root)).insert(data(range(1, 6)))
    assert_rows(*range(6))
    conroi.open_table(root).update({"id": "id + 10"}, "id < 3")
    conroi.open_table(root).update({"id": "id - 10"}, "id >= 10", mode="rows")
    assert_rows(*range(6))
    conroi.open_table(root).compact()
    assert_rows(*range(6))
    conroi.open_table(root).delete("id != 3")
    assert_rows(3)
    lance.dataset(str(root)).delete("true")
    assert_rows()
    conroi.open_table(root).compact()
    conroi.open_table(root).append(data(range(2)))
    assert_rows(0, 1)


@pytest.mark.parametrize("name", NOT_STORED)
def test_a_type_that_lance_cannot_store_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    type_ = NOT_STORED[name]
    with pytest.raises(conroi.InvalidInputError, match="'x'"):
        conroi.create_table(tmp_path / "table", pa.schema([("id", pa.int64()), ("x", type_)]))
    assert not (tmp_path / "table" / "_versions").exists()
    table = conroi.create_table(tmp_path / "table", pa.schema([("id", pa.int64())]))
    with pytest.raises(conroi.InvalidInputError, match="'x'"):
        table.add_columns(pa.field("x", type_))
    assert table.latest().version == 1


def test_frames_of_polars_and_pandas_go_in_by_every_verb(tmp_path: Path) -> None:
    """polars hands over text as views, also inside lists and structs."""
    rows = [{"id": i, "s": f"s{i}", "l": ["a", f"b{i}"], "p": {"q": f"q{i}"}} for i in range(6)]
    root = tmp_path / "table"
    table = conroi.create_table(root, polars.DataFrame(rows[:2]))
    table = table.append(polars.DataFrame(rows[2:3])).append(pandas.DataFrame(rows[3:4]))
    new = polars.DataFrame([rows[3] | {"s": "merged"}, *rows[4:]])
    result = table.merge(new, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert (result.rows_updated, result.rows_inserted) == (1, 2)
    result.table.overwrite(polars.DataFrame([rows[0] | {"s": "over"}]), "id = 0")
    expected = [rows[0] | {"s": "over"}, *rows[1:3], rows[3] | {"s": "merged"}, *rows[4:]]
    assert sorted_rows(lance.dataset(str(root)).to_table()) == expected
    assert sorted_rows(conroi.open_table(root).to_arrow()) == expected
    assert conroi.open_table(root).to_polars().sort("id").to_dicts() == expected


def blobs(ids: range) -> pa.Table:
    values = [None if i % 3 == 0 else bytes([i]) * i for i in ids]
    if not takes_marked_blobs():
        return pa.table({"id": pa.array(ids, pa.int64()), "content": lance.blob_array(values)})
    field = pa.field("content", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("id", pa.int64()), field])
    return pa.table([pa.array(ids, pa.int64()), pa.array(values, pa.large_binary())], schema=schema)


def assert_blobs(root: Path, *ids: int) -> None:
    for dataset in (lance.dataset(str(root)), conroi.open_table(root).to_lance()):
        found = column_values(dataset.to_table(["id"])["id"])
        assert sorted(found) == sorted(ids)
        contents = dataset.take_blobs("content", indices=list(range(len(found))))
        for i, content in zip(found, contents, strict=True):
            assert (None if content is None else content.read()) == (
                None if i % 3 == 0 else bytes([i % 100]) * (i % 100)
            )


@pytest.mark.parametrize("maker", ["conroi", "pylance"])
def test_blobs_are_kept_by_every_writer_and_every_rewrite(tmp_path: Path, maker: str) -> None:
    root = tmp_path / "table"
    if maker == "conroi":
        conroi.create_table(root, blobs(range(6)))
    else:
        lance.write_dataset(blobs(range(6)), str(root))
    assert_blobs(root, *range(6))
    conroi.open_table(root).append(blobs(range(6, 9)))
    lance.dataset(str(root)).insert(blobs(range(9, 12)))
    conroi.open_table(root).delete("id = 2")
    assert_blobs(root, 0, 1, *range(3, 12))
    conroi.open_table(root).update({"id": "id + 300"}, "id = 5", mode="rows")
    conroi.open_table(root).update({"id": "id + 300"}, "id = 7", mode="columns")
    assert_blobs(root, 0, 1, 3, 4, 6, 8, 9, 10, 11, 305, 307)
    conroi.open_table(root).add_columns({"twice": "id * 2"}).drop_columns(["twice"]).compact()
    conroi.open_table(root).merge(
        blobs(range(10, 14)), on="id"
    ).when_matched_update_all().when_not_matched_insert_all().execute()
    assert_blobs(root, 0, 1, 3, 4, 6, 8, *range(9, 14), 305, 307)
    conroi.open_table(root).compact("id")
    lance.dataset(str(root)).optimize.compact_files()
    assert_blobs(root, 0, 1, 3, 4, 6, 8, *range(9, 14), 305, 307)
    with pytest.raises(conroi.InvalidInputError):
        conroi.open_table(root).update({"content": "content"}, mode="columns")
    conroi.open_table(root).replace_column_data({"content": "content"})
    assert_blobs(root, 0, 1, 3, 4, 6, 8, *range(9, 14), 305, 307)
    assert not conroi.open_table(root).doctor(deep=True).findings


def test_blobs_in_an_old_file_version_are_refused(tmp_path: Path) -> None:
    with pytest.raises(conroi.InvalidInputError, match="blobs"):
        conroi.create_table(tmp_path / "table", blobs(range(3)), data_format="2.1")
    assert not (tmp_path / "table" / "_versions").exists()


def test_a_zone_that_is_an_offset_is_kept_or_refused_before_anything_is_committed(tmp_path: Path) -> None:
    """pylance 12 fails on it, with a panic."""
    rows = pa.table({"t": pa.array([1], pa.timestamp("us", "+02:00"))})
    if knows_offsets():
        assert conroi.create_table(tmp_path / "t", rows).to_arrow().equals(rows)
        return
    with pytest.raises(conroi.UnsupportedError, match="timestamp"):
        conroi.create_table(tmp_path / "t", rows)
    assert not list(tmp_path.rglob("*.manifest"))
