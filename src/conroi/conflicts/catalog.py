"""Catalogue of conflict findings by stable id: outcome, cause and remedy.

The ids are public (`error.reason.rule`); do not rename one. A `why` is one plain sentence for a reader who knows git
but not databases. In it, `{mine}` is their own change ("your delete"), `{fragments}` and `{rows}` name the affected
part of the table, and `{names}` the columns, indices or settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conroi.conflicts.rules import Outcome

_AGAIN = (
    "Run it again on version {version}: lake.run(work) does so for all of a transaction, conroi.retry for your own"
    " functions, and the verbs of a table do it by themselves."
)
_LOOK = "Look at the table as it is now (version {version}), and do the work again only if you still want it."
_DONE = "Nothing to do, both changes are in the table."


@dataclass(frozen=True, slots=True)
class Clause:
    """One outcome of a conflict check."""

    outcome: Outcome
    why: str
    hint: str


def _again(why: str, hint: str = _AGAIN) -> Clause:
    return Clause(Outcome.RETRYABLE, why, hint)


def _never(why: str, hint: str = _LOOK) -> Clause:
    return Clause(Outcome.INCOMPATIBLE, why, hint)


def _mended(why: str) -> Clause:
    return Clause(Outcome.REBASED, why, _DONE)


CATALOG: Mapping[str, Clause] = {
    # ------------------------------------------------------------------ the whole table
    "table/overwritten": _never(
        "The rows and columns that {mine} was computed for no longer exist, so it would be applied to other data."
    ),
    "table/restored": _never(
        "A restore brings back an older state of the whole table, so what {mine} was computed for may not exist any"
        " more,"
        " and applying it would mix two histories."
    ),
    "table/overwritten-twice": _again(
        "{mine} replaces the whole table as well, so going on would silently throw that other content away.",
        "Look at version {version}; if your content should replace it all the same, run the overwrite again.",
    ),
    "table/unknown-operation": _never(
        "This version of conroi cannot tell whether {mine} fits with that, and does not guess.",
        "A newer writer is at work on this table: upgrade conroi, then run it again on version {version}.",
    ),
    "table/several": _again(
        "One of the two is several changes of the table in one version, and that has no place on top of another change."
    ),
    "table/moved": _never("{mine} required that the table had no concurrent commit."),
    "table/contended": _again(
        "{mine} would have gone on top of that, but at each attempt a concurrent writer was faster.",
        "Run it again on version {version} with more retries, or write bigger batches.",
    ),
    # ----------------------------------------------------------------------- the columns
    "columns/nulls": _again(
        "One of the two changes columns after a look at all values, and the other brings values that were not"
        " looked at,"
        " so {mine} has to be checked again."
    ),
    "columns/metadata": _again(
        "One of the two writes the whole schema and the other changes its metadata, so {mine} would undo a part of"
        " that."
    ),
    "columns/file-list": _again(
        "One of the two adds columns, for which it lists the data files of the whole table, and the other changes that"
        " list, so {mine} has to start from the list as it is now."
    ),
    "columns/both-changed": _again("Both change the columns, so {mine} has to start from the columns as they are now."),
    "columns/dropped-meanwhile": _never(
        "{mine} repeats all columns it knew, so it would bring back those that were dropped or renamed meanwhile."
    ),
    # -------------------------------------------------------------------------- the rows
    "rows/merged": _mended(
        "Both delete or move rows of {fragments}, but different ones, so the two lists of deleted rows were joined."
    ),
    "rows/newer-deletions-kept": _mended(
        "{mine} gives other rows of {fragments} new values, so it took over the newer list of deleted rows."
    ),
    "rows/same-rows": _again(
        "{mine} is about {rows} of {fragments} that the other one has just deleted or changed, so it was computed from"
        " values that are old now."
    ),
    "rows/unknown": _again(
        "Both change rows of {fragments}, and it was not recorded which rows {mine} changes, so they cannot be"
        " compared."
    ),
    "rows/files-changed": _again(
        "Columns of {fragments} got new values in place, so {mine} was computed from values that are old now."
    ),
    "rows/fragment-gone": _again(
        "{mine} changes rows of {fragments}, and that part of the table was removed meanwhile."
    ),
    "rows/whole-fragment": _again(
        "{mine} removes all rows of {fragments}, and some of these rows were deleted or changed meanwhile."
    ),
    "rows/column-gone": _again("{mine} gives new values to column {names}, which was dropped meanwhile."),
    "rows/compacted": _again(
        "{mine} changes rows of {fragments}, and these rows were copied to new files, so it does not know where"
        " they are."
    ),
    "rows/replaced": _again("{mine} changes rows of {fragments}, and a column there got new values meanwhile."),
    # -------------------------------------------------------------------------- the keys
    "keys/append": _again(
        "{mine} inserts rows under a key that must be unique, and the rows that were added may have the same key."
    ),
    "keys/unlisted": _again(
        "{mine} inserts rows under a key that must be unique, and the other one does not say which keys it inserted."
    ),
    "keys/other-columns": _again(
        "Both insert rows, but under different key columns, so {mine} cannot tell whether a key occurs twice."
    ),
    "keys/same": _again("{mine} brings in rows with the key {names}, and so did a concurrent commit."),
    "keys/maybe-same": _again(
        "Both insert rows under a key that must be unique, and {mine} may have a key in common with the other one."
    ),
    # ---------------------------------------------------------------------- compactions
    "rewrite/translated": _mended(
        "Rows of {fragments} were deleted or moved while {mine} copied them, so the copies of these rows were marked as"
        " deleted too."
    ),
    "rewrite/same-fragments": _again(
        "{mine} copied {fragments} before the other one changed that part of the table, so its copy is old."
    ),
    "rewrite/nothing-left": _again(
        "All rows that {mine} copied were deleted or moved meanwhile, so there is nothing left to compact."
    ),
    "rewrite/indexed": _again(
        "All rows in one of the files that {mine} wrote were deleted meanwhile, and the indices it rebuilt point there."
    ),
    "rewrite/index-straddles": _again(
        "An index now covers only some of the fragments that {mine} joins, so it could not follow the rows."
    ),
    # --------------------------------------------------------------------------- indices
    "index/coverage-reduced": _mended(
        "Indexed columns of {fragments} got new values, so the index {names} leaves that part of the table to a scan."
    ),
    "index/same-name": _again("Both build an index {names}."),
    "index/same-system-index": _again("Both replace the system index {names}, of which a table has only one."),
    "index/extended-and-dropped": _again("One of the two adds to the index {names}, and the other drops it."),
    "index/replaced-twice": _again("Both replace or drop the same part of the index {names}."),
    "index/rows-moved": _again(
        "A compaction copied the rows of {fragments} to new files, and the index {names} knows only their old places."
    ),
    "index/coverage-unknown": _again(
        "A compaction moved rows, and the index {names} does not say for which fragments it was built."
    ),
    "index/column-replaced": _again(
        "One of the two builds an index on column {names}, and the other gives it new values."
    ),
    "index/column-gone": _never("{mine} builds an index on column {names}, which was dropped meanwhile."),
    "index/ngram-moved": _again(
        "A compaction copied the rows of {fragments} to new files, and the n-gram index {names} cannot follow them."
    ),
    "index/memwal": _never("Indices cannot be changed while a streaming writer records its progress."),
    "index/memwal-schema": _again(
        "One of the two changes the columns, and the other sets up streaming writes, for which the columns were"
        " checked."
    ),
    "index/memwal-joined": _mended("Both record progress of streaming writers, so the further mark of each was kept."),
    # ---------------------------------------------------------------- fragment-reuse index
    "reuse/both": _again(
        "Both compactions leave their index work for later, and only one at a time can note that down."
    ),
    "reuse/straddles": _again("{mine} joins {fragments}, and the new index {names} covers only some of them."),
    "reuse/trimmed": _mended(
        "Old notes on earlier compactions were dropped, so they were dropped from {mine} as well."
    ),
    "reuse/extended": _mended("A compaction left a note on the rows that it moved, so the note was kept."),
    "reuse/external": _again("The notes on earlier compactions are too long to be joined without reading them again."),
    "reuse/mixed": _never(
        "The records of earlier compactions were changed together with indices, and the two cannot be separated."
    ),
    # -------------------------------------------------------------------------- settings
    "settings/same-key": _never(
        "Both set {names}, and only one value can stay.",
        "Look at what is set now (version {version}), and set it again only if you still want to.",
    ),
    "settings/replaced-table": _never(
        "One of the two changes metadata of the schema, and the other puts another schema in its place."
    ),
    "settings/column-gone": _never("{mine} describes column {names}, which was dropped meanwhile."),
    "settings/base-paths": _never(
        "Both register the storage location {names}, or another one under the same id or name.",
        "Look at the locations that are registered now (version {version}), and choose another id and name.",
    ),
    # ----------------------------------------------------------------- replaced columns
    "replacement/fragment-gone": _never(
        "{mine} brings new files for {fragments}, and that part of the table was removed meanwhile."
    ),
    "replacement/column-gone": _never("{mine} brings new values for column {names}, which was dropped meanwhile."),
    "replacement/rows-moved": _again(
        "{mine} brings new files for {fragments}, and rows were moved from there to other files meanwhile."
    ),
    "replacement/column-rewritten": _again(
        "{mine} brings new values for column {names} in {fragments}, and so does the other one."
    ),
    # ------------------------------------------------------------------ streaming writers
    "memwal/state": _never("{mine} is not allowed while a streaming writer records its progress."),
    "memwal/data-changed": _never("Progress of a streaming writer cannot be recorded on top of that change."),
    "memwal/superseded": _never("The same streaming writer has already recorded that progress, or more."),
    "memwal/behind": _again("The same streaming writer recorded progress meanwhile, though not as far as {mine} goes."),
    # --------------------------------------------------------------------------- overlays
    "overlay/columns": _again("{mine} rewrites columns of {fragments} from values that have been covered by new ones."),
    "overlay/rows": _again("{mine} moves {rows} of {fragments} with values that have been covered by new ones."),
    "overlay/rows-moved": _again("{mine} covers {rows} of {fragments} that were moved to other files meanwhile."),
    "overlay/rows-checked": _mended("Rows of {fragments} were moved, but none that {mine} covers."),
}
"""All findings. Their ids are stable."""
