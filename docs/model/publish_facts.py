"""Facts of the model of the publish protocol: the storage, the writers, and the invariants, each with its name.

Contents of a table version are the writers whose rows it has, as a bit mask. A manifest is (author, version, contents).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

TABLES = "ab"
FENCE = -1
"""Author of a collector's empty version."""

Manifest = tuple[int, int, int]
"""Author, version, contents."""
NONE: Manifest = (FENCE, 0, 0)
"""The manifest of a table without a version; under a final name: it was collected."""
EMPTY = (NONE,) * len(TABLES)


@dataclass(frozen=True)
class Tx:
    """What a writer wants: tables that it appends to, tables that it rewrites, and tables that must not move."""

    appends: str = ""
    rewrites: str = ""
    expects: str = ""

    @property
    def writes(self) -> list[int]:
        return [TABLES.index(name) for name in self.appends + self.rewrites]

    @property
    def unmoved(self) -> list[int]:
        return [TABLES.index(name) for name in self.expects + self.rewrites]


class Entry(NamedTuple):
    """A version of the lake: its author, and the pinned manifest of each table."""

    author: int
    pins: tuple[Manifest, ...]


class Writer(NamedTuple):
    """A writer. `at`: idle, looked, staged, sent, lost, landed, taken, done, crashed."""

    at: str = "idle"
    base: int = 0
    """The lake version at its beginning."""
    seen: int = 0
    """The newest lake version that it has read."""
    tries: int = 0
    sends: int = 0
    is_unanswered: bool = False
    entry: Entry | None = None
    """What it puts, or has put."""
    todo: tuple[int, ...] = ()
    """Tables that it has still to finalize; 10 + n: the watermark of table n is still to be looked at."""
    answer: str = ""


class State(NamedTuple):
    """The storage, the writers, and how many faults may still happen."""

    history: tuple[Entry, ...]
    """All versions that the lake ever had; kept for the invariants."""
    names: tuple[str, ...]
    """For each of them: there, gone (collected), or zombie (put under a name that was collected)."""
    mark: tuple[int, bool]
    """The watermark: versions up to it were, or are being, collected; whether that is done."""
    finals: tuple[tuple[Manifest | None, ...], ...]
    """Per table, by version: the manifest under the final name."""
    table_marks: tuple[int, ...]
    """Per table: the versions below were collected."""
    staged: frozenset[tuple[int, Manifest]]
    writers: tuple[Writer, ...]
    net: frozenset[tuple[int, int, Entry, int]]
    """Puts under way: writer, version, content, number of the sending."""
    crashes: int
    losses: int
    expiry: int
    sweep: int
    """How far expiry and garbage collection are: see conroi's collectors in `publish_collectors`."""
    old: frozenset[int]
    """Writers whose files are older than what a collection spares."""
    young: frozenset[int]
    """Writers that have written their transaction file again since: it names the files that must stay."""
    spared: frozenset[int]
    """Writers whose files the collector found to be needed."""
    swept: frozenset[int]
    """Writers whose files are deleted."""


def pins_at(state: State, version: int) -> tuple[Manifest, ...]:
    return state.history[version - 1].pins if version else EMPTY


def put_at(finals: tuple[Manifest | None, ...], manifest: Manifest, version: int) -> tuple[Manifest | None, ...]:
    """The final names of a table with this manifest under the name of a version."""
    longer = finals + (None,) * (version - len(finals))
    return (*longer[: version - 1], manifest, *longer[version:])


def is_free(finals: tuple[Manifest | None, ...], version: int) -> bool:
    return version > len(finals) or finals[version - 1] in (None, NONE)


# ---------------------------------------------------------------------------- the invariants


def wrong_state(state: State, *, is_final: bool, is_calm: bool) -> str:
    """The invariant that a state breaks; `is_calm`: no crash, no lost answer."""
    authors = {entry.author for entry in state.history}
    for who, writer in enumerate(state.writers):
        if writer.answer == "committed" and who not in authors:
            return f"true answers: {who} was told that it is committed, and it is not"
        if writer.answer == "refused" and who in authors:
            return f"true answers: {who} was told that nothing was committed, and it was"
    at_rest = is_final and is_calm and state.expiry != 5  # 5: about to delete
    if at_rest and any(name.startswith("zombie") for name in state.names):
        return "collected stays collected: a lake version came back under a name that was collected"
    for table in range(len(TABLES)):
        wrong = _wrong_finals(state, table, at_rest=at_rest)
        if wrong:
            return wrong
    return _unreadable(state)


def _wrong_finals(state: State, table: int, *, at_rest: bool) -> str:
    published = {entry.pins[table][1]: entry.pins[table] for entry in state.history}
    newest = max(published, default=0)
    finals = state.finals[table] + (None,) * (newest - len(state.finals[table]))
    for version, final in enumerate(finals, 1):
        if final is None and version < newest:
            return f"no gap: version {version} of {TABLES[table]} is not final, and {newest} is published"
        if final is None or final == NONE:
            continue
        if published.get(version) != final:
            return f"final names: version {version} of {TABLES[table]} is a manifest that the lake never had"
        if at_rest and version < state.table_marks[table]:
            return f"collected stays collected: version {version} of {TABLES[table]} came back"
    return ""


def _unreadable(state: State) -> str:
    for number, (entry, name) in enumerate(zip(state.history, state.names, strict=True), 1):
        if name != "there":
            continue
        for table, pin in enumerate(entry.pins):
            finals = state.finals[table]
            is_final = 0 < pin[1] <= len(finals) and finals[pin[1] - 1] == pin
            if pin[1] and not is_final and (table, pin) not in state.staged:
                return f"readable: lake version {number} pins version {pin[1]} of {TABLES[table]}, which is gone"
            if any(pin[2] >> who & 1 for who in state.swept):
                return f"readable: lake version {number} has rows of {TABLES[table]} whose files were swept"
    return ""


def wrong_version(txs: tuple[Tx, ...], state: State, entry: Entry) -> str:
    """The invariant that this new version of the lake breaks."""
    who, before = entry.author, pins_at(state, len(state.history))
    if any(each.author == who for each in state.history):
        return f"exactly once: {who} is published twice"
    at_base = pins_at(state, state.writers[who].base)
    for table in txs[who].unmoved:
        if before[table] != at_base[table]:
            return f"expectations: {who} needs {TABLES[table]} as it was at its base, and it has moved"
    for table, (old, new) in enumerate(zip(before, entry.pins, strict=True)):
        if old[2] & ~new[2]:
            return f"nothing lost: {who} publishes {TABLES[table]} without rows that it had"
        if new != old and new[1] != old[1] + 1:
            return f"contiguous versions: {TABLES[table]} goes from {old[1]} to {new[1]}"
    return ""
