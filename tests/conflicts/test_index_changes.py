"""Index changes on top of each other and of what moves the rows they point to."""

from __future__ import annotations

import pytest
from pyroaring import BitMap

from conroi import operations as ops
from conroi.conflicts.reason import Verdict
from conroi.conflicts.rebase import Rebase
from conroi.conflicts.rules import Outcome
from conroi.format import lance_pb2 as pb
from tests.conflicts.builders import (
    OLD_INDEX,
    SHARD_S,
    SHARD_Z,
    A,
    B,
    C,
    base_fragments,
    head_after,
    index,
    manifest,
    mark,
    mem_wal_index,
    reuse_index,
    rewrite,
    rewrite_column,
    staged,
    winner,
)


def verdict_on(mine: ops.Operation, *theirs: ops.Operation) -> Verdict:
    return Rebase(staged(mine)).over_all(winner(operation, 6 + at) for at, operation in enumerate(theirs)).verdict


def rule(verdict: Verdict) -> str | None:
    return None if verdict.reason is None else verdict.reason.rule


def create(*new: pb.IndexMetadata, drop: tuple[pb.IndexMetadata, ...] = ()) -> ops.CreateIndex:
    return ops.CreateIndex(new_indices=new, removed_indices=drop)


# ------------------------------------------------------------------------------- indices and updates
def test_new_index_leaves_out_a_fragment_that_got_new_values_in_its_column() -> None:
    rebase = Rebase(staged(create(index("by_b", 1, [B], [0, 1])))).over(winner(rewrite_column(0, B, [3], file=1)))
    operation = rebase.merge(head_after(), {}).operation({})
    assert isinstance(operation, ops.CreateIndex)
    assert BitMap.deserialize(operation.new_indices[0].fragment_bitmap) == BitMap([1])
    assert rebase.repairs[0].fragments == (0,)
    assert rebase.repairs[0].names == ("by_b",)


def test_new_index_on_another_column_is_left_alone() -> None:
    assert verdict_on(create(index("by_c", 1, [C], [0, 1])), rewrite_column(0, B, [3], file=1)).reason is None


def test_a_fragment_that_left_the_index_may_be_compacted_afterwards() -> None:
    mine = create(index("by_b", 1, [B], [0]))
    assert verdict_on(mine, rewrite(0, 1)).outcome is Outcome.RETRYABLE
    assert verdict_on(mine, rewrite_column(0, B, [3], file=1), rewrite(0, 1)).outcome is Outcome.REBASED


# ------------------------------------------------------------------------------- indices and indices
SEGMENT_ONE, SEGMENT_TWO = index("x", 1, [A], [0]), index("x", 2, [A], [1])
SEGMENT_NEW = index("x", 3, [A], [2])
OTHER_NAME = index("y", 4, [A], [0])


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        (create(SEGMENT_NEW), create(SEGMENT_TWO), "index/same-name"),
        (create(SEGMENT_NEW, drop=(SEGMENT_ONE,)), create(OTHER_NAME), None),
        (create(SEGMENT_NEW), create(drop=(SEGMENT_ONE,)), "index/extended-and-dropped"),
        (create(drop=(SEGMENT_ONE,)), create(SEGMENT_NEW), "index/extended-and-dropped"),
        (create(SEGMENT_NEW, drop=(SEGMENT_ONE,)), create(drop=(SEGMENT_TWO,)), None),
        (create(SEGMENT_NEW, drop=(SEGMENT_ONE,)), create(drop=(SEGMENT_ONE,)), "index/replaced-twice"),
        (create(drop=(SEGMENT_ONE,)), create(SEGMENT_NEW, drop=(SEGMENT_ONE,)), "index/replaced-twice"),
        (create(OTHER_NAME, drop=(SEGMENT_ONE,)), create(drop=(SEGMENT_ONE,)), None),
        (create(drop=(SEGMENT_ONE,)), create(drop=(SEGMENT_ONE,)), None),
        (create(reuse_index(5, 1)), create(reuse_index(6, 1)), "index/same-system-index"),
        (create(mem_wal_index()), create(mem_wal_index()), "index/same-system-index"),
        (create(mem_wal_index()), create(reuse_index(6, 1)), None),
    ],
)
def test_two_index_changes(mine: ops.CreateIndex, theirs: ops.CreateIndex, expected: str | None) -> None:
    assert rule(verdict_on(mine, theirs)) == expected


