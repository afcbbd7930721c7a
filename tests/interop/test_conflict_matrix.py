"""Every meeting that pylance's Python can bring about, answered by pylance and by us: the same answer, the same table.

Both changes are made on one version. The first is committed, then pylance is asked to commit the second as well. We get
the transactions as pylance wrote them (mine as it looks when it is committed alone), and must say the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import lance
import pytest
from pyroaring import BitMap

from conroi import operations as ops
from conroi.conflicts.facts import Staged
from conroi.conflicts.reason import COMPATIBLE, ConcurrentCommit, Reason, Verdict
from conroi.conflicts.rebase import Rebase
from conroi.conflicts.row_merge import Merged, vector_key
from conroi.conflicts.rules import Outcome
from conroi.format import lance_pb2 as pb
from conroi.format.deletions import decode_deletions
from conroi.format.manifest import Manifest
from conroi.operations import Step
from tests.interop.conflict_cases import CASE_NAMES, Case, Prepared, committed, manifest_path, plant, planted
from tests.support.parity import Version, assert_same
from tests.support.pylance import RELEASE
from tools.conflicts_page import DELIBERATE_DIFFERENCES

pytestmark = pytest.mark.contract("T6")

ALLOWED = {(difference.pylance, difference.finding) for difference in DELIBERATE_DIFFERENCES if difference.finding}

PYLANCE_ONLY = {
    # pylance forgets the schema's metadata when columns are dropped; we keep what a concurrent commit set.
    ("drop c", "schema metadata"),
    ("drop nothing, no promise", "schema metadata"),
}
"""Meetings after which the tables differ, because pylance loses something."""

LENIENT_UP_TO = {"settings/replaced-table": 12, "rows/column-gone": 12}
"""Rules that pylance has only since the next release: up to this one it commits what it refuses today."""


@dataclass(frozen=True)
class Arena:
    """The prepared table, what is known about it, and every change as pylance writes it when it is alone."""

    prepared: Prepared
    base: Version
    folder: Path
    alone: dict[str, Version]

    @property
    def next(self) -> int:
        return self.prepared.version + 1


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
        folder = tmp_path_factory.mktemp("conflicts")
        prepared = Prepared(folder / "base")
        arena = Arena(prepared, committed(str(prepared.root), prepared.version), folder, {})
        for name, case in prepared.cases.items():
            root = first_committed(arena, name)
            arena.alone[name] = committed(root, arena.next)
            assert case.operation is not None or case.call is not None
        yield arena


def first_committed(arena: Arena, name: str) -> str:
    """A copy of the table on which this change was committed first."""
    root = arena.folder / name.replace(" ", "-")
    if root.exists():
        return str(root)
    arena.prepared.copy(root)
    if name in planted():
        plant(str(root), arena.base, planted()[name])
    else:
        commit(str(root), arena.prepared.cases[name], arena.prepared.version)
    return str(root)


def commit(root: str, case: Case, version: int) -> None:
    if case.operation is not None:
        # Not 0: for an overwrite that would switch the check off.
        lance.LanceDataset.commit(root, case.operation, read_version=version, max_retries=1)
    elif case.call is not None:
        case.call(lance.dataset(root, version=version))


def pylance_says(root: str, case: Case, version: int) -> Outcome | None:
    """COMPATIBLE also stands for a commit that pylance rebased: it does not tell.

    None: refused by pylance 12 or 13 while it builds the manifest, so that it does not tell whether to try again.
    """
    try:
        commit(root, case, version)
    except OSError as error:
        text = str(error)
        if "Incompatible transaction" in text:
            return Outcome.INCOMPATIBLE
        if "Retryable commit conflict" in text or "Too many concurrent writers" in text:
            return Outcome.RETRYABLE
        if "Field with id" in text and "does not exist" in text:  # found out while building, and as final
            return Outcome.INCOMPATIBLE
        if RELEASE < 14 and ("did not contain an operation" in text or "user input: Merge operation" in text):
            return None
        raise
    return Outcome.COMPATIBLE


def we_say(arena: Arena, mine: str, root: str, theirs: Version) -> Merged:
    case = arena.prepared.cases[mine]
    rows = None if case.rows is None else {number: BitMap(offsets) for number, offsets in case.rows.items()}
    operation = ops.of(arena.alone[mine].transaction)
    winner = ConcurrentCommit.of(theirs.manifest, theirs.transaction, ops.of(theirs.transaction))
    rebase = Rebase(Staged(operation, arena.base.manifest, rows)).over(winner)
    needed = rebase.needs(theirs.manifest) if rebase.verdict.outcome.lands else ()
    return rebase.merge(theirs.manifest, {vector_key(state): read_vector(root, state) for state in needed})


def read_vector(root: str, fragment: pb.DataFragment) -> BitMap:
    if not fragment.HasField("deletion_file"):
        return BitMap()
    file = fragment.deletion_file
    kind = "bin" if file.file_type == pb.DeletionFile.BITMAP else "arrow"
    path = Path(root) / "_deletions" / f"{fragment.id}-{file.read_version}-{file.id}.{kind}"
    return decode_deletions(path.read_bytes(), file)


def assert_same_table(arena: Arena, merged: Merged, root: str, theirs: Version, mine: str) -> None:
    """What pylance made of the two is what we make of them."""
    after = committed(root, arena.next + 1)
    files = {number: after.manifest.fragments_by_id[number].deletion_file for number in merged.vectors_to_write}
    for number, vector in merged.vectors_to_write.items():
        assert read_vector(root, after.manifest.fragments_by_id[number]) == vector
        assert files[number].file_type == pb.DeletionFile.BITMAP
        assert files[number].read_version == arena.next
    operation = merged.operation(files)
    transaction = ops.transaction(operation, read_version=merged.read_version, uuid=after.transaction.uuid)
    restored = committed(root, operation.version).manifest if isinstance(operation, ops.Restore) else None
    step = Step(arena.next + 1, restored=restored, read=arena.base.manifest)
    ours = ops.build(theirs.manifest, transaction, operation, step, timestamp_ns=1, writer_version=("conroi", "0"))
    assert after.transaction.read_version == merged.read_version
    if arena.prepared.cases[mine].operation is not None:
        assert_same(ours, after.manifest, f"{mine} after {theirs.transaction.operation_name}")
    else:  # pylance did the work again, with files of other names
        assert rows_of(ours) == rows_of(after.manifest)


def rows_of(manifest: Manifest) -> dict[int, tuple[int, int]]:
    return {f.id: (f.physical_rows, f.deletion_file.num_deleted_rows) for f in manifest.fragments}


def can_compare_tables(mine: str, theirs: str) -> bool:
    """Tables with overlays are not for us; a planted winner changed nothing but the version."""
    return (
        not any("overlay" in name or "planted" in name for name in (mine, theirs))
        and (mine, theirs) not in PYLANCE_ONLY
    )


def agree(pylance: Outcome | None, ours: Verdict) -> bool:
    """The same answer, or a difference that is on the list; pylance does not tell whether it rebased."""
    if pylance is None:
        return not ours.outcome.lands
    if ours.outcome is pylance or (ours.outcome.lands and pylance.lands):
        return True
    if ours.reason is None:
        return False
    is_lenient = pylance.lands and LENIENT_UP_TO.get(ours.reason.rule, 0) >= RELEASE
    return is_lenient or (pylance, ours.reason.rule) in ALLOWED


def meet(arena: Arena, mine: str, theirs: str, root: str, first: Version) -> str | None:
    """What is wrong with our answer, if anything."""
    merged = we_say(arena, mine, root, first)
    ours = merged.verdict
    pylance = pylance_says(root, arena.prepared.cases[mine], arena.prepared.version)
    try:
        if pylance is not None and pylance.lands and ours.outcome.lands and can_compare_tables(mine, theirs):
            assert_same_table(arena, merged, root, first, mine)
    finally:  # so that the next one finds the table as it was
        manifest_path(root, arena.next + 1).unlink(missing_ok=True)
    if agree(pylance, ours) or (pylance is None and theirs == "planted unknown"):  # up to 13 that ends every commit
        return None
    return f"{mine}, after {theirs}: pylance {pylance}, conroi {ours}"


@pytest.mark.parametrize("theirs", [*CASE_NAMES, *planted()])
def test_a_conflict_is_decided_as_by_pylance(arena: Arena, theirs: str) -> None:
    root = first_committed(arena, theirs)
    first = committed(root, arena.next)
    wrong = [problem for mine in arena.prepared.cases if (problem := meet(arena, mine, theirs, root, first))]
    assert wrong == []


def test_every_case_takes_its_turn_as_the_first(arena: Arena) -> None:
    assert set(CASE_NAMES) == arena.prepared.cases.keys()


def test_pylance_gives_all_its_answers_here(arena: Arena) -> None:
    """Negative control: the comparison would notice an answer that is always the same."""
    root = first_committed(arena, "restore")
    cases = arena.prepared.cases
    answers = {name: pylance_says(root, cases[name], arena.prepared.version) for name in ("append", "restore")}
    manifest_path(root, arena.next + 1).unlink()
    root = first_committed(arena, "merge")
    answers["merge"] = pylance_says(root, cases["merge"], arena.prepared.version)
    assert answers == {
        "append": Outcome.INCOMPATIBLE,
        "restore": Outcome.COMPATIBLE,
        "merge": Outcome.RETRYABLE,
    }
    retry = Verdict(Outcome.RETRYABLE, Reason("rows/unknown", "Delete", "Delete"))
    assert not agree(Outcome.INCOMPATIBLE, COMPATIBLE)
    assert not agree(Outcome.INCOMPATIBLE, retry)
    assert not agree(Outcome.COMPATIBLE, retry)


def test_pylance_breaks_a_table_that_concurrently_loses_an_indexed_column(arena: Arena) -> None:
    """Why we refuse an index on a column that was dropped: pylance commits it, and then cannot filter any more."""
    root = first_committed(arena, "drop c")
    commit(root, arena.prepared.cases["index by_c over 2 and 3"], arena.prepared.version)
    with pytest.raises(ValueError, match="did not exist in the schema"):
        lance.dataset(root).to_table(filter="b = 0")
    manifest_path(root, arena.next + 1).unlink()
