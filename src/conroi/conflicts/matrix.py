"""Conflict matrix: one rule for each pair of concurrent operations, readable as a table.

A row is my operation, a column the one that was committed first. `docs/conflicts.md` is generated from it.

Before the matrix, prechecks compare what any pair of operations has in common.
"""

# ruff: noqa: E501 - the table is wider than a page, and stays a table

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conroi.conflicts import facts
from conroi.conflicts.catalog import CATALOG
from conroi.conflicts.facts import Staged
from conroi.conflicts.reason import COMPATIBLE, ConcurrentCommit, Reason, Verdict
from conroi.conflicts.rules import (
    OK,
    Finding,
    Rule,
    always,
    columns,
    first_of,
    found,
    indices,
    overlays,
    rewrites,
    rows,
    settings,
)
from conroi.conflicts.rules.settings import changes_schema
from conroi.operations import Append, CreateIndex, DataOverlay, DataReplacement, Merge, Update, UpdateConfig, is_folded
from conroi.operations.base import Operation

BRINGS_VALUES = (Append, Update, DataReplacement, DataOverlay)


@dataclass(frozen=True, slots=True)
class Precheck:
    """A rule for pairs of which one operation is of one kind and one of the other, in either order."""

    mark: str
    """How the table of the docs refers to it."""
    one: frozenset[str]
    other: frozenset[str]
    rule: Rule

    def concerns(self, mine: str, theirs: str) -> bool:
        return (mine in self.one and theirs in self.other) or (mine in self.other and theirs in self.one)


def _null_promise(mine: Staged, theirs: Operation) -> Finding | None:
    is_broken = facts.may_break_null_promise(mine.operation) or facts.may_break_null_promise(theirs)
    return found("columns/nulls") if is_broken else None


def _schema_metadata(mine: Staged, theirs: Operation) -> Finding | None:
    is_changed = changes_schema(mine.operation) or changes_schema(theirs)
    return found("columns/metadata") if is_changed else None


PRECHECKS = (
    Precheck(
        "a",
        frozenset({"Merge", "Project"}),
        frozenset(kind.name for kind in BRINGS_VALUES),
        Rule(
            "Retried if one changes columns and promises nothing about nulls, and the other brings values.",
            ("columns/nulls",),
            _null_promise,
        ),
    ),
    Precheck(
        "b",
        frozenset({Merge.name}),
        frozenset({"UpdateConfig"}),
        Rule(
            "Retried if one adds columns and the other changes metadata of the schema or its columns.",
            ("columns/metadata",),
            _schema_metadata,
        ),
    ),
)


def _several(mine: Staged, theirs: Operation) -> Finding | None:
    is_hidden = is_folded(theirs) and isinstance(mine.operation, CreateIndex | UpdateConfig)
    return found("table/several") if is_hidden or is_folded(mine.operation) else None


SEVERAL = Rule(
    "Retried if yours is several changes in one version, which fit only the version they were made on. Retried also if "
    "the other one is, and you build an index or change settings: it may have done that too, and does not say so.",
    ("table/several",),
    _several,
)
"""The first check: whether one of the two is a folded transaction of several changes to one table."""


OPERATIONS = (
    "Append",
    "Delete",
    "Update",
    "Overwrite",
    "CreateIndex",
    "Rewrite",
    "Merge",
    "Project",
    "Restore",
    "ReserveFragments",
    "UpdateConfig",
    "DataReplacement",
    "UpdateMemWalState",
    "UpdateBases",
    "Clone",
    "DataOverlay",
)
"""The sixteen operations; the rows of the table, and its columns, to which comes `Unknown`."""

# Rules with only one answer. Short names, so that the table below stays a table.
ok___ = OK
newtb = always("Incompatible: the whole table was replaced.", "table/overwritten")
older = always("Incompatible: an older version was restored.", "table/restored")
strea = always("Incompatible: a streaming writer moved its progress mark.", "memwal/state")
datch = always("Incompatible: the table changed under your progress mark.", "memwal/data-changed")
files = always("Retried: the list of data files was rewritten.", "columns/file-list")
cols_ = always("Retried: both change the list of columns.", "columns/both-changed")
dropd = always("Incompatible: columns were dropped or renamed.", "columns/dropped-meanwhile")
what_ = always("Incompatible: an operation that this version does not support.", "table/unknown-operation")
# Rules that have to look.
rows_ = rows.ROW_CHANGES
rowsc = rows.ROWS_COMPACTED
rowsr = rows.ROWS_REPLACED
keysa = rows.KEYS_APPENDED
keysr = first_of(
    "First the keys that both insert, then the rows that both change.", rows.KEYS_INSERTED, rows.ROW_CHANGES
)
shard = settings.SAME_SHARD
walix = settings.INDEX_MEETS_PROGRESS
schix = settings.SCHEMA_UNDER_INDEX
updov = overlays.UPDATE_MEETS_OVERLAY
ovdel = overlays.OVERLAY_MEETS_DELETE
ovupd = overlays.OVERLAY_MEETS_UPDATE
ixupd = indices.INDEX_MEETS_UPDATE
ixix_ = indices.INDEX_MEETS_INDEX
ixcol = indices.COLUMN_REPLACED
ixrew = rewrites.INDEX_MEETS_REWRITE
rewix = rewrites.REWRITE_MEETS_INDEX
rewrw = rewrites.REWRITE_MEETS_ROW_CHANGE
rewre = rewrites.REWRITE_MEETS_REWRITE
rewch = rewrites.REWRITE_MEETS_CHANGE
setng = settings.SAME_SETTING
ovset = settings.OVERWRITE_MEETS_SETTINGS
ovovr = settings.OVERWRITE_MEETS_OVERWRITE
setov = settings.SETTINGS_MEET_OVERWRITE
setre = settings.SETTINGS_MEET_RESTORE
bases = settings.SAME_BASE
reprw = columns.REPLACEMENT_MEETS_ROW_CHANGE
reprp = columns.REPLACEMENT_MEETS_REPLACEMENT
reprc = columns.REPLACEMENT_MEETS_REWRITE
repcd = columns.REPLACED_COLUMN_DROPPED
updcd = columns.REWRITTEN_COLUMN_DROPPED
ixcd_ = columns.INDEXED_COLUMN_DROPPED
setcd = columns.DESCRIBED_COLUMN_DROPPED

