"""Facts of the model of group commit: transactions, versions of the log, authors, and the invariants.

The log is `__manifest`. A version has members: transactions, withdrawals, a barrier, or somebody else's commit; and it
pins one manifest of each table. A manifest is (maker, version, contents): its contents are the authors whose rows it
has, in order, so that a row id is a place in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

TABLES = "ab"
OTHER, BARRIER, FOREIGN, TX, WITHDRAWAL = "other", "barrier", "foreign", "tx", "withdrawal"
NOBODY = -1
COLLECTOR, STRANGER, FOLDED = 7, 8, 10
"""Authors of puts that are nobody's transaction; FOLDED + n: a manifest that the leader n has folded."""

Manifest = tuple[int, int, tuple[int, ...]]
"""Maker, version, contents."""
EMPTY: tuple[Manifest, ...] = ((NOBODY, 0, ()),) * len(TABLES)


@dataclass(frozen=True)
class Tx:
    """A transaction: an append to tables, or an exact one that brings its own manifests; what it compares; its key."""

    is_append: bool
    writes: str
    reads: str = ""
    key: int | None = None
    rebases: bool = False
    """Whether the author stages again after a conflict; else it is refused."""
    needs_made: bool = False
    """Whether it drops what another one makes: it begins only when `writes` was changed an odd number of times."""

    def kills(self, other: Tx) -> bool:
        """R2 f, e: whether this one, once committed, forbids the other as it was staged."""
        if self.key is not None and self.key == other.key:
            return True
        return any(
            not (self.is_append and other.is_append and name not in other.reads)
            for name in set(self.writes) & set(other.writes + other.reads)
        )


class Member(NamedTuple):
    """What a version has: kind, author, and for a transaction the version up to which its author had read."""

    kind: str
    who: int = NOBODY
    w: int = 0


class Version(NamedTuple):
    """One version of the log."""

    members: tuple[Member, ...]
    pins: tuple[Manifest, ...]

    def __str__(self) -> str:
        return "[" + ", ".join(f"{m.kind} {m.who} of {m.w}" if m.kind == TX else m.kind for m in self.members) + "]"


class Author(NamedTuple):
    """An author, who also leads. `known` -1: not begun; an answer ends it: ok, no, crashed."""

    known: int = -1
    horizon: int = 0
    """The last version in which one of its attempts can still land (R4)."""
    is_giving_up: bool = False
    answer: str = ""
    row: int = NOBODY
    """The row id that it was told for its first table (R8)."""
    kills: int = 0
    """How often a version killed its attempts."""
    is_old: bool = False
    """Whether its staged files are older than what a collection spares."""
    mark: int = 0
    """Only for planted bugs: the version at which it connected, or at which it gave up."""


class State(NamedTuple):
    """The storage, the authors, and how many faults may still happen."""

    log: tuple[Version, ...]
    net: frozenset[tuple[int, int, Version]]
    """Puts under way: sender, version, content."""
    requests: frozenset[tuple[int, int]]
    """All requests ever left: author, w. A listing is any part of them."""
    holds: frozenset[tuple[int, int]]
    """Holds that were left: author, w."""
    authors: tuple[Author, ...]
    finals: tuple[tuple[Manifest | None, ...], ...]
    """Per table, by version: the manifest under the final name."""
    crashes: int
    noise: int
    """How many versions other leaders may still publish."""
    foreign: int
    gc: int
    """0 not begun, 1 files are old, 3 the barrier is seen, 4 done."""
    gone: frozenset[int]
    """Authors whose staged files are deleted."""


def pins_at(log: tuple[Version, ...], version: int) -> tuple[Manifest, ...]:
    return log[version - 1].pins if version else EMPTY


# ---------------------------------------------------------------------------- the invariants


def wrong_state(state: State, *, has_finals: bool) -> str:
    """Answers are true; final names hold what the log pins, without a gap."""
    counts = [0] * len(state.authors)
    for version in state.log:
        for member in version.members:
            if member.kind == TX:
                counts[member.who] += 1
    for who, author in enumerate(state.authors):
        if author.answer == "ok" and counts[who] != 1:
            return f"true answers: {who} was told that it is committed, and it is there {counts[who]} times"
        if author.answer == "no" and counts[who]:
            return f"true answers: {who} was told that it is not committed, and it is"
        if author.row != NOBODY and not _has_row(state, who, author.row):
            return f"true results: {who} was told the row id {author.row}, and its row has another one"
    return _wrong_finals(state) if has_finals else ""


def _has_row(state: State, who: int, row: int) -> bool:
    contents = [manifest[2] for manifest in pins_at(state.log, len(state.log))]
    return any(len(each) > row and each[row] == who for each in contents)


def _wrong_finals(state: State) -> str:
    for table, finals in enumerate(state.finals):
        pinned = {version.pins[table][1]: version.pins[table] for version in state.log}
        newest = max(pinned, default=0)
        for number in range(1, max(newest, len(finals) + 1)):
            final = finals[number - 1] if number <= len(finals) else None
            if final is None and number < newest:
                return f"no gap: version {number} of {TABLES[table]} is not final, and {newest} is published"
            if final is not None and final != pinned.get(number):
                return f"no fork: the final name {number} of {TABLES[table]} holds what the log does not pin"
    return ""


def wrong_version(txs: tuple[Tx, ...], state: State, new: Version) -> str:
    """The invariant that a version breaks which is about to become the next one."""
    log = state.log
    there = {m.who for version in log for m in version.members if m.kind == TX}
    keys = {txs[who].key for who in there} - {None}
    for place, member in enumerate(new.members):
        if member.kind != TX:
            continue
        who = member.who
        if who in there:
            return f"exactly once: {who} is published twice"
        if txs[who].key in keys:
            return f"idempotency: the key of {who} is published twice"
        if state.authors[who].answer == "no":
            return f"true answers: {who} is published after its author said that it is not"
        if who in state.gone:
            return f"readable: {who} is published, and its files are deleted"
        for other in (*(m for version in log[member.w :] for m in version.members), *new.members[:place]):
            if other.kind == FOREIGN:
                return f"preconditions: {who}, made on {member.w}, is published over a commit that nobody looked at"
            if other.kind == TX and txs[other.who].kills(txs[who]):
                return f"preconditions: {who}, made on {member.w}, is published over {other.who}, which forbids it"
        there.add(who)
        keys |= {txs[who].key} - {None}
    for old, pin in zip(pins_at(log, len(log)), new.pins, strict=True):
        if pin[2][: len(old[2])] != old[2]:
            return "nothing lost: a manifest is published without rows that the table had, or with other row ids"
        if pin != old and pin[1] != old[1] + 1:
            return f"contiguous versions: a table goes from {old[1]} to {pin[1]}"
    return ""
