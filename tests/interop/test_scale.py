"""A million rows, a thousand fragments: what holds for small tables holds for these."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import conroi
from tests.interop.tables import newest_manifest
from tests.support.arrow import column_values
from tests.support.parity import read_version

pytestmark = pytest.mark.contract("T5")

MILLION = 1_000_000
Numbers = npt.NDArray[np.int64]


def rows(ids: Numbers, factor: int = 3) -> pa.Table:
    names = pa.array(np.char.mod("n%d", ids % 100))
    return pa.table({"id": pa.array(ids), "v": pa.array(ids * factor % 1000), "name": names})


def both(root: Path, columns: list[str]) -> list[pa.Table]:
    return [lance.dataset(str(root)).to_table(columns), conroi.open_table(root).to_arrow(columns)]


def assert_values(root: Path, values: Numbers) -> None:
    """`values` has the expected v by id: a dense array in which -1 stands for a row that is not there."""
    ids = np.flatnonzero(values >= 0)
    for table in both(root, ["id", "v"]):
        found, v = table["id"].to_numpy(), table["v"].to_numpy()
        order = np.argsort(found, kind="stable")
        assert np.array_equal(found[order], ids)
        assert np.array_equal(v[order], values[ids])
    assert conroi.open_table(root).count_rows() == lance.dataset(str(root)).count_rows() == len(ids)


@pytest.mark.parametrize("maker", ["conroi", "pylance"])
def test_a_million_rows(tmp_path: Path, maker: str) -> None:
    root, ids = tmp_path / "table", np.arange(MILLION)
    stable = maker == "conroi"
    if maker == "conroi":
        conroi.create_table(root, rows(ids), stable_row_ids=stable)
    else:
        lance.write_dataset(rows(ids), str(root), max_rows_per_file=300_000)
    values = np.concatenate([ids * 3 % 1000, np.full(1000, -1)])
    assert_values(root, values)

    conroi.open_table(root).delete("id % 50 = 7")  # more than 5,000 in a fragment: another kind of file
    values[:MILLION][ids % 50 == 7] = -1
    lance.dataset(str(root)).delete("id % 1000 = 9")
    values[:MILLION][ids % 1000 == 9] = -1
    assert_values(root, values)

    conroi.open_table(root).update({"v": "v + 1"}, "id % 100 = 5", mode="rows")
    values[:MILLION] += (ids % 100 == 5) & (values[:MILLION] >= 0)
    conroi.open_table(root).update({"v": "v + 1"}, "id >= 1000", mode="columns")
    values[1000:MILLION] += values[1000:MILLION] >= 0
    assert_values(root, values)

    source = np.concatenate([np.arange(500_000, 500_000 + 5000), np.arange(MILLION, MILLION + 1000)])
    merge = conroi.open_table(root).merge(rows(source, factor=7), on="id")
    result = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    known = int((values[500_000:505_000] >= 0).sum())
    assert (result.rows_updated, result.rows_inserted) == (known, 6000 - known)
    values[source] = source * 7 % 1000
    conroi.open_table(root).create_index("id").compact()
    assert_values(root, values)
    for reader in (lance.dataset(str(root)), conroi.open_table(root).to_lance()):
        found = column_values(reader.to_table(["v"], filter="id IN (3, 7, 500001, 1000999)")["v"])
        assert sorted(found) == sorted(int(values[i]) for i in (3, 500_001, 1_000_999))
    lance.dataset(str(root)).optimize.compact_files()
    assert_values(root, values)


def many_appends(root: Path, count: int, each: int) -> None:
    """By conroi, with stable row ids; now and then pylance appends too."""
    table = conroi.create_table(root, rows(np.arange(each)), stable_row_ids=True)
    for number in range(1, count):
        data = rows(np.arange(number * each, (number + 1) * each))
        if number % 250 == 0:
            lance.dataset(str(root)).insert(data)
        else:
            table = table.append(data)
    assert lance.dataset(str(root)).version == conroi.open_table(root).version == count
    assert conroi.open_table(root, version=count // 2).count_rows() == count // 2 * each


def many_files(root: Path, count: int, each: int) -> None:
    """By pylance, all at once."""
    lance.write_dataset(rows(np.arange(count * each)), str(root), max_rows_per_file=each, max_rows_per_group=each)


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("make", [pytest.param(many_appends, marks=pytest.mark.soak), many_files])
def test_many_fragments(tmp_path: Path, make: Callable[[Path, int, int], None], count: int) -> None:
    root, each = tmp_path / "table", 4
    make(root, count, each)
    table = conroi.open_table(root)
    ids = np.arange(count * each)
    values = ids * 3 % 1000
    assert [fragment.id for fragment in read_version(newest_manifest(root)).manifest.fragments] == list(range(count))
    assert_values(root, values)

    table.delete("id % 10 = 3")
    values[ids % 10 == 3] = -1
    lance.dataset(str(root)).delete("id < 40")
    values[:40] = -1
    assert len(read_version(newest_manifest(root)).manifest.fragments) == count - 10
    table.update({"v": "v + 1"}, "id % 10 = 4", mode="rows")
    values += (ids % 10 == 4) & (values >= 0)
    assert_values(root, values)
    # a column with values is a file for each fragment; once is enough
    has_values = make is many_files
    table.create_index("id").add_columns({"w": "id + 1"} if has_values else pa.field("w", pa.int64()))
    lance.dataset(str(root)).update({"v": "v + 1"}, "id % 10 = 5")
    values += (ids % 10 == 5) & (values >= 0)
    assert_values(root, values)

    assert len(conroi.open_table(root).compact()._pinned.manifest.fragments) <= 3
    assert_values(root, values)
    for found in both(root, ["id", "w"]):
        assert found["w"].null_count == (0 if has_values else found.num_rows)
        assert not has_values or np.array_equal(found["w"].to_numpy(), found["id"].to_numpy() + 1)
    assert lance.dataset(str(root)).to_table(["v"], filter="id = 400")["v"].to_pylist() == [values[400]]
    lance.dataset(str(root)).insert(rows(np.arange(5000, 5001)).append_column("w", pa.array([0], pa.int64())))
    assert lance.dataset(str(root)).get_fragments()[-1].fragment_id > count


# ----------------------------------------------------------------------------- columns that come back


def add(root: Path, by: str, what: Any) -> None:
    conroi.open_table(root).add_columns(what) if by == "conroi" else lance.dataset(str(root)).add_columns(what)


def drop(root: Path, by: str, name: str) -> None:
    conroi.open_table(root).drop_columns([name]) if by == "conroi" else lance.dataset(str(root)).drop_columns([name])


def column(root: Path, name: str) -> list[list[Any]]:
    return [table.sort_by("id")[name].to_pylist() for table in both(root, ["id", name])]


@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
@pytest.mark.parametrize("adds", ["conroi", "pylance"])
@pytest.mark.parametrize("drops", ["conroi", "pylance"])
def test_a_column_that_is_dropped_and_added_again_does_not_bring_back_its_values(
    tmp_path: Path, drops: str, adds: str, stable: bool
) -> None:
    root = tmp_path / "table"
    conroi.create_table(root, pa.table({"id": range(6), "x": range(6)}), stable_row_ids=stable)
    conroi.open_table(root).append(pa.table({"id": range(6, 9), "x": range(6, 9)}))

    drop(root, drops, "x")
    add(root, adds, pa.field("x", pa.int64()))
    assert column(root, "x") == [[None] * 9] * 2
    add(root, drops, {"y": "id * 2"})
    drop(root, adds, "y")
    add(root, drops, {"y": "id * 3"})
    assert column(root, "y") == [[i * 3 for i in range(9)]] * 2
    drop(root, drops, "y")
    add(root, adds, pa.field("y", pa.string()))  # of another type
    assert column(root, "y") == [[None] * 9] * 2

    conroi.open_table(root).append([{"id": 9, "x": 90, "y": "nine"}])
    lance.dataset(str(root)).insert(pa.table({"id": [10], "x": [100], "y": ["ten"]}))
    conroi.open_table(root).update({"x": "id"}, "id < 3", mode="columns")
    expected = [0, 1, 2, *[None] * 6, 90, 100]
    assert column(root, "x") == [expected] * 2
    drop(root, drops, "x")
    conroi.open_table(root).append([{"id": 11, "y": None, "x": 7}], evolve_schema=True)
    assert column(root, "x") == [[None] * 11 + [7]] * 2
    conroi.open_table(root).compact()
    lance.dataset(str(root)).optimize.compact_files()
    assert column(root, "x") == [[None] * 11 + [7]] * 2
    assert column(root, "y") == [[None] * 9 + ["nine", "ten", None]] * 2
    assert conroi.open_table(root, version=2).to_arrow().sort_by("id")["x"].to_pylist() == list(range(9))


@pytest.mark.parametrize("by", ["conroi", "pylance"])
def test_a_name_that_was_renamed_away_is_free_for_a_new_column(tmp_path: Path, by: str) -> None:
    root = tmp_path / "table"
    conroi.create_table(root, pa.table({"id": range(4), "x": range(4)}))
    conroi.open_table(root).create_index("x", name="on_x")
    if by == "conroi":
        conroi.open_table(root).rename_columns({"x": "old"})
    else:
        lance.dataset(str(root)).alter_columns(cast("Any", {"path": "x", "name": "old"}))
    add(root, "conroi" if by == "pylance" else "pylance", pa.field("x", pa.int64()))
    assert column(root, "x") == [[None] * 4] * 2
    assert column(root, "old") == [[0, 1, 2, 3]] * 2
    for where, expected in (("x = 2", []), ("old = 2", [2]), ("x IS NULL", [0, 1, 2, 3])):
        assert sorted(column_values(lance.dataset(str(root)).to_table(filter=where)["id"])) == expected
        assert sorted(column_values(conroi.open_table(root).to_arrow(filter=where)["id"])) == expected
    assert conroi.open_table(root).indices == {"on_x": ("old",)}


@pytest.mark.parametrize("by", ["conroi", "pylance"])
def test_a_part_of_a_struct_can_be_dropped_and_renamed(tmp_path: Path, by: str) -> None:
    root = tmp_path / "table"
    points = [{"x": i, "y": f"y{i}", "z": {"q": i * 2}} for i in range(4)]
    conroi.create_table(root, pa.table({"id": range(4), "at": pa.array(points)}))
    drop(root, by, "at.y")
    if by == "conroi":
        conroi.open_table(root).rename_columns({"at.z.q": "r"})
    else:
        lance.dataset(str(root)).alter_columns(cast("Any", {"path": "at.z.q", "name": "r"}))
    expected = [{"x": i, "z": {"r": i * 2}} for i in range(4)]
    assert column(root, "at") == [expected] * 2
    conroi.open_table(root).append([{"id": 4, "at": {"x": 9, "z": {"r": 8}}}]).delete("id = 0")
    conroi.open_table(root).update({"id": "id + 10"}, "id = 2", mode="rows")
    conroi.open_table(root).compact()
    lance.dataset(str(root)).insert(pa.table({"id": [5], "at": pa.array([{"x": 1, "z": {"r": 1}}])}))
    after = [expected[1], expected[3], {"x": 9, "z": {"r": 8}}, {"x": 1, "z": {"r": 1}}, expected[2]]
    assert column(root, "at") == [after] * 2


@pytest.mark.parametrize("mode", ["columns", "rows", "replace"])
@pytest.mark.parametrize("drops", ["conroi", "pylance"])
def test_a_column_that_shares_its_file_with_a_dropped_one_can_be_rewritten(
    tmp_path: Path, drops: str, mode: Literal["columns", "rows", "replace"]
) -> None:
    root = tmp_path / "table"
    table = conroi.create_table(root, pa.table({"id": range(4)})).add_columns({"x": "id * 2", "y": "id * 3"})
    drop(root, drops, "y")
    if mode == "replace":
        table.replace_column_data({"x": "id * 5"})
    else:
        table.update({"x": "id * 5"}, mode=mode)
    assert column(root, "x") == [[0, 5, 10, 15]] * 2
    add(root, drops, pa.field("y", pa.int64()))
    assert column(root, "y") == [[None] * 4] * 2
    lance.dataset(str(root)).update({"x": "x + 1"}, "id = 1")
    conroi.open_table(root).compact()
    assert column(root, "x") == [[0, 6, 10, 15]] * 2
