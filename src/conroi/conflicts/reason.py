"""Conflict reason: why two changes do or do not fit together, as facts and as a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from conroi.conflicts.catalog import CATALOG
from conroi.conflicts.rules import Outcome
from conroi.format.manifest import Manifest
from conroi.format.transaction import Transaction
from conroi.operations.base import Operation

_DEEDS = {
    "Append": ("append", "added rows"),
    "Delete": ("delete", "deleted rows"),
    "Update": ("update", "changed rows"),
    "Overwrite": ("overwrite", "replaced the whole table"),
    "CreateIndex": ("index change", "changed indices"),
    "Rewrite": ("compaction", "compacted data files"),
    "Merge": ("change of columns", "added columns"),
    "Project": ("drop or rename of columns", "dropped or renamed columns"),
    "Restore": ("restore", "restored an older version"),
    "ReserveFragments": ("reservation of fragment ids", "reserved fragment ids"),
    "UpdateConfig": ("change of settings", "changed settings or metadata"),
    "DataReplacement": ("column replacement", "replaced column files"),
    "UpdateMemWalState": ("streaming progress", "moved the progress mark of a streaming writer"),
    "UpdateBases": ("registration of storage locations", "registered storage locations"),
    "Clone": ("clone", "cloned the table"),
    "DataOverlay": ("overlay", "laid new values over existing rows"),
}
_SHOWN = 5  # how many fragments or names a sentence lists


@dataclass(frozen=True, slots=True)
class ConcurrentCommit:
    """A concurrent commit that came first."""

    version: int
    transaction: Transaction
    operation: Operation = field(repr=False)
    """Not shown: it may have thousands of fragments, or a filter of many bytes. The transaction says its name."""
    timestamp_ns: int | None = None
    writer: str | None = None
    message: str | None = None
    author: str | None = None

    @classmethod
    def of(cls, manifest: Manifest, transaction: Transaction, operation: Operation) -> ConcurrentCommit:
        """The concurrent commit that created this manifest."""
        head = manifest.head
        stamp, library = head.timestamp, head.writer_version
        return cls(
            version=head.version,
            transaction=transaction,
            operation=operation,
            timestamp_ns=stamp.seconds * 1_000_000_000 + stamp.nanos if head.HasField("timestamp") else None,
            writer=f"{library.library} {library.version}".strip() or None,
            message=transaction.message,
            author=transaction.author,
        )


@dataclass(frozen=True, slots=True)
class Reason:
    """The conflict rule, both operations, and what the two have in common."""

    rule: str
    """The stable id of the finding, a key of `conroi.conflicts.catalog.CATALOG`."""
    mine: str
    """The name of my operation."""
    theirs: str
    """The name of the operation that was committed first."""
    fragments: tuple[int, ...] = ()
    """The fragments in common, where the finding is about fragments."""
    rows: int = 0
    """How many rows are in common, where they could be compared."""
    sample: tuple[tuple[int, int], ...] = ()
    """A few of these rows, as (fragment, offset)."""
    names: tuple[str, ...] = ()
    """The columns, index names or settings in common, where the finding is about those."""
    winner: ConcurrentCommit | None = field(default=None, repr=False)

    @property
    def outcome(self) -> Outcome:
        return CATALOG[self.rule].outcome

    @property
    def hint(self) -> str:
        """What to do now."""
        return self._fill(CATALOG[self.rule].hint)

    @property
    def what_happened(self) -> str:
        """One sentence about the concurrent commit."""
        deed = _DEEDS.get(self.theirs, ("", "did something that this version of conroi does not support"))[1]
        if self.winner is None:
            return f"A concurrent transaction {deed} first."
        when = _clock(self.winner.timestamp_ns)
        said = f" (“{self.winner.message}”)" if self.winner.message else ""
        return f"Version {self.winner.version} of the table{said}, committed first{when}{self._by}, {deed}."

    @property
    def _by(self) -> str:
        author, writer = (None, None) if self.winner is None else (self.winner.author, self.winner.writer)
        if author and writer:
            return f", by {author} ({writer})"
        return f", by {author or writer}" if author or writer else ""

    @property
    def why(self) -> str:
        """One sentence on why the two are or are not compatible."""
        sentence = self._fill(CATALOG[self.rule].why)
        return sentence[0].upper() + sentence[1:]

    def explain(self) -> str:
        """Two plain sentences and a hint."""
        return f"{self.what_happened} {self.why} Hint: {self.hint}"

    def _fill(self, template: str) -> str:
        return template.format(
            mine=f"your {_DEEDS.get(self.mine, ('change', ''))[0]}",
            fragments=_listed("fragment", self.fragments) or "the same fragments",
            names=_listed("", [f"“{name}”" for name in self.names]) or "of the same name",
            rows=_counted(self.rows),
            version=self.winner.version if self.winner else "that is newest",
        )


_LAST_SECOND = 253_402_300_799
"""The end of the year 9999, which is as far as dates go."""


def _clock(timestamp_ns: int | None) -> str:
    if timestamp_ns is None:
        return ""
    seconds = min(max(timestamp_ns // 1_000_000_000, 0), _LAST_SECOND)
    return datetime.fromtimestamp(seconds, UTC).strftime(" at %Y-%m-%d %H:%M:%S UTC")


def _counted(rows: int) -> str:
    return "rows" if rows == 0 else "1 row" if rows == 1 else f"{rows:,} rows"


def _listed(noun: str, items: Iterable[object]) -> str:
    words = [str(item) for item in items]
    if not words:
        return ""
    more = len(words) - _SHOWN
    shown = words if more <= 0 else [*words[:_SHOWN], f"{more} more"]
    text = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    return f"{noun}{'s' if noun and len(words) > 1 else ''} {text}".strip()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one conflict check: outcome, reason, and my operation after the rebase."""

    outcome: Outcome
    reason: Reason | None = None
    """None if the two are unrelated."""
    operation: Operation | None = None
    """My operation after the rebase, where that needs no file to be read."""
    contested: frozenset[int] = frozenset()
    """Fragments whose deletion vectors must still be compared (see `conroi.conflicts.rebase`)."""


COMPATIBLE = Verdict(Outcome.COMPATIBLE)
"""The two are unrelated."""
