"""Clones of each other's tables, shallow and deep, on which both write; the table that was cloned never notices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import lance
import pytest

import conroi
from tests.interop.model import Model
from tests.interop.readers import assert_seen
from tests.interop.tables import Kind, Stable, two_kinds
from tests.interop.verbs import ROW_VERBS, VERBS, Verb, named

pytestmark = pytest.mark.contract("T5")

BY_PYLANCE = [
    named(name) for name in ("append", "delete", "update rows", "merge", "scalar index", "compact", "tag", "merge")
]


def both_write(root: Path, model: Model, verbs: Sequence[Verb]) -> None:
    """Verbs of ours, and now and then one of pylance."""
    for number, verb in enumerate(verbs):
        if verb.ours and verb.applies(model):
            verb.ours(conroi.open_table(root), model)
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


@pytest.mark.parametrize("kind", two_kinds("conroi"), ids=str)
@pytest.mark.parametrize("deep", [False, True], ids=["shallow", "deep"])
def test_pylance_and_conroi_write_on_a_clone_that_conroi_made(tables: Stable, kind: Kind, deep: bool) -> None:
    root, model = tables.copy(kind)
    table = conroi.open_table(root).create_index("id", name="by_id")
    target = root.with_name(f"{root.name}-clone")
    clone = table.clone(str(target), deep=deep)
    assert clone.version == table.version
    assert_seen(target, model)
    assert set(clone.indices) == {"by_id"}
    both_write(target, model.copy(), ROW_VERBS if deep else VERBS)
    assert_seen(root, model, version=table.version)


@pytest.mark.parametrize("kind", two_kinds("pylance"), ids=str)
@pytest.mark.parametrize("deep", [False, True], ids=["shallow", "deep"])
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
    table = conroi.open_table(root)
    table.delete("true")
    table.clone(str(root.with_name(f"{root.name}-before")))
    assert_seen(root.with_name(f"{root.name}-before"), model)


def test_a_clone_of_a_shallow_clone_finds_the_files_of_both(tables: Stable) -> None:
    root, model = tables.copy(Kind("conroi"))
    first, second = root.with_name(f"{root.name}-1"), root.with_name(f"{root.name}-2")
    conroi.open_table(root).clone(str(first)).append(model.new(range(600, 605)))
    model.append(model.make(range(600, 605)))
    clone = conroi.open_table(first).clone(str(second))
    assert_seen(second, model)
    clone.delete("id % 2 = 0")
    lance.dataset(str(second)).insert(model.new(range(700, 705)))
    model.rows = {i: row for i, row in model.rows.items() if i % 2}
    model.append(model.make(range(700, 705)))
    assert_seen(second, model)


def test_a_deep_clone_of_a_shallow_clone_is_refused_until_it_has_all_its_files(tables: Stable, tmp_path: Path) -> None:
    root, model = tables.copy(Kind("conroi"))
    shallow = conroi.open_table(root).clone(str(tmp_path / "shallow"))
    with pytest.raises(conroi.UnsupportedError, match="other roots") as refused:
        shallow.clone(str(tmp_path / "deep"), deep=True)
    assert "compact()" in (refused.value.hint or "")
    assert not (tmp_path / "deep" / "_versions").exists()
    shallow.compact().clone(str(tmp_path / "deep"), deep=True)
    assert_seen(tmp_path / "deep", model)


def test_a_clone_does_not_take_a_place_that_has_a_table(tables: Stable) -> None:
    root, _ = tables.copy(Kind("conroi"))
    other, model = tables.copy(Kind("pylance"))
    with pytest.raises(conroi.AlreadyExistsError):
        conroi.open_table(root).clone(str(other))
    assert_seen(other, model)
