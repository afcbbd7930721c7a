"""Every pair of operations, in both orders, against a table that was written by hand from the rules of the format.

A row is my operation, a column the one committed first. C compatible, B rebased, R retryable, I incompatible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

import pytest

from conroi import operations as ops
from conroi.conflicts.matrix import MATRIX, OPERATIONS
from conroi.conflicts.outcome import Outcome
from conroi.conflicts.rebase import Rebase
from conroi.conflicts.staged import Staged
from conroi.conflicts.vectors import vector_key
from conroi.format import lance_pb2 as pb
from tests.conflicts.builders import (
    KEY_ONE,
    KEY_TWO,
    OLD_INDEX,
    SHARD_S,
    SHARD_Z,
    A,
    B,
    C,
    delete,
    head_after,
    index,
    key_filter,
    mark,
    mem_wal_index,
    move,
    new_fragment,
    overlay,
    replacement,
    rewrite,
    rewrite_column,
    schema,
    settings,
    staged,
    vectors,
    winner,
)

pytestmark = pytest.mark.contract("T6")


def insert_key(key: int) -> ops.Update:
    return ops.Update(new_fragments=(new_fragment("inserted.lance"),), inserted_rows=key_filter(key))


# Each operation of the table below: what it is, and the rows it deletes, moves or changes.
CASES: dict[str, ops.Operation] = {
    "A_": ops.Append(fragments=(new_fragment("appended.lance"),)),
    # deletes: rows 1 or 5 of fragment 0, row 1 of fragment 2, all of fragment 0
    "d0": delete(0, [1], file=1),
    "e0": delete(0, [5], file=2),
    "d2": delete(2, [1], file=3),
    "x0": ops.Delete(deleted_fragment_ids=(0,)),
    # updates: moving rows 1 or 5 of fragment 0, row 1 of fragment 2; column b of row 3 of fragment 0; inserting a key
    "u0": move(0, [1], file=4),
    "v0": move(0, [5], file=5),
    "u2": move(2, [1], file=6),
    "c0": rewrite_column(0, B, [3], file=7),
    "k1": insert_key(KEY_ONE),
    "k2": insert_key(KEY_TWO),
    # overwrites: the second sets the config key "k"
    "ov": ops.Overwrite(fragments=(new_fragment("other.lance"),), schema=tuple(schema())),
    "oc": ops.Overwrite(schema=tuple(schema()), config_upsert_values={"k": "1"}),
    # indices: two called by_b, on b, covering 0 and 1, or 2; by_c, on c, covering 2 and 3; dropping one; streaming
    "i0": ops.CreateIndex(new_indices=(index("by_b", 11, [B], [0, 1]),)),
    "j0": ops.CreateIndex(new_indices=(index("by_b", 12, [B], [2]),)),
    "i2": ops.CreateIndex(new_indices=(index("by_c", 13, [C], [2, 3]),)),
    "ix": ops.CreateIndex(removed_indices=(OLD_INDEX,)),
    "iw": ops.CreateIndex(new_indices=(mem_wal_index((SHARD_S, 5)),)),
    # compactions of fragments 0 and 1, or 2 and 3
    "r0": rewrite(0, 1),
    "r2": rewrite(2, 3),
    # columns: added; added without a promise about nulls; c dropped; changed without a promise
    "mm": ops.Merge(fragments=(), schema=tuple(schema()), preserves_nullability=True),
    "mn": ops.Merge(fragments=(), schema=tuple(schema())),
    "pp": ops.Project(schema=tuple(schema()[:2]), preserves_nullability=True),
    "pn": ops.Project(schema=tuple(schema())),
    "re": ops.Restore(version=2),
    "rf": ops.ReserveFragments(num_fragments=3),
    # settings: config k, config j, config k deleted, table metadata, schema metadata, metadata of column b
    "ck": settings(config={"k": "2"}),
    "cj": settings(config={"j": "2"}),
    "cd": settings(config={"k": None}),
    "ct": settings(table_metadata={"t": "1"}),
    "cs": settings(schema_metadata={"s": "1"}),
    "cf": ops.UpdateConfig(field_metadata={B: ops.update_map({"f": "1"})}),
    # replaced column files: b of fragment 0, c of fragment 0, b of fragment 2
    "l0": replacement(0, B, "b0.lance"),
    "m0": replacement(0, C, "c0.lance"),
    "l2": replacement(2, B, "b2.lance"),
    # streaming writers: shard s at generation 5 or 6, shard z at 1
    "w5": ops.UpdateMemWalState(compacted_sstables=(mark(SHARD_S, 5),)),
    "w6": ops.UpdateMemWalState(compacted_sstables=(mark(SHARD_S, 6),)),
    "z1": ops.UpdateMemWalState(compacted_sstables=(mark(SHARD_Z, 1),)),
    # storage locations
    "b1": ops.UpdateBases(new_bases=(pb.BasePath(name="one", path="/one"),)),
    "b2": ops.UpdateBases(new_bases=(pb.BasePath(name="two", path="/two"),)),
    "cl": ops.Clone(is_shallow=True, ref_version=1, ref_path="/there"),
    # overlays over column b of row 1, in fragment 0 or 2
    "y0": overlay(0, B, [1]),
    "y2": overlay(2, B, [1]),
    "??": ops.Unknown(),
}
ROWS_OF: Mapping[str, Mapping[int, Iterable[int]]] = {
    "d0": {0: [1]},
    "e0": {0: [5]},
    "d2": {2: [1]},
    "x0": {0: range(10)},
    "u0": {0: [1]},
    "v0": {0: [5]},
    "u2": {2: [1]},
    "c0": {0: [3]},
}

# Rows are known, keys only by their filters, compactions do not keep the order.
#        A D    U      O  I     R  M  P  S F C      L   W   B  K Y  ?
#        A dedx uvuckk oo ijiii rr mm pp r r cccccc lml wwz bb c yy ?
#        _ 0020 002012 vc 002xw 02 mn pn e f kjdtsf 002 561 12 l 02 ?
TABLE = """
    A_:  C CCCC CCCCCC II CCCCC CC CR CR I C CCCCCC CCC III CC C CC I
    d0:  C RBCR RBCRCC II CCCCC RC RR CC I C CCCCCC RRC III CC C CC I
    e0:  C BRCR BRCRCC II CCCCC RC RR CC I C CCCCCC RRC III CC C CC I
    d2:  C CCRC CCRCCC II CCCCC CR RR CC I C CCCCCC CCR III CC C CC I
    x0:  C RRCR RRCRCC II CCCCC RC RR CC I C CCCCCC RRC III CC C CC I
    u0:  C RBCR RBCRCC II CCCCC RC RR CR I C CCCCCC RRC CCC CC C RC I
    v0:  C BRCR BRCRCC II CCCCC RC RR CR I C CCCCCC RRC CCC CC C CC I
    u2:  C CCRC CCRCCC II CCCCC CR RR CR I C CCCCCC CCR CCC CC C CR I
    c0:  C BBCR BBCRCC II CCCCC RC RR CR I C CCCCCC RRC CCC CC C RC I
    k1:  R CCCC RRRRRC II CCCCC CC RR CR I C CCCCCC CCC CCC CC C CC I
    k2:  R CCCC RRRRCR II CCCCC CC RR CR I C CCCCCC CCC CCC CC C CC I
    ov:  C CCCC CCCCCC RR CCCCC CC CC CC C C CCCCCC CCC III CC C CC I
    oc:  C CCCC CCCCCC RI CCCCC CC CC CC C C ICICCC CCC III CC C CC I
    i0:  C CCCC CCCBCC II RRCCC RC CC CC I C CCCCCC RCR III CC C CC I
    j0:  C CCCC CCCCCC II RRCCC CR CC CC I C CCCCCC RCR III CC C CC I
    i2:  C CCCC CCCCCC II CCRCC CR CC IC I C CCCCCC CRC III CC C CC I
    ix:  C CCCC CCCCCC II CCCCC CC CC CC I C CCCCCC CCC III CC C CC I
    iw:  C CCCC CCCCCC II CCCCR RR RR CC I C CCCCCC CCC BBB CC C CC I
    r0:  C RRCR RRCRCC II RCCCR RC RR CC I C CCCCCC RRC CCC CC C RC I
    r2:  C CCRC CCRCCC II CRRCR CR RR CC I C CCCCCC CCR CCC CC C CR I
    mm:  R RRRR RRRRRR II CCCCR RR RR II I C CCCCRR RRR III CC C RR I
    mn:  R RRRR RRRRRR II CCCCR RR RR II I C CCCCRR RRR III CC C RR I
    pp:  C CCCC CCCCCC II CCCCC CC RR RR I C CCCCCC CCC III CC C CC I
    pn:  R CCCC RRRRRR II CCCCC CC RR RR I C CCCCCC RRR III CC C RR I
    re:  C CCCC CCCCCC CC CCCCC CC CC CC C C CCCCII CCC III CC C CC I
    rf:  C CCCC CCCCCC II CCCCC CC CC CC I C CCCCCC CCC CCC CC C CC I
    ck:  C CCCC CCCCCC CI CCCCC CC CC CC C C ICICCC CCC CCC CC C CC I
    cj:  C CCCC CCCCCC CC CCCCC CC CC CC C C CICCCC CCC CCC CC C CC I
    cd:  C CCCC CCCCCC CI CCCCC CC CC CC C C ICCCCC CCC CCC CC C CC I
    ct:  C CCCC CCCCCC CC CCCCC CC CC CC C C CCCICC CCC CCC CC C CC I
    cs:  C CCCC CCCCCC II CCCCC CC RR CC I C CCCCIC CCC CCC CC C CC I
    cf:  C CCCC CCCCCC II CCCCC CC RR CC I C CCCCCI CCC CCC CC C CC I
    l0:  C CCCI RRCRCC II RRCCC RC RR CR I C CCCCCC RCC III CC C CC I
    m0:  C CCCI RRCCCC II CCRCC RC RR IR I C CCCCCC CRC III CC C CC I
    l2:  C CCCC CCRCCC II RRCCC CR RR CR I C CCCCCC CCR III CC C CC I
    w5:  I IIII CCCCCC II CCCCI CC II II I C CCCCCC III IIC CC I II I
    w6:  I IIII CCCCCC II CCCCR CC II II I C CCCCCC III RIC CC I II I
    z1:  I IIII CCCCCC II CCCCC CC II II I C CCCCCC III CCI CC I II I
    b1:  C CCCC CCCCCC CC CCCCC CC CC CC C C CCCCCC CCC CCC IC C CC C
    b2:  C CCCC CCCCCC CC CCCCC CC CC CC C C CCCCCC CCC CCC CI C CC C
    cl:  C CCCC CCCCCC CC CCCCC CC CC CC C C CCCCCC CCC CCC CC C CC C
    y0:  C CCCR RBCCCC II CCCCC RC RR CR I C CCCCCC CCC III CC C CC I
    y2:  C CCCC CCRCCC II CCCCC CR RR CR I C CCCCCC CCC III CC C CC I
