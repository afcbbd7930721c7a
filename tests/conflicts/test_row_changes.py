"""Changes of rows on top of each other: which rows, which files, and what is left to write."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from pyroaring import BitMap

from conroi import operations as ops
from conroi.conflicts.facts import Staged
from conroi.conflicts.rebase import Rebase
from conroi.conflicts.row_merge import Merged
from conroi.conflicts.rules import Outcome
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from tests.conflicts.builders import (
    A,
    B,
    data_file,
    delete,
    deletion_file,
    fragment,
    head_after,
    move,
    new_fragment,
    overlay,
    replacement,
    rewrite,
    rewrite_column,
    staged,
    vectors,
    winner,
)


def rebased(mine: Staged, *theirs: tuple[ops.Operation, Iterable[int]]) -> Merged:
    """My change on top of these; each with the rows that its one updated fragment has lost by then."""
    rebase = Rebase(mine).over_all(winner(operation, 6 + at) for at, (operation, _) in enumerate(theirs))
    known = [(f, rows) for operation, rows in theirs for f in getattr(operation, "updated_fragments", ())]
    return rebase.merge(head_after(*(operation for operation, _ in theirs)), vectors(*known))


def written(merged: Merged) -> dict[int, pb.DeletionFile]:
    """Deletion files as the commit would write them."""
    return {
        number: deletion_file(900 + number, len(rows), merged.read_version)
        for number, rows in merged.vectors_to_write.items()
    }


@pytest.mark.contract("T7")
def test_second_delete_of_other_rows_joins_both_lists() -> None:
    merged = rebased(staged(delete(0, [5], file=2), {0: [5]}), (delete(0, [1], file=1), [1]))
    assert merged.verdict.outcome is Outcome.REBASED
    assert merged.vectors_to_write == {0: BitMap([1, 5])}
    assert merged.read_version == 6
    operation = merged.operation(written(merged))
    assert isinstance(operation, ops.Delete)
    assert [f.deletion_file for f in operation.updated_fragments] == [deletion_file(900, 2, 6)]
    assert operation.deleted_fragment_ids == ()


@pytest.mark.contract("T7")
def test_second_delete_of_the_rest_removes_the_fragment() -> None:
    merged = rebased(
        staged(delete(0, range(5), file=2), {0: range(5)}), (delete(0, range(5, 10), file=1), range(5, 10))
    )
    assert merged.verdict.outcome is Outcome.REBASED
    assert merged.vectors_to_write == {}
    operation = merged.operation({})
    assert isinstance(operation, ops.Delete)
    assert (operation.updated_fragments, operation.deleted_fragment_ids) == ((), (0,))


def test_update_that_takes_the_rest_removes_the_fragment_and_keeps_its_new_rows() -> None:
    mine = move(0, range(5), file=2)
    merged = rebased(staged(mine, {0: range(5)}), (delete(0, range(5, 10), file=1), range(5, 10)))
    operation = merged.operation({})
    assert isinstance(operation, ops.Update)
    assert (operation.updated_fragments, operation.removed_fragment_ids) == ((), (0,))
    assert operation.new_fragments == mine.new_fragments


@pytest.mark.contract("T7")
def test_second_delete_of_the_same_row_is_retried_and_says_which() -> None:
    merged = rebased(staged(delete(0, [1, 5], file=2), {0: [1, 5]}), (delete(0, [1], file=1), [1]))
    assert merged.verdict.outcome is Outcome.RETRYABLE
    reason = merged.verdict.reason
    assert reason is not None
    assert (reason.rule, reason.fragments, reason.rows, reason.sample) == ("rows/same-rows", (0,), 1, ((0, 1),))
    assert reason.winner is not None
    assert reason.winner.version == 6


def test_a_few_of_the_rows_in_common_are_told() -> None:
    both = range(7)
    merged = rebased(staged(delete(0, both, file=2), {0: both}), (delete(0, both, file=1), both))
    reason = merged.verdict.reason
    assert reason is not None
    assert (reason.rows, reason.sample) == (7, ((0, 0), (0, 1), (0, 2), (0, 3), (0, 4)))


def test_rows_in_common_are_told_fragment_by_fragment() -> None:
    def of_two(file: int) -> ops.Delete:
        parts = (delete(2, range(3), file=file), delete(0, range(3), file=file))
        return ops.Delete(updated_fragments=tuple(f for part in parts for f in part.updated_fragments))

    theirs = of_two(1)
    rebase = Rebase(staged(of_two(2), {0: range(3), 2: range(3)})).over(winner(theirs))
    merged = rebase.merge(head_after(theirs), vectors(*((f, range(3)) for f in theirs.updated_fragments)))
    reason = merged.verdict.reason
    assert reason is not None
    assert (reason.rule, reason.fragments, reason.rows) == ("rows/same-rows", (0, 2), 6)
    assert reason.sample == ((0, 0), (0, 1), (0, 2), (2, 0), (2, 1))


def test_lists_are_joined_with_the_newest_one_not_with_the_winners_own() -> None:
    merged = rebased(
        staged(delete(0, [5], file=3), {0: [5]}), (delete(0, [1], file=1), [1]), (delete(0, [1, 2], file=2), [1, 2])
    )
    assert merged.vectors_to_write == {0: BitMap([1, 2, 5])}
    assert merged.read_version == 7


def test_same_row_is_blamed_on_the_last_commit_that_touched_the_fragment() -> None:
    merged = rebased(
        staged(delete(0, [2], file=3), {0: [2]}), (delete(0, [1], file=1), [1]), (delete(0, [1, 2], file=2), [1, 2])
    )
    assert merged.verdict.reason is not None
    assert merged.verdict.reason.winner is not None
    assert merged.verdict.reason.winner.version == 7


def test_deletions_from_before_are_kept() -> None:
    """Fragment 1 has lost row 9 already."""
    merged = rebased(staged(delete(1, [0], file=2), {1: [0]}), (delete(1, [3], file=1), [3, 9]))
    assert merged.vectors_to_write == {1: BitMap([0, 3, 9])}


def test_only_fragments_in_common_are_read_and_written() -> None:
    both = ops.Delete(
        updated_fragments=(*delete(0, [1], file=1).updated_fragments, *delete(2, [1], file=1).updated_fragments)
    )
    rebase = Rebase(staged(both, {0: [1], 2: [1]})).over(winner(delete(2, [7], file=2)))
    head = head_after(delete(2, [7], file=2))
    assert [f.id for f in rebase.needs(head)] == [2]
    merged = rebase.merge(head, vectors(*((f, [7]) for f in rebase.needs(head))))
    assert merged.vectors_to_write == {2: BitMap([1, 7])}
    operation = merged.operation(written(merged))
    assert isinstance(operation, ops.Delete)
    assert operation.updated_fragments[0] == both.updated_fragments[0]


def test_a_rebase_goes_on_when_the_put_is_lost_again() -> None:
    """The same value is used for the next attempt, and what was handed over is not changed."""
    mine = staged(delete(0, [5], file=9), {0: [5]})
    first = delete(0, [1], file=1)
    once = Rebase(mine).over(winner(first, 6))
    lost = once.merge(head_after(first), vectors((first.updated_fragments[0], [1])))
    assert lost.vectors_to_write == {0: BitMap([1, 5])}
    second = delete(0, [1, 2], file=2)
    again = once.over(winner(second, 7))
    merged = again.merge(head_after(first, second), vectors((second.updated_fragments[0], [1, 2])))
    assert merged.vectors_to_write == {0: BitMap([1, 2, 5])}
    assert mine.operation == delete(0, [5], file=9)
    assert [reason.winner.version for reason in again.repairs if reason.winner] == [6, 7]


def test_a_fragment_that_only_appears_in_their_list_is_not_contested() -> None:
    """Their new state of the fragment is the one I know: nothing to compare, nothing to write."""
    same = ops.Delete(updated_fragments=(fragment(0),))
    merged = rebased(staged(delete(0, [5], file=2), {0: [5]}), (same, []))
    assert merged.verdict.outcome is Outcome.COMPATIBLE
    assert merged.vectors_to_write == {}


def test_rows_that_were_not_recorded_for_one_fragment_are_retried() -> None:
    rebase = Rebase(staged(delete(0, [5], file=2), {3: [5]})).over(winner(delete(0, [1], file=1)))
    assert rebase.verdict.reason is not None
    assert rebase.verdict.reason.rule == "rows/unknown"


def test_after_a_refusal_later_commits_do_not_matter() -> None:
    rebase = Rebase(staged(delete(0, [5], file=2))).over(winner(delete(0, [1], file=1)))
    assert rebase.over(winner(ops.Restore(version=1), 7)).verdict == rebase.verdict
    merged = rebase.merge(head_after(), {})
    assert merged.verdict.outcome is Outcome.RETRYABLE
    with pytest.raises(InvalidInputError, match="refused"):
        merged.operation({})


@pytest.mark.parametrize("files", [{}, {0: deletion_file(1, 3, 6)}])
def test_a_deletion_file_that_is_missing_or_has_other_rows_is_refused(files: dict[int, pb.DeletionFile]) -> None:
    merged = rebased(staged(delete(0, [5], file=2), {0: [5]}), (delete(0, [1], file=1), [1]))
    with pytest.raises(InvalidInputError, match="fragment 0"):
        merged.operation(files)


def test_a_fragment_that_is_gone_at_the_head_is_retried() -> None:
    rebase = Rebase(staged(delete(0, [5], file=2), {0: [5]})).over(winner(delete(0, [1], file=1)))
    merged = rebase.merge(head_after(ops.Delete(deleted_fragment_ids=(0,))), {})
    assert merged.verdict.reason is not None
    assert merged.verdict.reason.rule == "rows/fragment-gone"


# ------------------------------------------------------------------------- columns rewritten in place
def test_column_rewrite_takes_over_the_newer_deletions_without_writing_a_file() -> None:
    theirs = delete(0, [5], file=1)
    merged = rebased(staged(rewrite_column(0, B, [3], file=2)), (theirs, [5]))
    assert merged.verdict.outcome is Outcome.REBASED
    assert merged.vectors_to_write == {}
    operation = merged.operation({})
    assert isinstance(operation, ops.Update)
    (after,) = operation.updated_fragments
    assert after.deletion_file == theirs.updated_fragments[0].deletion_file
    assert after.files == rewrite_column(0, B, [3], file=2).updated_fragments[0].files


@pytest.mark.parametrize("theirs", [delete(0, [3], file=1), move(0, [3], file=1)])
def test_column_rewrite_of_a_row_that_went_away_is_retried(theirs: ops.Operation) -> None:
    merged = rebased(staged(rewrite_column(0, B, [3], file=2)), (theirs, [3]))
    assert merged.verdict.reason is not None
    assert merged.verdict.reason.rule == "rows/same-rows"


def test_column_rewrite_knows_its_rows_from_the_older_form_as_well() -> None:
    mine = rewrite_column(0, B, None, file=2)
    older = ops.Update(
        updated_fragments=mine.updated_fragments,
        fields_modified=mine.fields_modified,
        update_mode=mine.update_mode,
        updated_fragment_offsets={0: (3,)},
    )
    assert rebased(staged(older), (delete(0, [5], file=1), [5])).verdict.outcome is Outcome.REBASED
    assert rebased(staged(older), (delete(0, [3], file=1), [3])).verdict.outcome is Outcome.RETRYABLE


def test_column_rewrite_that_also_deletes_rows_is_retried() -> None:
    """Then the rows that it changes and those that it deletes cannot be told apart."""
    mine = rewrite_column(0, B, [3], file=2)
    mine.updated_fragments[0].deletion_file.CopyFrom(deletion_file(5, 1))
    rebase = Rebase(staged(mine)).over(winner(delete(0, [5], file=1)))
    assert rebase.verdict.reason is not None
    assert rebase.verdict.reason.rule == "rows/unknown"


# --------------------------------------------------------------------------------- T8 and T9, as facts
@pytest.mark.contract("T8")
def test_an_update_is_retryable_after_a_compaction_of_its_fragment() -> None:
    verdict = Rebase(staged(move(0, [1], file=1), {0: [1]})).over(winner(rewrite(0, 1))).verdict
    assert verdict.outcome is Outcome.RETRYABLE
    assert verdict.reason is not None
    assert (verdict.reason.rule, verdict.reason.fragments) == ("rows/compacted", (0,))


@pytest.mark.contract("T9")
def test_delete_meets_restore() -> None:
    verdict = Rebase(staged(delete(0, [1], file=1), {0: [1]})).over(winner(ops.Restore(version=2))).verdict
    assert verdict.outcome is Outcome.INCOMPATIBLE
    assert verdict.reason is not None
    assert "restored an older version" in verdict.reason.explain()
    assert "mix two histories" in verdict.reason.explain()


# --------------------------------------------------------------------------------------- the rest
def test_update_moves_a_row_under_an_overlay_that_covers_it_by_field() -> None:
    theirs = overlay(0, B, [1, 7], by_field=True)
    rebase = Rebase(staged(move(0, [1], file=1), {0: [1]})).over(winner(theirs))
    assert rebase.verdict.reason is not None
    assert (rebase.verdict.reason.rule, rebase.verdict.reason.rows) == ("overlay/rows", 1)


@pytest.mark.parametrize(("column", "expected"), [(A, "overlay/columns"), (B, None)])
def test_update_of_a_column_in_place_meets_an_overlay_of_that_column(column: int, expected: str | None) -> None:
    """Also of the first one, whose id is 0."""
    reason = Rebase(staged(rewrite_column(0, A, [3], file=1))).over(winner(overlay(0, column, [1]))).verdict.reason
    assert (None if reason is None else reason.rule) == expected


def test_overlay_over_rows_that_moved_is_retried_and_says_which() -> None:
    merged = rebased(staged(overlay(0, B, [1, 2])), (move(0, [2], file=1), [2]))
    assert merged.verdict.reason is not None
    assert (merged.verdict.reason.rule, merged.verdict.reason.sample) == ("overlay/rows-moved", ((0, 2),))


def test_overlay_over_a_fragment_that_lost_rows_first_and_then_all_is_retried() -> None:
    rebase = Rebase(staged(overlay(0, B, [1]))).over(winner(move(0, [2], file=1)))
    merged = rebase.merge(head_after(ops.Delete(deleted_fragment_ids=(0,))), {})
    assert merged.verdict.reason is not None
    assert (merged.verdict.reason.rule, merged.verdict.reason.fragments) == ("rows/fragment-gone", (0,))


def test_replacement_of_a_column_stays_right_when_rows_are_deleted() -> None:
    merged = rebased(staged(replacement(0, B, "b.lance")), (delete(0, [1], file=1), [1]))
    assert merged.verdict.outcome is Outcome.COMPATIBLE
    assert merged.read_version == 5


def test_removed_column_ids_of_a_file_do_not_count() -> None:
    gone = data_file("b.lance", [-2])
    mine = ops.DataReplacement(replacements=(pb.Transaction.DataReplacement.Group(fragment_id=0, new_file=gone),))
    assert Rebase(staged(mine)).over(winner(mine)).verdict.outcome is Outcome.COMPATIBLE


def test_update_that_rewrites_a_dropped_column_is_retried() -> None:
    schema = (pb.Field(name="a", id=0),)
    rebase = Rebase(staged(rewrite_column(0, B, [1], file=1))).over(
        winner(ops.Project(schema=schema, preserves_nullability=True))
    )
    assert rebase.verdict.reason is not None
    assert (rebase.verdict.reason.rule, rebase.verdict.reason.names) == ("rows/column-gone", ("b",))


def test_update_with_shards_meets_progress_of_the_same_shard() -> None:
    def update(generation: int) -> ops.Update:
        return ops.Update(new_fragments=(new_fragment("x.lance"),), compacted_sstables=(_mark(generation),))

    progress = ops.UpdateMemWalState(compacted_sstables=(_mark(5),))
    outcomes = {g: Rebase(staged(update(g))).over(winner(progress)).verdict.outcome for g in (4, 5, 6)}
    assert outcomes == {4: Outcome.INCOMPATIBLE, 5: Outcome.INCOMPATIBLE, 6: Outcome.RETRYABLE}


def _mark(generation: int) -> pb.CompactedSsTable:
    return pb.CompactedSsTable(shard_id=pb.UUID(uuid=bytes(16)), generation=generation)
