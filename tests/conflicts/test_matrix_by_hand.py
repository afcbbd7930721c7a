"""Every pair of operations, in both orders, against a table that was written by hand from the rules of the format.

A row is my operation, a column the one committed first. C compatible, B rebased, R retryable, I incompatible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast
from uuid import UUID

import pytest

from conroi import operations as ops
from conroi.conflicts.facts import Staged
from conroi.conflicts.matrix import MATRIX, OPERATIONS
from conroi.conflicts.rebase import Rebase
from conroi.conflicts.row_merge import vector_key
from conroi.conflicts.rules import OK, Outcome, Rule, columns, indices, overlays, rewrites
from conroi.conflicts.rules import settings as settings_
from conroi.format import lance_pb2 as pb
from tests.conflicts.builders import (
    KEY_ONE,
    KEY_TWO,
    OLD_INDEX,
    SHARD_S,
    SHARD_Z,
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


def insert_key(key: int, *marks: pb.CompactedSsTable) -> ops.Update:
    inserted = (new_fragment("inserted.lance"),)
    return ops.Update(new_fragments=inserted, inserted_rows=key_filter(key), compacted_sstables=marks)


# Each operation of the table below: what it is, and the rows it deletes, moves or changes.
CASES: dict[str, ops.Operation] = {
    "A_": ops.Append(fragments=(new_fragment("appended.lance"),)),
    # deletes: rows 1 or 5 of fragment 0, row 1 of fragment 2, all of fragment 0
    "d0": delete(0, [1], file=1),
    "e0": delete(0, [5], file=2),
    "d2": delete(2, [1], file=3),
    "x0": ops.Delete(deleted_fragment_ids=(0,)),
    # updates: moving rows 1 or 5 of fragment 0, row 1 of fragment 2; b or c of row 3 of fragment 0;
    # inserting a key; another one, from a streaming writer
    "u0": move(0, [1], file=4),
    "v0": move(0, [5], file=5),
    "u2": move(2, [1], file=6),
    "c0": rewrite_column(0, B, [3], file=7),
    "q0": rewrite_column(0, C, [3], file=8),
    "k1": insert_key(KEY_ONE),
    "k2": insert_key(KEY_TWO, mark(SHARD_S, 6)),
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
    # settings: config k, config j, config k deleted, table metadata, schema metadata, metadata of column c
    "ck": settings(config={"k": "2"}),
    "cj": settings(config={"j": "2"}),
    "cd": settings(config={"k": None}),
    "ct": settings(table_metadata={"t": "1"}),
    "cs": settings(schema_metadata={"s": "1"}),
    "cf": ops.UpdateConfig(field_metadata={C: ops.update_map({"f": "1"})}),
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
    "q0": {0: [3]},
}

# Rows are known, keys only by their filters, compactions do not keep the order.
#        A D    U       O  I     R  M  P  S F C      L   W   B  K Y  ?
#        A dedx uvucqkk oo ijiii rr mm pp r r cccccc lml wwz bb c yy ?
#        _ 0020 0020012 vc 002xw 02 mn pn e f kjdtsf 002 561 12 l 02 ?
TABLE = """
    A_:  C CCCC CCCCCCC II CCCCC CC CR CR I C CCCCCC CCC III CC C CC I
    d0:  C RBCR RBCRRCC II CCCCC RC RR CC I C CCCCCC RRC III CC C CC I
    e0:  C BRCR BRCRRCC II CCCCC RC RR CC I C CCCCCC RRC III CC C CC I
    d2:  C CCRC CCRCCCC II CCCCC CR RR CC I C CCCCCC CCR III CC C CC I
    x0:  C RRCR RRCRRCC II CCCCC RC RR CC I C CCCCCC RRC III CC C CC I
    u0:  C RBCR RBCRRCC II CCCCC RC RR CR I C CCCCCC RRC CCC CC C RC I
    v0:  C BRCR BRCRRCC II CCCCC RC RR CR I C CCCCCC RRC CCC CC C CC I
    u2:  C CCRC CCRCCCC II CCCCC CR RR CR I C CCCCCC CCR CCC CC C CR I
    c0:  C BBCR BBCRRCC II CCCCC RC RR CR I C CCCCCC RRC CCC CC C RC I
    q0:  C BBCR BBCRRCC II CCCCC RC RR RR I C CCCCCC RRC CCC CC C CC I
    k1:  R CCCC RRRRRRC II CCCCC CC RR CR I C CCCCCC CCC CCC CC C CC I
    k2:  R CCCC RRRRRCR II CCCCC CC RR CR I C CCCCCC CCC RIC CC C CC I
    ov:  C CCCC CCCCCCC RR CCCCC CC CC CC C C CCCCCC CCC III CC C CC I
    oc:  C CCCC CCCCCCC RI CCCCC CC CC CC C C ICICCC CCC III CC C CC I
    i0:  C CCCC CCCBCCC II RRCCC RC CC CC I C CCCCCC RCR III CC C CC I
    j0:  C CCCC CCCCCCC II RRCCC CR CC CC I C CCCCCC RCR III CC C CC I
    i2:  C CCCC CCCCCCC II CCRCC CR CC IC I C CCCCCC CRC III CC C CC I
    ix:  C CCCC CCCCCCC II CCCCC CC CC CC I C CCCCCC CCC III CC C CC I
    iw:  C CCCC CCCCCCC II CCCCR RR RR CC I C CCCCCC CCC BBB CC C CC I
    r0:  C RRCR RRCRRCC II RCCCR RC RR CC I C CCCCCC RRC CCC CC C RC I
    r2:  C CCRC CCRCCCC II CRRCR CR RR CC I C CCCCCC CCR CCC CC C CR I
    mm:  R RRRR RRRRRRR II CCCCR RR RR II I C CCCCRR RRR III CC C RR I
    mn:  R RRRR RRRRRRR II CCCCR RR RR II I C CCCCRR RRR III CC C RR I
    pp:  C CCCC CCCCCCC II CCCCC CC RR RR I C CCCCCC CCC III CC C CC I
    pn:  R CCCC RRRRRRR II CCCCC CC RR RR I C CCCCCC RRR III CC C RR I
    re:  C CCCC CCCCCCC CC CCCCC CC CC CC C C CCCCII CCC III CC C CC I
    rf:  C CCCC CCCCCCC II CCCCC CC CC CC I C CCCCCC CCC CCC CC C CC I
    ck:  C CCCC CCCCCCC CI CCCCC CC CC CC C C ICICCC CCC CCC CC C CC I
    cj:  C CCCC CCCCCCC CC CCCCC CC CC CC C C CICCCC CCC CCC CC C CC I
    cd:  C CCCC CCCCCCC CI CCCCC CC CC CC C C ICCCCC CCC CCC CC C CC I
    ct:  C CCCC CCCCCCC CC CCCCC CC CC CC C C CCCICC CCC CCC CC C CC I
    cs:  C CCCC CCCCCCC II CCCCC CC RR CC I C CCCCIC CCC CCC CC C CC I
    cf:  C CCCC CCCCCCC II CCCCC CC RR IC I C CCCCCI CCC CCC CC C CC I
    l0:  C CCCI RRCRCCC II RRCCC RC RR CR I C CCCCCC RCC III CC C CC I
    m0:  C CCCI RRCCRCC II CCRCC RC RR IR I C CCCCCC CRC III CC C CC I
    l2:  C CCCC CCRCCCC II RRCCC CR RR CR I C CCCCCC CCR III CC C CC I
    w5:  I IIII CCCCCCI II CCCCI CC II II I C CCCCCC III IIC CC I II I
    w6:  I IIII CCCCCCI II CCCCR CC II II I C CCCCCC III RIC CC I II I
    z1:  I IIII CCCCCCC II CCCCC CC II II I C CCCCCC III CCI CC I II I
    b1:  C CCCC CCCCCCC CC CCCCC CC CC CC C C CCCCCC CCC CCC IC C CC C
    b2:  C CCCC CCCCCCC CC CCCCC CC CC CC C C CCCCCC CCC CCC CI C CC C
    cl:  C CCCC CCCCCCC CC CCCCC CC CC CC C C CCCCCC CCC CCC CC C CC C
    y0:  C CCCR RBCCCCC II CCCCC RC RR CR I C CCCCCC CCC III CC C CC I
    y2:  C CCCC CCRCCCC II CCCCC CR RR CR I C CCCCCC CCC III CC C CC I
