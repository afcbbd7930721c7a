"""What people read when two writers met."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conroi import operations as ops
from conroi.conflicts.catalog import CATALOG
from conroi.conflicts.matrix import MATRIX, OPERATIONS, PRECHECKS, SEVERAL
from conroi.conflicts.reason import ConcurrentCommit, Reason
from conroi.conflicts.rebase import Rebase
from conroi.conflicts.rules import Outcome
from conroi.format.manifest import Manifest
from tests.conflicts.builders import base, delete, rewrite, staged, winner
from tools.conflicts_page import DELIBERATE_DIFFERENCES

FOUND_WHILE_MERGING = {
    "rows/same-rows",
    "overlay/rows-moved",
    "rewrite/nothing-left",
    "rewrite/indexed",
    "rewrite/index-straddles",
    "keys/same",  # by the commit itself, which reads the keys
    "table/moved",  # by the commit itself, which was told that it may not
    "table/contended",
}
NAMES = st.one_of(st.sampled_from([*OPERATIONS, "Unknown"]), st.just(""))


@pytest.mark.contract("T12")
@given(
    rule=st.sampled_from(sorted(CATALOG)),
    mine=NAMES,
    theirs=NAMES,
    fragments=st.lists(st.integers(0, 2**32), max_size=9),
    rows=st.integers(0, 2**40),
    names=st.lists(st.text(max_size=5), max_size=9),
    version=st.none() | st.integers(1, 2**63),
)
def test_every_finding_can_be_explained(
    rule: str, mine: str, theirs: str, fragments: list[int], rows: int, names: list[str], version: int | None
) -> None:
    first = None if version is None else winner(ops.Restore(version=1), version, "{not a field}")
    reason = Reason(rule, mine, theirs, tuple(fragments), rows, names=tuple(names), winner=first)
    text = reason.explain()
    assert " Hint: " in text
    assert reason.what_happened.endswith(".")
    assert reason.why.endswith(".")


@pytest.mark.parametrize("rule", sorted(CATALOG))
def test_every_finding_is_one_sentence_and_a_hint_without_a_gap(rule: str) -> None:
    reason = Reason(rule, "Delete", "Restore", (3, 4), 7, names=("b",), winner=winner(ops.Restore(version=1)))
    text = reason.explain()
    assert not re.search(r"[{}]|  | ,|\.\.", text)
    assert reason.why[0].isupper()
    assert reason.hint[0].isupper()
    assert reason.why.count(". ") == 0
    assert len(reason.why) < 220


def test_an_explanation_says_who_when_what_and_why() -> None:
    theirs = winner(rewrite(0, 1), 8, "nightly compaction")
    reason = Rebase(staged(delete(0, [1], file=1))).over(theirs).verdict.reason
    assert reason is not None
    assert reason.explain() == (
        "Version 8 of the table (“nightly compaction”), committed first at 2023-11-14 22:13:20 UTC, by lance 14.0.2, "
        "compacted data files. Your delete changes rows of fragment 0, and these rows were copied to new files, so it "
        "does not know where they are. Hint: Run it again on version 8: lake.run(work) does so for all of a "
        "transaction, conroi.retry for your own functions, and the verbs of a table do it by themselves."
    )


def test_long_lists_are_cut() -> None:
    reason = Reason("rows/unknown", "Delete", "Delete", tuple(range(9)))
    assert "fragments 0, 1, 2, 3, 4 and 4 more" in reason.explain()
    assert "fragment 3 and" not in reason.explain()


def test_a_winner_without_name_time_or_message_is_still_told() -> None:
    made = ops.transaction(ops.Restore(version=1), read_version=5, uuid="u")
    reason = Reason("table/restored", "Delete", "Restore", winner=ConcurrentCommit(6, made, ops.Restore(version=1)))
    assert reason.what_happened == "Version 6 of the table, committed first, restored an older version."


def test_a_winner_is_described_by_its_manifest_and_transaction() -> None:
    head = base().editable_head()
    head.version, head.timestamp.seconds, head.timestamp.nanos = 9, 3, 7
    head.writer_version.library, head.writer_version.version = "lance", "14.0.2"
    made = ops.transaction(
        ops.Restore(version=1), read_version=5, uuid="u", properties={"__lance_commit_message": "back"}
    )
    found = ConcurrentCommit.of(base().changed(head=head), made, ops.of(made))
    assert (found.version, found.timestamp_ns, found.writer, found.message) == (
        9,
        3_000_000_007,
        "lance 14.0.2",
        "back",
    )
    bare = ConcurrentCommit.of(Manifest(b""), made, ops.of(made))
    assert (bare.timestamp_ns, bare.writer) == (None, None)


def test_every_finding_of_the_catalog_has_a_rule_and_the_other_way_round() -> None:
    known = (SEVERAL, *MATRIX.values(), *(check.rule for check in PRECHECKS))
    rules = {name for rule in known for name in rule.findings}
    assert rules | FOUND_WHILE_MERGING == CATALOG.keys()
    assert not rules & FOUND_WHILE_MERGING


def test_differences_name_pairs_of_the_matrix_and_findings_of_the_catalog() -> None:
    for difference in DELIBERATE_DIFFERENCES:
        assert MATRIX.keys() >= set(difference.pairs)
        assert difference.finding is None or CATALOG[difference.finding].outcome is difference.conroi


def test_outcomes_that_land() -> None:
    assert {outcome for outcome in Outcome if outcome.lands} == {Outcome.COMPATIBLE, Outcome.REBASED}


@pytest.mark.parametrize(("rows", "text"), [(0, "rows"), (1, "1 row"), (2, "2 rows"), (1234, "1,234 rows")])
def test_rows_are_counted(rows: int, text: str) -> None:
    reason = Reason("overlay/rows", "Update", "DataOverlay", (3,), rows)
    assert reason.why == f"Your update moves {text} of fragment 3 with values that have been covered by new ones."


def test_names_are_quoted() -> None:
    reason = Reason("keys/same", "Update", "Update", names=("b", "c"))
    assert reason.why == "Your update brings in rows with the key “b” and “c”, and so did a concurrent commit."


@pytest.mark.parametrize(
    ("count", "text"), [(0, "the same fragments"), (2, "fragments 0 and 1"), (5, "fragments 0, 1, 2, 3 and 4"),
                        (6, "fragments 0, 1, 2, 3, 4 and 1 more")]
)  # fmt: skip
def test_up_to_five_fragments_are_listed(count: int, text: str) -> None:
    reason = Reason("rows/whole-fragment", "Delete", "Delete", tuple(range(count)))
    assert reason.why.startswith(f"Your delete removes all rows of {text}, and some")


@pytest.mark.parametrize(
    ("timestamp_ns", "time"), [(-1, "1970-01-01 00:00:00"), (10**30, "9999-12-31 23:59:59")], ids=["before", "after"]
)
def test_a_time_that_is_no_date_is_shown_as_the_nearest_one(timestamp_ns: int, time: str) -> None:
    made = ops.transaction(ops.Restore(version=1), read_version=5, uuid="u")
    first = ConcurrentCommit(6, made, ops.Restore(version=1), timestamp_ns=timestamp_ns)
    reason = Reason("table/restored", "Delete", "Restore", winner=first)
    assert f"committed first at {time} UTC, restored" in reason.what_happened