# --------------------------------------------------------------------------- indices and compactions
def with_reuse(operation: ops.Rewrite, reuse: pb.IndexMetadata) -> ops.Rewrite:
    return ops.Rewrite(groups=operation.groups, fragment_reuse_index=reuse)


def test_a_compaction_with_a_reuse_index_spares_new_indices_but_not_ngrams() -> None:
    theirs = with_reuse(rewrite(0, 1), reuse_index(9, 6))
    assert verdict_on(create(index("by_b", 1, [B], [0, 1])), theirs).reason is None
    ngram = create(index("grams", 1, [B], [0], kind="NGram"))
    assert rule(verdict_on(ngram, theirs)) == "index/ngram-moved"
    assert rule(verdict_on(create(index("grams", 1, [B], [2], kind="NGram")), theirs)) is None


def test_an_index_that_does_not_say_what_it_covers_is_retried() -> None:
    mine = create(index("by_b", 1, [B], None))
    assert rule(verdict_on(mine, rewrite(0, 1))) == "index/coverage-unknown"
    assert rule(verdict_on(rewrite(0, 1), mine)) == "index/coverage-unknown"
    assert rule(verdict_on(with_reuse(rewrite(0, 1), reuse_index(9, 6)), mine)) == "index/coverage-unknown"


def entries(found: pb.IndexMetadata) -> list[int]:
    details = pb.FragmentReuseIndexDetails.FromString(found.index_details.value)
    return [entry.dataset_version for entry in details.inline.versions]


def test_tidying_the_reuse_index_keeps_what_a_concurrent_compaction_added() -> None:
    """Mine dropped entry 1 and kept 2; theirs has 1, 2 and a new one, 3."""
    mine = create(reuse_index(8, 2), drop=(reuse_index(7, 1, 2),))
    rebase = Rebase(staged(mine)).over(winner(with_reuse(rewrite(0, 1), reuse_index(9, 1, 2, 3))))
    assert rule(rebase.verdict) == "reuse/extended"
    there = manifest(6, base_fragments(), [OLD_INDEX, reuse_index(9, 1, 2, 3)])
    operation = rebase.merge(there, {}).operation({})
    assert isinstance(operation, ops.CreateIndex)
    (kept,) = operation.new_indices
    assert entries(kept) == [2, 3]
    assert BitMap.deserialize(kept.fragment_bitmap) == BitMap([102, 103])
    assert [found.uuid.uuid[-1] for found in operation.removed_indices] == [7, 9]


@pytest.mark.parametrize(
    ("theirs", "kept"),
    [((1, 2), [1, 2, 3]), ((2,), [2, 3]), ((), [3])],
    ids=["nothing dropped", "the oldest dropped", "all dropped"],
)
def test_a_compaction_drops_the_entries_that_a_concurrent_tidying_dropped(
    theirs: tuple[int, ...], kept: list[int]
) -> None:
    mine = with_reuse(rewrite(0, 1), reuse_index(8, 1, 2, 3))
    rebase = Rebase(staged(mine)).over(winner(create(reuse_index(9, *theirs), drop=(reuse_index(7, 1, 2),))))
    assert rule(rebase.verdict) == "reuse/trimmed"
    operation = rebase.merge(head_after(), {}).operation({})
    assert isinstance(operation, ops.Rewrite)
    assert operation.fragment_reuse_index is not None
    assert entries(operation.fragment_reuse_index) == kept