"""

# The same, but which rows the change of rows is about is not known.
ROWS_UNKNOWN = """
    d0:  C RRCR RRCRCC II CCCCC RC RR CC I C CCCCCC RRC III CC C CC I
    d2:  C CCRC CCRCCC II CCCCC CR RR CC I C CCCCCC CCR III CC C CC I
    u0:  C RRCR RRCRCC II CCCCC RC RR CR I C CCCCCC RRC CCC CC C RC I
    v0:  C RRCR RRCRCC II CCCCC RC RR CR I C CCCCCC RRC CCC CC C RC I
    u2:  C CCRC CCRCCC II CCCCC CR RR CR I C CCCCCC CCR CCC CC C CR I
    c0:  C RRCR RRCRCC II CCCCC RC RR CR I C CCCCCC RRC CCC CC C RC I
"""

# On purpose otherwise than pylance: keys are compared by the caller; a compaction keeps the order of the rows.
KEYS_CHECKED = """
    k1:  C CCCC CCCCCC II CCCCC CC RR CR I C CCCCCC CCC CCC CC C CC I
    k2:  C CCCC CCCCCC II CCCCC CC RR CR I C CCCCCC CCC CCC CC C CC I
"""
ORDER_KEPT = """
    r0:  C BBCB BBCRCC II RCCCR RC RR CC I C CCCCCC RRC CCC CC C RC I
    r2:  C CCBC CCBCCC II CRRCR CR RR CC I C CCCCCC CCR CCC CC C CR I
