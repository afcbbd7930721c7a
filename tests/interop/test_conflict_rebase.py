"""Where we land and pylance would start again: pylance reads the table that we make of the two, row by row.

Real files by pylance, the rebase by us, nothing committed: pylance opens the manifest that we would commit.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyroaring import BitMap

from conroi import operations as ops
from conroi.conflicts.facts import Staged
from conroi.conflicts.reason import ConcurrentCommit
from conroi.conflicts.rebase import Rebase
from conroi.conflicts.row_merge import vector_key
from conroi.conflicts.rules import Outcome
from conroi.format import lance_pb2 as pb
from conroi.format.deletions import encode_deletions
from conroi.format.manifest import Manifest
from conroi.operations import Step
from tests.interop.conflict_cases import Prepared, committed
from tests.interop.test_conflict_matrix import commit, read_vector
from tests.support.parity import Version, versions_of

Rows = dict[int, tuple[int, ...]]
Change = Callable[[str, Rows], None]
UUID = "00000000-0000-4000-8000-000000000000"
GONE = {3, 19, 40, 41}


class Arena:
    """A table that others change while we work on an old version of it."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.base = self.newest().manifest

    def newest(self) -> Version:
        return list(versions_of(self.root).values())[-1]

    def rebased(self, mine: ops.Operation, *, rewrite_keeps_order: bool = False) -> tuple[Outcome, Manifest]:
        """The answer, and the manifest that we would commit."""
        newer = [v for number, v in versions_of(self.root).items() if number > self.base.version]
        winners = [ConcurrentCommit.of(v.manifest, v.transaction, ops.of(v.transaction)) for v in newer]
        rebase = Rebase(Staged(mine, self.base, rewrite_keeps_order=rewrite_keeps_order)).over_all(winners)
        head = newer[-1].manifest
        merged = rebase.merge(head, {vector_key(f): read_vector(self.root, f) for f in rebase.needs(head)})
        files = {number: self._write(number, rows, head.version) for number, rows in merged.vectors_to_write.items()}
        return merged.verdict.outcome, self.built(merged.operation(files), head)

    def built(self, operation: ops.Operation, head: Manifest) -> Manifest:
        made = ops.transaction(operation, read_version=self.base.version, uuid=UUID)
        step = Step(head.version + 1, read=self.base)
        return ops.build(head, made, operation, step, timestamp_ns=1, writer_version=("conroi", "0"))

    def _write(self, number: int, rows: BitMap, version: int) -> pb.DeletionFile:
        kind, data = encode_deletions(rows, force_bitmap=True)
        (Path(self.root) / "_deletions" / f"{number}-{version}-42.bin").write_bytes(data)
        return pb.DeletionFile(file_type=kind, read_version=version, id=42, num_deleted_rows=len(rows))

    def read(self, manifest: Manifest) -> Rows:
        """What pylance reads: by the first column, the others."""
        dataset = lance.LanceDataset(self.root, version=manifest.version, serialized_manifest=manifest.message)
        rows = [tuple(row.values()) for row in dataset.to_table().to_pylist()]
        assert len({row[0] for row in rows}) == len(rows), "a row is there twice"
        return {row[0]: row[1:] for row in rows}


def compaction(arena: Arena, elsewhere: Path) -> ops.Rewrite:
    """What pylance does to compact the base, done on a copy, so that the table stays as it is."""
    shutil.copytree(arena.root, elsewhere)
    lance.dataset(str(elsewhere)).optimize.compact_files(
        target_rows_per_fragment=25, materialize_deletions_threshold=0.01
    )
    operation = ops.of(list(versions_of(elsewhere).values())[-1].transaction)
    assert isinstance(operation, ops.Rewrite)
    groups = [pb.Transaction.Rewrite.Group.FromString(group.SerializeToString()) for group in operation.groups]
    for new in (new for group in groups for new in group.new_fragments):
        new.id = 0  # these were reserved over there
        for file in new.files:
            shutil.copy(elsewhere / "data" / file.path, Path(arena.root) / "data")
    return ops.Rewrite(groups=tuple(groups))


def delete(*keys: int) -> Change:
    def change(root: str, rows: Rows) -> None:
        lance.dataset(root).delete(f"a in {(*keys, -1)}")
        for key in keys:
            rows.pop(key, None)

    return change


