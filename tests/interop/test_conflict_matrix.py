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
from conroi.conflicts.differences import DELIBERATE_DIFFERENCES
from conroi.conflicts.merging import Merged
from conroi.conflicts.outcome import Outcome
from conroi.conflicts.rebase import Rebase
from conroi.conflicts.reason import Winner
from conroi.conflicts.staged import Staged
from conroi.conflicts.vectors import VectorKey, vector_key
from conroi.format import lance_pb2 as pb
from conroi.format.deletions import decode_deletions
from conroi.operations import Step
from tests.interop.conflict_cases import Case, Prepared, committed, manifest_path, plant, planted
from tests.operations.parity import Version, assert_same

pytestmark = pytest.mark.contract("T6", "T15")

ALLOWED = {
    (*pair, difference.pylance, difference.conroi) for difference in DELIBERATE_DIFFERENCES for pair in difference.pairs
}


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


def pylance_says(root: str, case: Case, version: int) -> Outcome:
    """COMPATIBLE also stands for a commit that pylance rebased: it does not tell."""
    try:
        commit(root, case, version)
    except OSError as error:
        text = str(error)
        if "Incompatible transaction" in text:
            return Outcome.INCOMPATIBLE
        if "Retryable commit conflict" in text or "Too many concurrent writers" in text:
            return Outcome.RETRYABLE
        raise
    return Outcome.COMPATIBLE


def we_say(arena: Arena, mine: str, theirs: Version) -> tuple[Merged, Rebase]:
    case = arena.prepared.cases[mine]
    rows = None if case.rows is None else {number: BitMap(offsets) for number, offsets in case.rows.items()}
    operation = ops.of(arena.alone[mine].transaction)
    winner = Winner.of(theirs.manifest, theirs.transaction, ops.of(theirs.transaction))
    rebase = Rebase(Staged(operation, arena.base.manifest, rows)).over(winner)
    return rebase.merge(theirs.manifest, {}), rebase


def read_vectors(root: str, rebase: Rebase, head: Version) -> dict[VectorKey, BitMap]:
    return {vector_key(fragment): read_vector(root, fragment) for fragment in rebase.needs(head.manifest)}


def read_vector(root: str, fragment: pb.DataFragment) -> BitMap:
    file = fragment.deletion_file
    kind = "bin" if file.file_type == pb.DeletionFile.BITMAP else "arrow"
    path = Path(root) / "_deletions" / f"{fragment.id}-{file.read_version}-{file.id}.{kind}"
    return decode_deletions(path.read_bytes(), file)
