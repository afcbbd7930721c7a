"""Every finding by its stable id: how it ends, why, and what to do now.

The ids are part of the public face (`error.reason.rule`); do not rename one. A `why` is one plain sentence for somebody
who knows git but not databases; `{mine}` is the name of their own change ("your delete"), and `{fragments}` and `{names}`
say which files, columns, keys or settings the two have in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conroi.conflicts.outcome import Outcome

_AGAIN = "Run it again on version {version}: the table's own verbs do so by themselves, and conroi.retry does it for your own functions."
_LOOK = "Look at the table as it is now (version {version}), and do the work again only if you still want it."
_NOTHING = "Nothing to do; both changes are in the table."


@dataclass(frozen=True, slots=True)
class Clause:
    """One way in which a meeting of two changes can end."""

    outcome: Outcome
    why: str
    hint: str


def _again(why: str, hint: str = _AGAIN) -> Clause:
    return Clause(Outcome.RETRYABLE, why, hint)


def _never(why: str, hint: str = _LOOK) -> Clause:
    return Clause(Outcome.INCOMPATIBLE, why, hint)


def _mended(why: str) -> Clause:
    return Clause(Outcome.REBASED, why, _NOTHING)


CATALOG: Mapping[str, Clause] = {
    # ------------------------------------------------------------------ the whole table
    "table/overwritten": _never("The rows and columns that {mine} was made for are no longer the table's."),
    "table/restored": _never(
        "A restore puts an older state of the whole table in place, so what {mine} was made for may not exist any more,"
        " and doing it now would mix two histories."
    ),
    "table/overwritten-twice": _again(
        "{mine} replaces the whole table too, so going on would silently throw that other new content away.",
        "Look at version {version}; if your content should still replace it, run the overwrite again.",
    ),
    "table/unknown-operation": _never(
        "This version of conroi cannot tell whether {mine} fits with it, and does not guess.",
        "Upgrade conroi (a newer writer is at work on this table), then run it again on version {version}.",
    ),
    # ----------------------------------------------------------------------- the columns
    "columns/nulls": _again(
        "One of the two changes columns in a way that was only checked against the rows known at the time, the other brings"
        " new values, so {mine} has to look again."
    ),
    "columns/metadata": _again(
        "One of the two carries the whole schema, the other changes the schema's metadata, so {mine} would wipe out half."
    ),
    "columns/file-list": _again(
        "One of the two adds columns, which lists the data files of every fragment anew, so {mine} has to start from"
        " the list as it is now."
    ),
    "columns/both-changed": _again("Both change the list of columns, so {mine} has to start from the list as it is now."),
    "columns/dropped-meanwhile": _never(
        "{mine} adds columns to the list it started from, and that list has lost or renamed columns since, so it would"
        " bring them back."
    ),
    # -------------------------------------------------------------------------- the rows
    "rows/merged": _mended(
        "Both mark rows of {fragments} as deleted or moved, and they are different rows, so the two lists were joined."
    ),
    "rows/newer-deletions-kept": _mended(
        "{mine} changes columns of rows in {fragments} that the other one did not touch, so it took over the newer list"
        " of deleted rows."
    ),
    "rows/same-rows": _again(
        "{mine} changes {rows} in {fragments} that the other one has just deleted or changed, so it may not be right any more."
    ),
    "rows/unknown": _again(
        "Both change rows of {fragments}, and it is not known which rows {mine} changes, so they cannot be told apart."
    ),
    "rows/files-changed": _again(
        "The data files of {fragments} were written anew in place, so {mine} was computed from values that are old now."
    ),
    "rows/fragment-gone": _again("{fragments}, in which {mine} changes rows, is no longer part of the table."),
    "rows/whole-fragment": _again(
        "{mine} removes {fragments} as a whole, and rows of it were deleted or changed meanwhile, so the selection may"
        " have changed."
    ),
    "rows/compacted": _again(
        "The rows of {fragments}, which {mine} changes, were copied to new data files, so it no longer knows where they are."
    ),
    "rows/replaced": _again("A column of {fragments}, whose rows {mine} changes, got new values meanwhile."),
    # -------------------------------------------------------------------------- the keys
    "keys/append": _again("Rows were added, and {mine} inserts keys that must be unique and may be among them."),
    "keys/unlisted": _again(
        "{mine} inserts keys that must be unique, and the other one does not say which keys it inserted."
    ),
    "keys/other-columns": _again("The two insert rows under different key columns, so {mine} cannot tell whether any is the same."),
    "keys/maybe-same": _again("Both insert rows, and by the key filters some of the keys in {mine} may be the same."),
    # ---------------------------------------------------------------------- compactions
    "rewrite/translated": _mended(
        "Rows of {fragments} were deleted or moved while {mine} was copying them, so the same rows were marked in the copies."
    ),
    "rewrite/same-fragments": _again("{mine} copies {fragments}, which the other one changed, so the copies are old already."),
    "rewrite/nothing-left": _again("Every row that {mine} copied was deleted or moved meanwhile, so its new files are empty."),
    "rewrite/indexed": _again(
        "All rows of one of the new files of {mine} were deleted meanwhile, and the rebuilt indices still point to it."
    ),
    # --------------------------------------------------------------------------- indices
    "index/coverage-reduced": _mended(
        "{fragments} got new values in an indexed column, so {names} was told not to answer for it."
    ),
    "index/same-name": _again("Both build an index called {names}."),
    "index/same-system-index": _again("Both replace the system index {names}, of which there is only one."),
    "index/extended-and-dropped": _again("One of the two adds to the index {names} and the other drops it."),
    "index/replaced-twice": _again("Both replace or drop the same part of the index {names}."),
    "index/rows-moved": _again("The rows of {fragments} were copied to new files, so the index {names} points to places that are gone."),
    "index/coverage-unknown": _again("The index {names} does not say which fragments it covers, so it may point to rows that moved."),
    "index/column-replaced": _again("One of the two indexes the columns {names}, the other gives them new values."),
    "index/ngram-moved": _again("The n-gram index {names} covers {fragments}, whose rows were copied to new files."),
    "index/memwal": _never("A streaming writer moved its progress mark, and index changes are not allowed beside that."),
    "index/memwal-schema": _again("The streaming index was checked against columns that have changed since."),
    "index/memwal-joined": _mended("Both move the progress of streaming writers, so the further mark of each was kept."),
    # ---------------------------------------------------------------- fragment-reuse index
    "reuse/both": _again("Both compactions defer their index work and note it in the one fragment-reuse index."),
    "reuse/straddles": _again("{mine} joins {fragments}, of which only some are covered by the new index {names}."),
    "reuse/trimmed": _mended("The fragment-reuse index was tidied up, so the same old entries were dropped from the new one."),
    "reuse/extended": _mended("A compaction added to the fragment-reuse index, so its entry was kept."),
    "reuse/external": _again("The fragment-reuse index is too large to be merged without reading it again."),
    "reuse/mixed": _never("A change of the fragment-reuse index came together with other index changes, which cannot be untangled."),
    # -------------------------------------------------------------------------- settings
    "settings/same-key": _never(
        "Both set {names}, to values that may differ.",
        "Look at what is set now (version {version}), and set it again only if you still want to.",
    ),
    "settings/replaced-table": _never(
        "One of the two changes metadata of the schema or its columns, the other replaces the schema, so {mine} has lost"
        " its ground."
    ),
    "settings/base-paths": _never("Both register a storage location under the same id, name or path: {names}."),
    # ----------------------------------------------------------------- replaced columns
    "replacement/fragment-gone": _never("{fragments}, for which {mine} brings a new column file, is no longer part of the table."),
    "replacement/column-gone": _never("The column {names}, for which {mine} brings new values, was dropped."),
    "replacement/rows-moved": _again("Rows of {fragments} moved to new files, which {mine} does not cover."),
    "replacement/column-rewritten": _again("The columns {names} of {fragments}, for which {mine} brings new values, were rewritten."),
    # ------------------------------------------------------------------ streaming writers
    "memwal/state": _never("A streaming writer moved its progress mark, and {mine} is not allowed beside that."),
    "memwal/data-changed": _never("The table changed in a way that the progress mark in {mine} does not know about."),
    "memwal/superseded": _never("The progress of the same streaming writer was moved at least as far already."),
    "memwal/behind": _again("The progress of the same streaming writer was moved, though not as far as {mine} does."),
    # --------------------------------------------------------------------------- overlays
    "overlay/columns": _again("New values were laid over columns of {fragments} that {mine} rewrites from the old values."),
    "overlay/rows": _again("New values were laid over {rows} of {fragments} that {mine} moves with the old values."),
    "overlay/rows-moved": _again("{rows} of {fragments}, over which {mine} lays new values, were moved meanwhile."),
    "overlay/rows-checked": _mended("Rows of {fragments} moved, but none over which {mine} lays new values."),
}
"""All findings. Their ids are stable."""