"""

# The same, but which rows the change of rows is about is not known.
ROWS_UNKNOWN = """
    d0:  C RRCR RRCRRCC II CCCCC RC RR CC I C CCCCCC RRC III CC C CC I
    d2:  C CCRC CCRCCCC II CCCCC CR RR CC I C CCCCCC CCR III CC C CC I
    u0:  C RRCR RRCRRCC II CCCCC RC RR CR I C CCCCCC RRC CCC CC C RC I
    v0:  C RRCR RRCRRCC II CCCCC RC RR CR I C CCCCCC RRC CCC CC C RC I
    u2:  C CCRC CCRCCCC II CCCCC CR RR CR I C CCCCCC CCR CCC CC C CR I
    c0:  C RRCR RRCRRCC II CCCCC RC RR CR I C CCCCCC RRC CCC CC C RC I
"""

# On purpose otherwise than pylance: keys are compared by the caller; a compaction keeps the order of the rows.
KEYS_CHECKED = """
    k1:  C CCCC CCCCCCC II CCCCC CC RR CR I C CCCCCC CCC CCC CC C CC I
    k2:  C CCCC CCCCCCC II CCCCC CC RR CR I C CCCCCC CCC RIC CC C CC I
"""
ORDER_KEPT = """
    r0:  C BBCB BBCRRCC II RCCCR RC RR CC I C CCCCCC RRC CCC CC C RC I
    r2:  C CCBC CCBCCCC II CRRCR CR RR CC I C CCCCCC CCR CCC CC C CR I