"""


def pairs(table: str) -> list[tuple[str, str, str]]:
    rows = (line.split(":") for line in table.split("\n") if ":" in line)
    return [
        (mine.strip(), theirs, letter)
        for mine, letters in rows
        for theirs, letter in zip(CASES, letters.replace(" ", ""), strict=True)
    ]


def outcome(mine: Staged, theirs: str) -> str:
    """The letter after the whole rebase, rows compared."""
    operation = CASES[theirs]
    rebase = Rebase(mine).over(winner(operation))
    if not rebase.verdict.outcome.lands:
        return rebase.verdict.outcome.value
    changed = list(getattr(operation, "updated_fragments", ()))
    known = vectors(*((state, ROWS_OF[theirs][state.id]) for state in changed if theirs not in ("c0",)))
    head = head_after(operation)
    assert {vector_key(state) for state in rebase.needs(head)} <= known.keys()
    return rebase.merge(head, known).verdict.outcome.value


def ids(pair: tuple[str, str, str]) -> str:
    return f"{pair[0]}-after-{pair[1]}"


@pytest.mark.parametrize("pair", pairs(TABLE), ids=ids)
def test_pair_ends_as_the_table_says(pair: tuple[str, str, str]) -> None:
    mine, theirs, letter = pair
    assert outcome(staged(CASES[mine], ROWS_OF.get(mine)), theirs) == letter


@pytest.mark.parametrize("pair", pairs(ROWS_UNKNOWN), ids=ids)
def test_pair_without_known_rows_ends_as_the_table_says(pair: tuple[str, str, str]) -> None:
    mine, theirs, letter = pair
    operation = rewrite_column(0, B, None, file=7) if mine == "c0" else CASES[mine]
    assert outcome(staged(operation), theirs) == letter


@pytest.mark.parametrize("pair", pairs(KEYS_CHECKED), ids=ids)
def test_pair_with_keys_compared_by_the_caller_ends_as_the_table_says(pair: tuple[str, str, str]) -> None:
    mine, theirs, letter = pair
    assert outcome(staged(CASES[mine], keys_checked_exactly=True), theirs) == letter


@pytest.mark.parametrize("pair", pairs(ORDER_KEPT), ids=ids)
def test_pair_with_a_compaction_that_keeps_order_ends_as_the_table_says(pair: tuple[str, str, str]) -> None:
    mine, theirs, letter = pair
    assert outcome(staged(CASES[mine], rewrite_keeps_order=True), theirs) == letter


def test_table_by_hand_has_every_operation_in_both_orders() -> None:
    covered = {(CASES[mine].name, CASES[theirs].name) for mine, theirs, _ in pairs(TABLE)}
    assert covered == {(mine, theirs) for mine in OPERATIONS for theirs in (*OPERATIONS, "Unknown")}
    assert covered == MATRIX.keys()


def test_every_letter_is_an_outcome() -> None:
    assert {letter for _, _, letter in pairs(TABLE)} == {outcome.value for outcome in Outcome}


def test_an_operation_of_mine_that_is_not_known_is_refused() -> None:
    verdict = Rebase(staged(ops.Unknown())).over(winner(CASES["A_"])).verdict
    assert verdict.outcome is Outcome.INCOMPATIBLE


def test_shards_are_told_apart_by_their_whole_id() -> None:
    other = UUID(int=SHARD_S.int + (1 << 100))
    update = ops.Update(compacted_sstables=(mark(other, 1),))
    assert outcome(staged(update), "w5") == "C"