def update(*keys: int) -> Change:
    def change(root: str, rows: Rows) -> None:
        lance.dataset(root).update({"b": "b + 1000"}, where=f"a in {(*keys, -1)}")
        rows.update({key: (rows[key][0] + 1000,) for key in keys if key in rows})

    return change


def table(root: Path, count: int, *, rows_per_file: int = 10, stable_row_ids: bool = False) -> Rows:
    data = pa.table({"a": range(count), "b": range(count)})
    lance.write_dataset(data, str(root), max_rows_per_file=rows_per_file, enable_stable_row_ids=stable_row_ids)
    return {key: (key,) for key in range(count)}


SCENARIOS: dict[str, list[Change]] = {
    "one row": [delete(0)],
    "the ends of two fragments": [delete(9, 10), update(59)],
    "one row again and again": [update(5), update(5), delete(5), update(6)],
    "all of a fragment": [delete(*range(10, 19))],
    "all of a fragment moved": [update(*range(20, 30)), delete(42)],
    "many": [delete(*range(0, 60, 7)), update(*range(1, 60, 5)), delete(*range(2, 60, 11))],
}


@pytest.mark.contract("M1")
@pytest.mark.parametrize("stable_row_ids", [False, True], ids=["row addresses", "stable row ids"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_compaction_lands_on_changes_and_loses_none(tmp_path: Path, scenario: str, stable_row_ids: bool) -> None:
    rows = table(tmp_path / "t", 60, stable_row_ids=stable_row_ids)
    delete(*GONE)(str(tmp_path / "t"), rows)
    arena = Arena(tmp_path / "t")
    mine = compaction(arena, tmp_path / "copy")
    for change in SCENARIOS[scenario]:
        change(arena.root, rows)
    outcome, manifest = arena.rebased(mine, rewrite_keeps_order=True)
    assert outcome is Outcome.REBASED
    assert arena.read(manifest) == rows
    assert len(manifest.fragments) < len(arena.newest().manifest.fragments)


@pytest.mark.contract("M1")
def test_compaction_lands_on_fifty_changes_by_chance(tmp_path: Path) -> None:
    chance = random.Random(7)
    rows = table(tmp_path / "t", 200, rows_per_file=20)
    arena = Arena(tmp_path / "t")
    mine = compaction(arena, tmp_path / "copy")
    for _ in range(50):
        keys = chance.sample(range(200), chance.randint(1, 4))
        (delete if chance.random() < 0.4 else update)(*keys)(arena.root, rows)
    outcome, manifest = arena.rebased(mine, rewrite_keeps_order=True)
    assert outcome is Outcome.REBASED
    assert arena.read(manifest) == rows


def test_without_the_translation_a_deleted_row_comes_back(tmp_path: Path) -> None:
    """Negative control: the same compaction, put on top as it is."""
    rows = table(tmp_path / "t", 60)
    arena = Arena(tmp_path / "t")
    mine = compaction(arena, tmp_path / "copy")
    delete(0)(arena.root, rows)
    found = arena.read(arena.built(mine, arena.newest().manifest))
    assert found.keys() - rows.keys() == {0}


@pytest.mark.contract("T6")
@pytest.mark.parametrize("theirs", ["delete row 5 of 0", "call delete row 5 of 0", "call update row 5 of 0"])
def test_column_rewrite_lands_on_deletions_and_keeps_both(tmp_path: Path, theirs: str) -> None:
    """The new file of c says 7 for every row that is still in fragment 0; row 5 is deleted, or moved with b = 1."""
    prepared = Prepared(tmp_path / "t")
    alone = prepared.copy(tmp_path / "alone")
    commit(alone, prepared.cases["rewrite c of 0, rows known"], prepared.version)
    mine = ops.of(committed(alone, prepared.version + 1).transaction)
    arena = Arena(tmp_path / "t")
    commit(arena.root, prepared.cases[theirs], prepared.version)
    outcome, manifest = arena.rebased(mine)
    assert outcome is Outcome.REBASED
    expected: Rows = {key: (0, 7 if key < 10 else key) for key in range(40) if key not in (5, 19)}
    if "update" in theirs:
        expected[5] = (1, 5)
    assert arena.read(manifest) == expected
