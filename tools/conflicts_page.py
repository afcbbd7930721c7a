"""The page docs/conflicts.md, from the matrix and the catalog of rules. `python -m tools.conflicts_page` prints it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conroi.conflicts.catalog import CATALOG
from conroi.conflicts.matrix import MATRIX, OPERATIONS, PRECHECKS, SEVERAL, Precheck
from conroi.conflicts.reason import Reason
from conroi.conflicts.rules import OK, Outcome, Rule


@dataclass(frozen=True, slots=True)
class Difference:
    """One deliberate difference, as it stands in the docs."""

    title: str
    pairs: tuple[tuple[str, str], ...]
    """(my operation, the one committed first)."""
    pylance: Outcome
    conroi: Outcome
    when: str
    why: str
    finding: str | None = None
    """The finding that only we have, where there is one."""


DELIBERATE_DIFFERENCES = (
    Difference(
        "A compaction takes over deletions",
        (("Rewrite", "Delete"), ("Rewrite", "Update")),
        Outcome.RETRYABLE,
        Outcome.REBASED,
        "rows of the fragments that you compact were deleted, or moved by an update, and your compaction keeps the"
        " order of rows"
        " (`Staged.rewrite_keeps_order`).",
        "A compaction takes long and is easily overtaken; with steady updates it would never land. The rows that"
        " were alive"
        " when it read them are in its new fragments in the same order, so the place of each deleted row can be counted"
        " out. A fragment that was removed as a whole counts as one with all rows deleted. If a file of it was"
        " rewritten in"
        " place, or a new fragment would have no row left while an index points to it, the answer stays “retried”.",
        "rewrite/translated",
    ),
    Difference(
        "Keys are compared exactly",
        (("Update", "Append"), ("Update", "Update")),
        Outcome.RETRYABLE,
        Outcome.COMPATIBLE,
        "your update inserts rows under a declared key, and the commit compares the keys themselves"
        " (`Staged.keys_checked_exactly`).",
        "pylance only knows filters: it refuses every append and every update without a filter, most updates of"
        " more than a"
        " hundred keys although no key is the same, and it sees nothing at all where a filter is missing. We look the"
        " inserted keys up in what is new since the base, so that only a key that is really there counts.",
    ),
    Difference(
        "A rewrite of columns takes over deletions",
        (("Update", "Delete"), ("Update", "Update")),
        Outcome.RETRYABLE,
        Outcome.REBASED,
        "your update gives columns new values in place (`REWRITE_COLUMNS`), it is known in which rows"
        " (`updated_fragment_offset_bitmaps`), and only other rows of the fragment were deleted or moved meanwhile.",
        "The new column files cover every place of the fragment, whichever rows are deleted, so the newer list of"
        " deleted"
        " rows fits them as it is. The rows that you changed are all still there, and the rows that went away you"
        " did not"
        " change, so nothing of either side is lost.",
        "rows/newer-deletions-kept",
    ),
    Difference(
        "No index on a dropped column",
        (("CreateIndex", "Project"),),
        Outcome.COMPATIBLE,
        Outcome.INCOMPATIBLE,
        "a column that you index was dropped meanwhile.",
        "pylance commits the index, and from then on it fails on every filtered read of the table, because the"
        " index names a"
        " column that is not there.",
        "index/column-gone",
    ),
    Difference(
        "Metadata survives a drop of columns",
        (("Project", "UpdateConfig"),),
        Outcome.COMPATIBLE,
        Outcome.COMPATIBLE,
        "metadata of the schema was set before you drop or rename columns.",
        "The answer is the same, the table is not: pylance writes the metadata that it knew and so loses what was set"
        " meanwhile; we keep it.",
    ),
)
"""All of them; the test against pylance allows no other."""


_COLUMNS = (*OPERATIONS, "Unknown")
_WORDS = {
    Outcome.COMPATIBLE: "compatible",
    Outcome.REBASED: "rebased",
    Outcome.RETRYABLE: "retryable",
    Outcome.INCOMPATIBLE: "incompatible",
}
_INTRODUCTION = """\
<!-- Rendered by `python -m tools.conflicts_page`; a test compares. Do not edit by hand. -->
# Conflict resolution of concurrent writers

