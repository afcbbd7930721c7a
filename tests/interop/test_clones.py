"""Clones of each other's tables, shallow and deep, on which both write; the table that was cloned never notices."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, cast

import lance
import pyarrow as pa
import pytest

import conroi
from tests.interop.model import Model
from tests.interop.readers import assert_seen, opened
from tests.interop.tables import Kind, Stable, two_kinds
from tests.interop.verbs import ROW_VERBS, VERBS, Verb, named
from tests.support.arrow import column_values
from tests.support.sampling import sampled

pytestmark = pytest.mark.contract("T5")

BY_PYLANCE = [
    named(name) for name in ("append", "delete", "update rows", "merge", "scalar index", "compact", "tag", "merge")
]


def both_write(root: Path, model: Model, verbs: Sequence[Verb]) -> None:
    """Verbs of ours, and now and then one of pylance."""
    for number, verb in enumerate(verbs):
        if verb.ours and verb.applies(model):
            verb.ours(opened(root), model)
            verb.change(model)
            assert_seen(root, model)
        if number % 3 == 0:
            by_pylance(root, BY_PYLANCE[number // 3 % len(BY_PYLANCE)], model)


def by_pylance(root: Path, verb: Verb, model: Model) -> None:
    if verb.applies(model):
        assert verb.theirs
        verb.theirs(lance.dataset(str(root)), model)
        verb.change(model)
        assert_seen(root, model)


@pytest.mark.parametrize(
    ("deep", "kind"), sampled("clones of conroi", list(product((False, True), two_kinds("conroi"))), least=2)
)
def test_pylance_and_conroi_write_on_a_clone_that_conroi_made(tables: Stable, kind: Kind, deep: bool) -> None:
    root, model = tables.copy(kind)
    table = opened(root).create_index("id", name="by_id")
    target = root.with_name(f"{root.name}-clone")
    clone = table.clone(str(target), deep=deep)
    assert clone.version == table.version
    assert_seen(target, model)
    assert set(clone.indices) == {"by_id"}
    both_write(target, model.copy(), ROW_VERBS if deep else VERBS)
    assert_seen(root, model, version=table.version)


@pytest.mark.parametrize(
    ("deep", "kind"), sampled("clones of pylance", list(product((False, True), two_kinds("pylance"))), least=2)
)
def test_pylance_and_conroi_write_on_a_clone_that_pylance_made(tables: Stable, kind: Kind, deep: bool) -> None:
    root, model = tables.copy(kind)
    dataset = lance.dataset(str(root))
    dataset.create_scalar_index("id", "BTREE", name="by_id")
    target = root.with_name(f"{root.name}-clone")
    make = dataset.deep_clone if deep else dataset.shallow_clone
    make(str(target), dataset.version)
    assert_seen(target, model)
    both_write(target, model.copy(), ROW_VERBS if deep else VERBS)
    assert_seen(root, model)


def test_a_clone_of_a_past_version_has_the_rows_of_then(tables: Stable) -> None:
    root, model = tables.copy(Kind("conroi"))
    table = opened(root)
    table.delete("true")
    table.clone(str(root.with_name(f"{root.name}-before")))
    assert_seen(root.with_name(f"{root.name}-before"), model)


def test_a_clone_of_a_shallow_clone_finds_the_files_of_both(tables: Stable) -> None:
    root, model = tables.copy(Kind("conroi"))
    first, second = root.with_name(f"{root.name}-1"), root.with_name(f"{root.name}-2")
    opened(root).clone(str(first)).append(model.new(range(600, 605)))
    model.append(model.make(range(600, 605)))
    clone = opened(first).clone(str(second))
    assert_seen(second, model)
    clone.delete("id % 2 = 0")
    lance.dataset(str(second)).insert(model.new(range(700, 705)))
    model.rows = {i: row for i, row in model.rows.items() if i % 2}
    model.append(model.make(range(700, 705)))
    assert_seen(second, model)


@pytest.mark.contract("T29")
@pytest.mark.parametrize("kind", two_kinds("conroi"), ids=str)
def test_a_deep_clone_of_a_clone_of_a_clone_needs_none_of_them(tables: Stable, tmp_path: Path, kind: Kind) -> None:
    """G10: files under three roots, deletion files and an index among them."""
    root, model = tables.copy(kind)
    opened(root).create_index("id", name="by_id")
    first = opened(root).clone(str(tmp_path / "first")).append(model.new(range(600, 605)))
    first = first.delete("id = 601")
    second = first.clone(str(tmp_path / "second")).append(model.new(range(700, 705)))
    model.append(model.make([600, 602, 603, 604]))
    model.append(model.make(range(700, 705)))
    deep = second.clone(str(tmp_path / "deep"), deep=True)
    for place in (root, tmp_path / "first", tmp_path / "second"):
        shutil.rmtree(place)
    assert_seen(tmp_path / "deep", model)
    assert set(deep.indices) == {"by_id"}
    both_write(tmp_path / "deep", model, ROW_VERBS[:4])


@pytest.mark.contract("T29")
@pytest.mark.parametrize("is_root", [True, False], ids=["root of a table", "bare folder"])
def test_a_deep_clone_has_the_files_of_a_base(tmp_path: Path, is_root: bool) -> None:
    """Under a base that is the root of a table files are below data/, else right in it."""
    base = lance.DatasetBasePath(str(tmp_path / "base"), name="base", is_dataset_root=is_root)
    (tmp_path / "base").mkdir()
    data = pa.table({"v": [1, 2]})
    lance.write_dataset(data, str(tmp_path / "t"), initial_bases=[base], target_bases=["base"], mode="create")
    opened(tmp_path / "t").append(pa.table({"v": [3]})).clone(str(tmp_path / "deep"), deep=True)
    shutil.rmtree(tmp_path / "base")
    shutil.rmtree(tmp_path / "t")
    assert sorted(column_values(lance.dataset(str(tmp_path / "deep")).to_table()["v"])) == [1, 2, 3]


@pytest.mark.contract("T29")
def test_a_deep_clone_has_the_large_blobs(tmp_path: Path) -> None:
    """Blobs that are too large for the data file are in files beside it, which no manifest names."""
    sizes = [10, 300_000, 5_000_000]
    data = pa.table([lance.blob_array([b"x" * size for size in sizes])], schema=pa.schema([lance.blob_field("b")]))
    lance.write_dataset(data, str(tmp_path / "t"), data_storage_version="2.2")
    clone = opened(tmp_path / "t").clone(str(tmp_path / "shallow"))
    clone.clone(str(tmp_path / "deep"), deep=True)
    shutil.rmtree(tmp_path / "t")
    found = lance.dataset(str(tmp_path / "deep")).take_blobs("b", indices=[0, 1, 2])
    assert [len(cast("Any", blob).read()) for blob in found] == sizes


@pytest.mark.contract("T29", "B3")
def test_a_merge_of_branches_brings_the_large_blobs(tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "lake")
    schema = pa.schema([lance.blob_field("b")])
    lake.create_table("t", schema, data_format="2.2")
    lake.branches.create("dev")
    lake.branch("dev")["t"].append(pa.table([lance.blob_array([b"x" * 300_000])], schema=schema))
    lake.merge("dev")
    lake.branches.delete("dev")
    shutil.rmtree(tmp_path / "lake" / "t.lance" / "tree")
    found = lake["t"].to_lance().take_blobs("b", indices=[0])
    assert [len(cast("Any", blob).read()) for blob in found] == [300_000]


@pytest.mark.contract("T29")
@pytest.mark.parametrize("is_written", [False, True], ids=["inherited", "written"])
@pytest.mark.parametrize("deep", [False, True], ids=["shallow", "deep"])
def test_a_table_on_a_branch_can_be_cloned(tmp_path: Path, deep: bool, is_written: bool) -> None:
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"id": 1}, {"id": 2}])
    lake.branches.create("dev")
    dev = lake.branch("dev")
    expected = [1, 2]
    if is_written:
        dev["t"].append([{"id": 3}])
        dev["t"].delete("id = 1")
        expected = [2, 3]
    dev["t"].clone(str(tmp_path / "clone"), deep=deep)
    if deep:
        shutil.rmtree(tmp_path / "lake")
    assert sorted(column_values(lance.dataset(str(tmp_path / "clone")).to_table()["id"])) == expected
    assert opened(tmp_path / "clone").append([{"id": 9}]).count_rows() == 3


@pytest.mark.contract("T29")
def test_a_clone_in_the_folder_of_a_lake_is_a_table_of_the_lake(tables: Stable, tmp_path: Path) -> None:
    root, model = tables.copy(Kind("conroi"))
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("other", [{"id": 1}])
    table = opened(root)
    with pytest.raises(conroi.UnsupportedError, match="shallow clones"):
        table.clone(f"{lake.uri}/copied.lance")
    with pytest.raises(conroi.InvalidInputError, match="belongs to a lake"):
        table.clone(f"{lake.uri}/copied.lance", deep=True, put="rename")
    assert lake.tables() == ["other"]
    copied = table.clone(f"{lake.uri}/copied.lance", deep=True)
    assert (copied.uri, lake.tables()) == (lake["copied"].uri, ["copied", "other"])
    assert_seen(tmp_path / "lake" / "copied.lance", model)
    assert lake["copied"].delete("true").count_rows() == 0
    with pytest.raises(conroi.AlreadyExistsError):
        table.clone(f"{lake.uri}/copied.lance", deep=True)


@pytest.mark.contract("T30")
def test_a_clone_is_committed_by_the_way_that_was_asked_for(tables: Stable, tmp_path: Path) -> None:
    root, model = tables.copy(Kind("conroi"))
    table = opened(root)
    held: list[int] = []

    @contextmanager
    def lock(version: int) -> Generator[None]:
        held.append(version)
        yield

    store = f"sqlite:///{tmp_path}/versions.db"
    table.clone(str(tmp_path / "renamed"), put="rename").append(model.new([800]))
    table.clone(str(tmp_path / "locked"), commit_lock=lock).append(model.new([800]))
    table.clone(str(tmp_path / "stored"), store=store, deep=True).append(model.new([800]))
    assert held == [table.version, table.version + 1]
    model.append(model.make([800]))
    assert_seen(tmp_path / "renamed", model)
    assert_seen(tmp_path / "locked", model)
    assert conroi.open_table(tmp_path / "stored", store=store).version == table.version + 1


def test_a_clone_does_not_take_a_place_that_has_a_table(tables: Stable) -> None:
    root, _ = tables.copy(Kind("conroi"))
    other, model = tables.copy(Kind("pylance"))
    with pytest.raises(conroi.AlreadyExistsError):
        opened(root).clone(str(other))
    assert_seen(other, model)
