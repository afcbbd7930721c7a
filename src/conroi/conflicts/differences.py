"""Intentional differences from the conflict rules of pylance 14."""

from __future__ import annotations

from dataclasses import dataclass

from conroi.conflicts.outcome import Outcome


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