"""


def rows(table: str) -> dict[str, str]:
    """The letters of each row, without the gaps."""
    lines = (line.split(":") for line in table.split("\n") if ":" in line)
    return {mine.strip(): letters.replace(" ", "") for mine, letters in lines}


def outcome(mine: Staged, theirs: str) -> str:
    """The letter after the whole rebase, rows compared."""
    operation = CASES[theirs]
    rebase = Rebase(mine).over(winner(operation))
    if not rebase.verdict.outcome.lands:
        return rebase.verdict.outcome.value
    changed = list(getattr(operation, "updated_fragments", ()))
    known = vectors(*((state, ROWS_OF[theirs][state.id]) for state in changed if theirs not in ("c0", "q0")))
    head = head_after(operation)
    assert {vector_key(state) for state in rebase.needs(head)} <= known.keys()
    return rebase.merge(head, known).verdict.outcome.value


def letters(mine: Staged) -> str:
    return "".join(outcome(mine, theirs) for theirs in CASES)


@pytest.mark.parametrize("mine", rows(TABLE))
def test_my_operation_ends_as_the_table_says(mine: str) -> None:
    assert letters(staged(CASES[mine], ROWS_OF.get(mine))) == rows(TABLE)[mine]


@pytest.mark.parametrize("mine", rows(ROWS_UNKNOWN))
def test_my_operation_without_known_rows_ends_as_the_table_says(mine: str) -> None:
    operation = rewrite_column(0, B, None, file=7) if mine == "c0" else CASES[mine]
    assert letters(staged(operation)) == rows(ROWS_UNKNOWN)[mine]


@pytest.mark.parametrize("mine", rows(KEYS_CHECKED))
def test_my_operation_with_keys_compared_by_the_caller_ends_as_the_table_says(mine: str) -> None:
    assert letters(staged(CASES[mine], keys_checked_exactly=True)) == rows(KEYS_CHECKED)[mine]


@pytest.mark.parametrize("mine", rows(ORDER_KEPT))
def test_my_compaction_that_keeps_order_ends_as_the_table_says(mine: str) -> None:
    assert letters(staged(CASES[mine], rewrite_keeps_order=True)) == rows(ORDER_KEPT)[mine]


def test_table_by_hand_has_every_operation_in_both_orders() -> None:
    assert all(len(row) == len(CASES) for row in rows(TABLE).values())
    covered = {(CASES[mine].name, theirs.name) for mine in rows(TABLE) for theirs in CASES.values()}
    assert covered == {(mine, theirs) for mine in OPERATIONS for theirs in (*OPERATIONS, "Unknown")}
    assert covered == MATRIX.keys()


def test_no_cell_of_the_matrix_could_be_wrong_unnoticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: put a wrong rule into each cell in turn; the table above must contradict it."""
    wrong_where_ok = MATRIX["Append", "Overwrite"]
    for (mine, theirs), rule in list(MATRIX.items()):
        with monkeypatch.context() as patch:
            patch.setitem(
                cast("dict[tuple[str, str], Rule]", MATRIX), (mine, theirs), wrong_where_ok if rule is OK else OK
            )
            assert contradicted(mine, theirs), f"{mine} after {theirs}"


