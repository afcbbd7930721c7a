"""What operations touch: the small questions that the rules ask, for every kind of operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyroaring import BitMap

from conroi import operations as ops
from conroi.conflicts import facts
from conroi.conflicts.rebase import Rebase, translate_rewrite
from conroi.conflicts.row_merge import (
    Meeting,
    Merged,
    VectorKey,
    check_overlay,
    deleted_rows,
    merge_row_changes,
    replace_system_indices,
    vector_key,
)
from conroi.errors import CorruptionError, InvalidInputError
from conroi.format import lance_pb2 as pb
from tests.conflicts.builders import (
    SHARD_S,
    A,
    B,
    C,
    data_file,
    delete,
    deletion_file,
    fragment,
    head_after,
    index,
    mark,
    mem_wal_index,
    move,
    new_fragment,
    overlay,
    replacement,
    reuse_index,
    rewrite,
    rewrite_column,
    schema,
    settings,
    staged,
    winner,
)

CREATE = ops.CreateIndex(new_indices=(index("x", 1, [A], [0]), index("y", 2, [A], [0])), removed_indices=())
OTHERS = [
    ops.Append(fragments=(new_fragment("x.lance"),)),
    ops.Overwrite(schema=tuple(schema())),
    ops.Project(schema=tuple(schema())),
    ops.Restore(version=1),
    ops.ReserveFragments(num_fragments=2),
    ops.UpdateBases(new_bases=()),
    settings(config={"k": "1"}),
    CREATE,
]


@pytest.mark.parametrize(
    ("operation", "updated", "removed", "modified"),
    [
        (delete(0, [1], file=1), {0}, set(), {0}),
        (ops.Delete(deleted_fragment_ids=(1, 2)), set(), {1, 2}, {1, 2}),
        (move(2, [1], file=1), {2}, set(), {2}),
        (ops.Update(removed_fragment_ids=(3,)), set(), {3}, {3}),
        (rewrite(0, 1), set(), set(), {0, 1}),
        (replacement(2, B, "b.lance"), set(), set(), {2}),
        (overlay(3, B, [1]), set(), set(), {3}),
        *((other, set(), set(), set()) for other in OTHERS),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_fragments_that_an_operation_updates_removes_or_touches(
    operation: ops.Operation, updated: set[int], removed: set[int], modified: set[int]
) -> None:
    assert facts.updated_fragments(operation).keys() == updated
    assert facts.removed_fragments(operation) == removed
    assert facts.modified_fragments(operation) == modified


def test_only_an_update_in_the_mode_of_rows_moves_rows() -> None:
    nothing_new = ops.Update(updated_fragments=(fragment(0),))
    moved, rewritten = move(0, [1], file=1), rewrite_column(0, B, [1], file=1)
    operations = (moved, rewritten, nothing_new, delete(0, [1], file=1))
    assert [facts.moves_rows(each) for each in operations] == [True, False, False, False]
    assert [facts.rewrites_columns(each) for each in operations] == [False, True, False, False]


def test_affected_rows_are_those_that_were_remembered_or_that_the_operation_lists() -> None:
    operation = rewrite_column(0, B, [3], file=1)
    assert facts.affected_rows(staged(operation)) == {0: BitMap([3])}
    assert facts.affected_rows(staged(operation, {1: [5]})) == {1: BitMap([5])}
    assert facts.affected_rows(staged(operation, {})) == {}
    assert facts.affected_rows(staged(rewrite_column(0, B, None, file=1))) is None
    assert facts.affected_rows(staged(move(0, [1], file=1))) is None
    assert facts.affected_rows(staged(delete(0, [1], file=1))) is None
    listed = replace(move(0, [1], file=1), updated_fragment_offsets={0: (1,)})
    assert facts.affected_rows(staged(listed)) is None, "the list is about columns that were rewritten in place"


def test_columns_are_named_or_numbered() -> None:
    assert facts.column_names(schema(), [C, 7, A]) == ("a", "c", "field 7")
    assert facts.live_fields(data_file("x.lance", [B, -2, A])) == (B, A)


def test_indices_of_an_operation() -> None:
    reuse = reuse_index(9, 1)
    assert [each.name for each in facts.new_indices(CREATE)] == ["x", "y"]
    assert facts.new_indices(rewrite(0)) == facts.removed_indices(rewrite(0)) == ()
    assert facts.reuse_index(ops.CreateIndex(new_indices=(*CREATE.new_indices, reuse))) == reuse
    assert facts.reuse_index(CREATE) is facts.reuse_index(rewrite(0)) is facts.reuse_index(OTHERS[0]) is None
    assert facts.reuse_index(ops.Rewrite(groups=(), fragment_reuse_index=reuse)) == reuse


def test_progress_of_streaming_writers() -> None:
    marks = (mark(SHARD_S, 5),)
    assert facts.progress(ops.UpdateMemWalState(compacted_sstables=marks)) == marks
    assert facts.progress(ops.Update(compacted_sstables=marks)) == marks
    assert facts.progress(ops.CreateIndex(new_indices=(*CREATE.new_indices, mem_wal_index((SHARD_S, 5))))) == marks
    assert facts.progress(CREATE) == facts.progress(OTHERS[0]) == ()


@pytest.mark.parametrize("operation", OTHERS, ids=lambda operation: operation.name)
def test_only_changes_of_columns_without_a_promise_may_break_it(operation: ops.Operation) -> None:
    broken = isinstance(operation, ops.Project)
    assert facts.may_break_null_promise(operation) is broken
    assert not facts.may_break_null_promise(ops.Project(schema=tuple(schema()), preserves_nullability=True))


# ----------------------------------------------------------------------------- deletion vectors by their names


def test_a_deletion_vector_is_told_apart_by_fragment_version_id_and_base() -> None:
    states = [
        fragment(0, deletions=deletion_file(1, 2, 5)),
        fragment(1, deletions=deletion_file(1, 2, 5)),
        fragment(0, deletions=deletion_file(2, 2, 5)),
        fragment(0, deletions=deletion_file(1, 2, 6)),
    ]
    based = [fragment(0, deletions=deletion_file(1, 2, 5)) for _ in range(2)]
    for number, state in enumerate(based):
        state.deletion_file.base_id = number
    assert [vector_key(state) for state in (*states, *based)] == [
        (0, 5, 1, -1),
        (1, 5, 1, -1),
        (0, 5, 2, -1),
        (0, 6, 1, -1),
        (0, 5, 1, 0),
        (0, 5, 1, 1),
    ]
    known: dict[VectorKey, BitMap] = {vector_key(states[0]): BitMap([1, 2])}
    assert deleted_rows(states[0], known) == BitMap([1, 2])
    assert deleted_rows(fragment(0), known) == BitMap()


def test_an_operation_without_deletion_files_cannot_be_given_any() -> None:
    mine = staged(OTHERS[0], {0: [1]}, unwritten=frozenset({0}))
    rebase = Rebase(mine).over(winner(delete(0, [5], file=1)))
    meeting = Meeting(mine, rebase.verdict, {}, head_after(), {})
    merged = merge_row_changes(meeting)
    with pytest.raises(InvalidInputError, match="A Append has no deletion files"):
        merged.operation({0: deletion_file(7, 1)})


@pytest.mark.parametrize("adjust", [replace_system_indices, translate_rewrite, check_overlay])
def test_an_adjustment_for_another_kind_of_operation_changes_nothing(adjust: Callable[[Meeting], Merged]) -> None:
    mine = staged(OTHERS[0])
    merged = adjust(Meeting(mine, Rebase(mine).verdict, {}, head_after(), {}))
    assert merged.operation({}) is mine.operation


# ------------------------------------------------------------------------------------------ overlays on the wire

GROUP = pb.Transaction.DataOverlay.Group


def rule_on(message: bytes, column: int = B) -> str | None:
    theirs = ops.DataOverlay(groups=(GROUP(fragment_id=0, overlays=[message]),))
    for mine in (staged(move(0, [1], file=1), {0: [1]}), staged(rewrite_column(0, column, [1], file=1))):
        reason = Rebase(mine).over(winner(theirs)).verdict.reason
        if reason is not None:
            return reason.rule
    return None


ROWS = BitMap([1, 7]).serialize()
FILE = data_file("overlay.lance", [B]).SerializeToString()


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"", None),
        (b"\x12" + bytes([len(ROWS)]) + ROWS, "overlay/rows"),
        (b"\x0a" + bytes([len(FILE)]) + FILE, "overlay/columns"),
        # numbers before it: of one byte, of two bytes, of eight and of four
        (b"\x18\x05\x12" + bytes([len(ROWS)]) + ROWS, "overlay/rows"),
        (b"\x18\x80\x01\x12" + bytes([len(ROWS)]) + ROWS, "overlay/rows"),
        (b"\x29" + bytes(8) + b"\x12" + bytes([len(ROWS)]) + ROWS, "overlay/rows"),
        (b"\x2d" + bytes(4) + b"\x12" + bytes([len(ROWS)]) + ROWS, "overlay/rows"),
        # a length that is written in two bytes
        (b"\x12" + bytes([len(ROWS) | 0x80, 0]) + ROWS, "overlay/rows"),
        # a field that we do not know, as long as two bytes can say: 300 = 0b10_0101100
        (b"\x32\xac\x02" + bytes(300) + b"\x12" + bytes([len(ROWS)]) + ROWS, "overlay/rows"),
    ],
    ids=["empty", "rows", "file", "one byte", "two bytes", "eight", "four", "long length", "three hundred"],
)
def test_an_overlay_is_read_from_its_undecoded_message(message: bytes, expected: str | None) -> None:
    assert rule_on(message) == expected


@pytest.mark.parametrize(
    "message",
    [
        b"\x12",  # a length is missing
        b"\x12\x05\x00",  # four bytes are missing
        b"\x12\x01",
        b"\x18",
        b"\x18\x80",  # a number that does not end
        b"\x18" + b"\xff" * 10 + b"\x01",  # nor within ten bytes
        b"\x13",  # a kind of field that does not exist any more
        b"\x16",  # or never did
    ],
)
def test_a_damaged_overlay_is_told(message: bytes) -> None:
    with pytest.raises(CorruptionError, match="not a valid message"):
        rule_on(message)


def test_a_number_of_ten_bytes_is_read() -> None:
    assert rule_on(b"\x18" + b"\xff" * 9 + b"\x01\x12" + bytes([len(ROWS)]) + ROWS) == "overlay/rows"