# fmt: off
_TABLE: Mapping[str, tuple[Rule, ...]] = {
    # mine \ theirs      Append Delete Update Overwr CreIdx Rewrit Merge  Projec Restor Reserv UpdCon DataRe MemWal UpdBas Clone  Overla Unknown
    "Append":            (ok___, ok___, ok___, newtb, ok___, ok___, ok___, ok___, older, ok___, ok___, ok___, strea, ok___, ok___, ok___, what_),
    "Delete":            (ok___, rows_, rows_, newtb, ok___, rowsc, files, ok___, older, ok___, ok___, rowsr, strea, ok___, ok___, ok___, what_),
    "Update":            (keysa, rows_, keysr, newtb, ok___, rowsc, files, updcd, older, ok___, ok___, rowsr, shard, ok___, ok___, updov, what_),
    "Overwrite":         (ok___, ok___, ok___, ovovr, ok___, ok___, ok___, ok___, ok___, ok___, ovset, ok___, strea, ok___, ok___, ok___, what_),
    "CreateIndex":       (ok___, ok___, ixupd, newtb, ixix_, ixrew, schix, ixcd_, older, ok___, ok___, ixcol, walix, ok___, ok___, ok___, what_),
    "Rewrite":           (ok___, rewrw, rewrw, newtb, rewix, rewre, files, ok___, older, ok___, ok___, rewch, ok___, ok___, ok___, rewch, what_),
    "Merge":             (files, files, files, newtb, schix, files, cols_, dropd, older, ok___, ok___, files, strea, ok___, ok___, files, what_),
    "Project":           (ok___, ok___, ok___, newtb, ok___, ok___, cols_, cols_, older, ok___, ok___, ok___, strea, ok___, ok___, ok___, what_),
    "Restore":           (ok___, ok___, ok___, ok___, ok___, ok___, ok___, ok___, ok___, ok___, setre, ok___, strea, ok___, ok___, ok___, what_),
    "ReserveFragments":  (ok___, ok___, ok___, newtb, ok___, ok___, ok___, ok___, older, ok___, ok___, ok___, ok___, ok___, ok___, ok___, what_),
    "UpdateConfig":      (ok___, ok___, ok___, setov, ok___, ok___, ok___, setcd, setre, ok___, setng, ok___, ok___, ok___, ok___, ok___, what_),
    "DataReplacement":   (ok___, reprw, reprw, newtb, ixcol, reprc, files, repcd, older, ok___, ok___, reprp, strea, ok___, ok___, ok___, what_),
    "UpdateMemWalState": (datch, datch, shard, newtb, shard, ok___, datch, datch, older, ok___, ok___, datch, shard, ok___, datch, datch, what_),
    "UpdateBases":       (ok___, ok___, ok___, ok___, ok___, ok___, ok___, ok___, ok___, ok___, ok___, ok___, ok___, bases, ok___, ok___, ok___),
    "Clone":             (ok___, ok___, ok___, ok___, ok___, ok___, ok___, ok___, ok___, ok___, ok___, ok___, ok___, ok___, ok___, ok___, ok___),
    "DataOverlay":       (ok___, ovdel, ovupd, newtb, ok___, rowsc, files, ok___, older, ok___, ok___, ok___, strea, ok___, ok___, ok___, what_),
}
# fmt: on

MATRIX: Mapping[tuple[str, str], Rule] = {
    (mine, theirs): rule
    for mine, row in _TABLE.items()
    for theirs, rule in zip((*OPERATIONS, "Unknown"), row, strict=True)
}
"""The rule for (my operation, the operation committed first)."""


_UNRELATED = frozenset(
    pair for pair, rule in MATRIX.items() if rule is OK and not any(precheck.concerns(*pair) for precheck in PRECHECKS)
)


def are_unrelated(mine: str, theirs: str) -> bool:
    """Whether two operations of these names are always compatible, so that no check is needed."""
    return (mine, theirs) in _UNRELATED


def verdict_on(staged: Staged, winner: ConcurrentCommit) -> Verdict:
    """Conflict check: the verdict on my staged operation after this concurrent commit."""
    mine, theirs = staged.operation, winner.operation
    finding = SEVERAL.decide(staged, theirs)
    if finding is not None:
        return _verdict(finding, staged, winner)
    for precheck in PRECHECKS:
        finding = precheck.rule.decide(staged, theirs) if precheck.concerns(mine.name, theirs.name) else None
        if finding is not None:
            return _verdict(finding, staged, winner)
    finding = MATRIX.get((mine.name, theirs.name), what_).decide(staged, theirs)
    return COMPATIBLE if finding is None else _verdict(finding, staged, winner)


def _verdict(finding: Finding, staged: Staged, winner: ConcurrentCommit) -> Verdict:
    reason = Reason(
        rule=finding.rule,
        mine=staged.operation.name,
        theirs=winner.operation.name,
        fragments=finding.fragments,
        rows=finding.rows,
        sample=finding.sample,
        names=finding.names,
        winner=winner,
    )
    return Verdict(CATALOG[finding.rule].outcome, reason, finding.operation, finding.contested)