Two writers start from the same version. One commits first. What becomes of the other one depends on what the two do.
This is optimistic concurrency control: no lock is held. The second writer is checked against every commit since its
base, with one of four outcomes.

| | outcome | what happens |
|---|---|---|
| C | compatible | your change goes on top, as when git merges changes of two different files |
| B | rebased | it goes on top after a small repair that loses nothing, as when git merges two places of one file |
| R | retryable | `RetryableConflict`: it must be computed again on the newer version; a table's verbs do so |
| I | incompatible | `IncompatibleConflict`: what your change was about is gone; you decide |

Every error has a `reason` with the facts (the rule, both operations, the fragments, rows or names in common, and who
committed when), and `reason.explain()` says it in two sentences and a hint.
"""


def _letters(rule: Rule, prechecks: Sequence[Precheck]) -> str:
    findings = (*rule.findings, *(name for precheck in prechecks for name in precheck.rule.findings))
    outcomes = {CATALOG[name].outcome for name in findings}
    if rule.can_pass:
        outcomes.add(Outcome.COMPATIBLE)
    return "".join(outcome.value for outcome in Outcome if outcome in outcomes)


def _numbers() -> dict[int, int]:
    """A number for each rule, in the order of the table; rules are identified by object identity."""
    numbers: dict[int, int] = {}
    for rule in MATRIX.values():
        if rule is not OK:
            numbers.setdefault(id(rule), len(numbers) + 1)
    return numbers


def _table() -> Iterator[str]:
    numbers = _numbers()
    yield "| yours \\ first | " + " | ".join(_COLUMNS) + " |"
    yield "|---" * (len(_COLUMNS) + 1) + "|"
    for mine in OPERATIONS:
        cells = [_cell(mine, theirs, numbers) for theirs in _COLUMNS]
        yield f"| **{mine}** | " + " | ".join(cells) + " |"


def _cell(mine: str, theirs: str, numbers: dict[int, int]) -> str:
    rule = MATRIX[mine, theirs]
    prechecks = [precheck for precheck in PRECHECKS if precheck.concerns(mine, theirs)]
    notes = [precheck.mark for precheck in prechecks] + ([] if rule is OK else [str(numbers[id(rule)])])
    letters = _letters(rule, prechecks)
    return f"{letters} <sup>{' '.join(notes)}</sup>" if notes else letters


def _rules() -> Iterator[str]:
    by_id = {id(rule): rule for rule in MATRIX.values()}
    for identity, number in _numbers().items():
        rule = by_id[identity]
        yield f"{number}. {rule.title} *({', '.join(f'`{name}`' for name in rule.findings)})*"


def _findings() -> Iterator[str]:
    yield "| rule | outcome | why |"
    yield "|---|---|---|"
    for name, clause in CATALOG.items():
        why = Reason(rule=name, mine="", theirs="").why
        yield f"| `{name}` | {_WORDS[clause.outcome]} | {why} |"


def _differences() -> Iterator[str]:
    for difference in DELIBERATE_DIFFERENCES:
        pairs = ", ".join(f"{mine} after {theirs}" for mine, theirs in difference.pairs)
        answers = f"pylance: {_WORDS[difference.pylance]}; conroi: {_WORDS[difference.conroi]}"
        yield f"**{difference.title}** ({pairs}; {answers}). When {difference.when} {difference.why}"
        yield ""


def page() -> str:
    """The whole page."""
    prechecks = (
        f"- **{check.mark}** {check.rule.title} *({', '.join(f'`{name}`' for name in check.rule.findings)})*"
        for check in PRECHECKS
    )
    parts = [
        _INTRODUCTION,
        "## The table\n",
        "A row is your operation, a column the one that was committed first. A small number points to a rule below, a",
        "small letter to a question that comes first; several capitals mean that it depends.\n",
        *_table(),
        "\nTwo symmetric checks come before the table; their result does not depend on the order of the commits:\n",
        *prechecks,
        f"\nAnd before those, for a transaction with several statements on one table: {SEVERAL.title}",
        f"*({', '.join(f'`{name}`' for name in SEVERAL.findings)})*",
        "\n## The rules\n",
        *_rules(),
        "\n## Where we differ from pylance on purpose\n",
        *_differences(),
        "## Every finding\n",
        *_findings(),
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    print(page(), end="")