def contradicted(mine: str, theirs: str) -> bool:
    return any(
        outcome(staged(CASES[name], ROWS_OF.get(name)), other) != letter
        for name, row in rows(TABLE).items()
        for other, letter in zip(CASES, row, strict=True)
        if (CASES[name].name, CASES[other].name) == (mine, theirs)
    )


def test_every_letter_is_an_outcome() -> None:
    assert set("".join(rows(TABLE).values())) == {outcome.value for outcome in Outcome}


def test_an_operation_of_mine_that_is_not_known_is_refused() -> None:
    verdict = Rebase(staged(ops.Unknown())).over(winner(CASES["A_"])).verdict
    assert verdict.outcome is Outcome.INCOMPATIBLE


def test_shards_are_told_apart_by_their_whole_id() -> None:
    other = UUID(int=SHARD_S.int + (1 << 100))
    update = ops.Update(compacted_sstables=(mark(other, 1),))
    assert outcome(staged(update), "w5") == "C"


def test_a_rule_lists_what_it_finds() -> None:
    for mine in CASES:
        for theirs in CASES:
            rule = MATRIX.get((CASES[mine].name, CASES[theirs].name))
            finding = None if rule is None else rule.decide(staged(CASES[mine], ROWS_OF.get(mine)), CASES[theirs])
            assert rule is None or rule.can_pass or finding is not None, (mine, theirs)
            assert rule is None or finding is None or finding.rule in rule.findings, (mine, theirs)


def test_inserts_under_different_key_columns_are_retried_also_where_their_filters_have_no_bit_in_common() -> None:
    theirs = ops.Update(new_fragments=(new_fragment("x.lance"),), inserted_rows=key_filter(KEY_TWO, [B]))
    mine = ops.Update(new_fragments=(new_fragment("y.lance"),), inserted_rows=key_filter(KEY_ONE))
    verdict = Rebase(staged(mine)).over(winner(theirs)).verdict
    assert verdict.reason is not None
    assert (verdict.outcome, verdict.reason.rule) == (Outcome.RETRYABLE, "keys/other-columns")


@pytest.mark.parametrize(
    "rule",
    [
        columns.REPLACEMENT_MEETS_REPLACEMENT,
        columns.REPLACEMENT_MEETS_ROW_CHANGE,
        indices.COLUMN_REPLACED,
        indices.INDEX_MEETS_INDEX,
        indices.INDEX_MEETS_UPDATE,
        overlays.UPDATE_MEETS_OVERLAY,
        rewrites.REWRITE_MEETS_INDEX,
        settings_.SAME_BASE,
        settings_.SAME_SETTING,
    ],
    ids=lambda rule: rule.findings[0],
)
def test_a_rule_about_two_kinds_of_operations_finds_nothing_between_others(rule: Rule) -> None:
    for mine in CASES:
        for theirs in CASES:
            if MATRIX.get((CASES[mine].name, CASES[theirs].name)) is not rule:
                assert rule.decide(staged(CASES[mine], ROWS_OF.get(mine)), CASES[theirs]) is None, (mine, theirs)