TIDIED = create(reuse_index(9, 2), drop=(reuse_index(7, 1, 2),))


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        # a compaction that rebuilds its indices does not care for the tidying
        (rewrite(0, 1), TIDIED, None),
        (rewrite(0, 1), create(reuse_index(9, 2)), "reuse/mixed"),
        (
            with_reuse(rewrite(0, 1), reuse_index(8, 3)),
            create(reuse_index(9, 2), OTHER_NAME, drop=(OLD_INDEX,)),
            "reuse/mixed",
        ),
        (with_reuse(rewrite(0, 1), reuse_index(8, external=True)), TIDIED, "reuse/external"),
        (TIDIED, with_reuse(rewrite(0, 1), reuse_index(8, external=True)), "reuse/external"),
        (create(reuse_index(9, 2)), with_reuse(rewrite(0, 1), reuse_index(8, 3)), "reuse/mixed"),
        (with_reuse(rewrite(0, 1), reuse_index(8, 3)), with_reuse(rewrite(2, 3), reuse_index(9, 3)), "reuse/both"),
        (with_reuse(rewrite(0, 1), reuse_index(8, 3)), rewrite(2, 3), None),
        # an index that covers a whole group, or none of it, can follow; one that covers half of it cannot
        (with_reuse(rewrite(0, 1), reuse_index(8, 3)), create(index("by_b", 1, [B], [0, 1, 2])), None),
        (with_reuse(rewrite(0, 1), reuse_index(8, 3)), create(index("by_b", 1, [B], [2, 3])), None),
        (with_reuse(rewrite(0, 1), reuse_index(8, 3)), create(index("by_b", 1, [B], [1, 2])), "reuse/straddles"),
    ],
)
def test_a_reuse_index_conflicts_by_the_rules(mine: ops.Operation, theirs: ops.Operation, expected: str | None) -> None:
    assert rule(verdict_on(mine, theirs)) == expected


def test_a_reuse_index_of_a_newer_form_is_not_touched() -> None:
    newer = reuse_index(8, 3)
    newer.index_version = 1
    assert rule(verdict_on(with_reuse(rewrite(0, 1), newer), TIDIED)) == "reuse/external"


# ---------------------------------------------------------------------------------- streaming writers
def test_streaming_index_takes_the_further_mark_of_each_shard() -> None:
    other = mark(SHARD_Z, 9)
    mine = create(mem_wal_index((SHARD_S, 5)), index("by_b", 1, [B], [0]))
    theirs = ops.UpdateMemWalState(compacted_sstables=(mark(SHARD_S, 7), other))
    rebase = (
        Rebase(staged(mine))
        .over(winner(theirs))
        .over(winner(ops.UpdateMemWalState(compacted_sstables=(mark(SHARD_S, 6),)), 7))
    )
    operation = rebase.merge(head_after(), {}).operation({})
    assert isinstance(operation, ops.CreateIndex)
    details = pb.MemWalIndexDetails.FromString(operation.new_indices[0].index_details.value)
    assert list(details.compacted_sstables) == [mark(SHARD_S, 7), other]
    assert operation.new_indices[1] == mine.new_indices[1]


def test_streaming_index_replaces_the_one_that_is_there_now() -> None:
    there = mem_wal_index((SHARD_S, 1))
    there.uuid.uuid = bytes(15) + b"\x01"
    head = manifest(6, base_fragments(), [OLD_INDEX, there])
    operation = Rebase(staged(create(mem_wal_index((SHARD_S, 5))))).merge(head, {}).operation({})
    assert isinstance(operation, ops.CreateIndex)
    assert operation.removed_indices == (there,)


def test_details_that_we_do_not_know_survive_a_join_of_marks() -> None:
    unknown = b"\x12\x02\x08\x07"  # field 2, which the streaming index has and we do not decode
    streaming = mem_wal_index((SHARD_S, 5))
    streaming.index_details.value += unknown
    theirs = ops.UpdateMemWalState(compacted_sstables=(mark(SHARD_S, 7),))
    operation = Rebase(staged(create(streaming))).over(winner(theirs)).merge(head_after(), {}).operation({})
    assert isinstance(operation, ops.CreateIndex)
    assert unknown in operation.new_indices[0].index_details.value


def test_a_dropped_column_takes_its_new_index_with_it() -> None:
    without_b = ops.Project(schema=(pb.Field(name="a", id=A), pb.Field(name="c", id=C)), preserves_nullability=True)
    verdict = verdict_on(create(index("by_b", 1, [B], [0])), without_b)
    assert verdict.outcome is Outcome.INCOMPATIBLE
    assert verdict.reason is not None
    assert (verdict.reason.rule, verdict.reason.names) == ("index/column-gone", ("b",))
    assert verdict_on(create(index("by_c", 1, [C], [0])), without_b).reason is None
