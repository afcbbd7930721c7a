"""A compaction that meets deletions on what it copied: it lands, and the deleted rows stay deleted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from pyroaring import BitMap

from conroi import operations as ops
from conroi.conflicts.rebase import Rebase
from conroi.conflicts.row_merge import Merged, vector_key
from conroi.conflicts.rules import Outcome
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from tests.conflicts.builders import (
    A,
    B,
    delete,
    deletion_file,
    head_after,
    index,
    manifest,
    move,
    new_fragment,
    reuse_index,
    rewrite,
    rewrite_column,
    staged,
    vectors,
    winner,
)

pytestmark = pytest.mark.contract("M1")


def compacted(mine: ops.Rewrite, *theirs: tuple[ops.Operation, Iterable[int]], head: Manifest | None = None) -> Merged:
    """My compaction, which keeps the order of rows, on top of these changes of one fragment each."""
    rebase = Rebase(staged(mine, rewrite_keeps_order=True))
    rebase = rebase.over_all(winner(operation, 6 + at) for at, (operation, _) in enumerate(theirs))
    known = vectors(*((f, rows) for operation, rows in theirs for f in getattr(operation, "updated_fragments", ())))
    head = head or head_after(*(operation for operation, _ in theirs))
    assert {vector_key(state) for state in rebase.needs(head)} <= known.keys()
    return rebase.merge(head, known)


def rule(merged: Merged) -> str | None:
    return None if merged.verdict.reason is None else merged.verdict.reason.rule


def committed(merged: Merged) -> ops.Rewrite:
    files = {n: deletion_file(n, len(rows), 6) for n, rows in merged.vectors_to_write.items()}
    operation = merged.operation(files)
    assert isinstance(operation, ops.Rewrite)
    return operation


def test_deleted_row_is_marked_in_the_new_fragment() -> None:
    """Fragment 1 had lost row 9 before; its row 4 is row 14 of the new fragment, which gets the next free id, 10."""
    merged = compacted(rewrite(0, 1), (delete(1, [4], file=1), [4, 9]))
    assert merged.verdict.outcome is Outcome.REBASED
    assert merged.vectors_to_write == {10: BitMap([14])}
    assert merged.read_version == 5
    operation = committed(merged)
    (group,) = operation.groups
    assert [(new.id, new.deletion_file) for new in group.new_fragments] == [(10, deletion_file(10, 1, 6))]
    assert operation.is_numbered, "the name of its deletion file has the id"
    assert [old.id for old in group.old_fragments] == [0, 1]


def test_rows_moved_by_an_update_are_marked_as_well() -> None:
    merged = compacted(rewrite(0, 1), (move(0, [0, 9], file=1), [0, 9]))
    assert merged.vectors_to_write == {10: BitMap([0, 9])}


def test_changes_by_several_commits_are_taken_together() -> None:
    merged = compacted(rewrite(0, 1), (delete(0, [2], file=1), [2]), (delete(1, [0], file=2), [0, 9]))
    assert merged.vectors_to_write == {10: BitMap([2, 10])}


def test_reserved_ids_are_kept() -> None:
    new = new_fragment("compacted.lance", 19)
    new.id = 7
    merged = compacted(rewrite(0, 1, new=[new]), (delete(0, [2], file=1), [2]))
    assert merged.vectors_to_write == {7: BitMap([2])}


def test_rows_go_to_the_right_one_of_several_new_fragments() -> None:
    mine = rewrite(0, 1, new=[new_fragment("x.lance", 12), new_fragment("y.lance", 7)])
    merged = compacted(mine, (delete(1, [1, 2, 8], file=1), [1, 2, 8, 9]))
    assert merged.vectors_to_write == {10: BitMap([11]), 11: BitMap([0, 6])}


def test_an_untouched_group_is_left_as_it_is() -> None:
    mine = ops.Rewrite(groups=(*rewrite(0, 1).groups, *rewrite(2, 3).groups))
    merged = compacted(mine, (delete(2, [0], file=1), [0]))
    assert merged.vectors_to_write == {11: BitMap([0])}
    first, second = committed(merged).groups
    assert not first.new_fragments[0].HasField("deletion_file")
    assert second.new_fragments[0].id == 11


def test_a_fragment_that_was_removed_counts_as_one_with_all_rows_deleted() -> None:
    merged = compacted(rewrite(0, 1), (ops.Delete(deleted_fragment_ids=(0,)), ()))
    assert merged.vectors_to_write == {10: BitMap(range(10))}
    (group,) = committed(merged).groups
    assert [old.id for old in group.old_fragments] == [1]


def test_a_fragment_that_lost_rows_first_and_then_all_is_gone() -> None:
    merged = compacted(rewrite(0, 1), (delete(0, [3], file=1), [3]), (ops.Update(removed_fragment_ids=(0,)), ()))
    assert merged.vectors_to_write == {10: BitMap(range(10))}


def test_a_new_fragment_without_a_row_left_is_dropped() -> None:
    mine = rewrite(0, 1, new=[new_fragment("x.lance", 10), new_fragment("y.lance", 9)])
    merged = compacted(mine, (ops.Delete(deleted_fragment_ids=(0,)), ()))
    assert merged.vectors_to_write == {}
    (group,) = committed(merged).groups
    assert [new.files[0].path for new in group.new_fragments] == ["y.lance"]


@pytest.mark.parametrize("is_remapped", [True, False], ids=["rebuilt index", "reuse index"])
def test_a_new_fragment_that_an_index_points_to_is_not_dropped(is_remapped: bool) -> None:
    mine = rewrite(0, 1, new=[new_fragment("x.lance", 10), new_fragment("y.lance", 9)])
    mine = replace(
        mine,
        rewritten_indices=(pb.Transaction.Rewrite.RewrittenIndex(),) if is_remapped else (),
        fragment_reuse_index=None if is_remapped else reuse_index(1, 6),
    )
    merged = compacted(mine, (ops.Delete(deleted_fragment_ids=(0,)), ()))
    assert (merged.verdict.outcome, rule(merged)) == (Outcome.RETRYABLE, "rewrite/indexed")


def test_a_compaction_of_which_nothing_is_left_is_retried() -> None:
    merged = compacted(rewrite(0, 1), (ops.Delete(deleted_fragment_ids=(0, 1)), ()))
    assert (merged.verdict.outcome, rule(merged)) == (Outcome.RETRYABLE, "rewrite/nothing-left")


def test_new_values_in_place_are_retried() -> None:
    merged = compacted(rewrite(0, 1), (rewrite_column(0, B, [1], file=1), ()))
    assert (merged.verdict.outcome, rule(merged)) == (Outcome.RETRYABLE, "rewrite/same-fragments")


def test_without_the_promise_of_order_deletions_are_retried() -> None:
    verdict = Rebase(staged(rewrite(0, 1))).over(winner(delete(0, [1], file=1))).verdict
    assert verdict.outcome is Outcome.RETRYABLE


@pytest.mark.parametrize(("covers", "lands"), [([0, 1], True), ([2], True), ([0], False)])
def test_an_index_that_lost_half_of_a_group_cannot_follow(covers: list[int], lands: bool) -> None:
    theirs = delete(0, [1], file=1)
    followed = index("by_a", 5, [A], covers)
    mine = replace(rewrite(0, 1), rewritten_indices=(pb.Transaction.Rewrite.RewrittenIndex(old_id=followed.uuid),))
    head = manifest(6, head_after(theirs).fragments, [followed])
    merged = compacted(mine, (theirs, [1]), head=head)
    assert merged.verdict.outcome.lands == lands
    assert lands or rule(merged) == "rewrite/index-straddles"
    # With a fragment-reuse index it is the same; an index that is not rebuilt is left behind and does not matter.
    deferred = replace(rewrite(0, 1), fragment_reuse_index=reuse_index(1, 6))
    assert compacted(deferred, (theirs, [1]), head=head).verdict.outcome.lands == lands
    assert compacted(rewrite(0, 1), (theirs, [1]), head=head).verdict.outcome.lands


def test_what_was_handed_over_is_not_changed() -> None:
    mine = rewrite(0, 1)
    committed(compacted(mine, (delete(0, [1], file=1), [1])))
    assert mine == rewrite(0, 1)


def test_a_new_fragment_with_deletions_of_its_own_is_refused() -> None:
    new = new_fragment("compacted.lance", 19)
    new.deletion_file.CopyFrom(deletion_file(1, 1))
    merged = compacted(rewrite(0, 1, new=[new]), (delete(0, [2], file=1), [2]))
    with pytest.raises(InvalidInputError, match="new fragment 10 of a compaction has deleted rows already"):
        committed(merged)
