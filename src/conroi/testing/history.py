"""Isolation checker for recorded histories of list-append transactions, after Adya's definitions and Jepsen's Elle.

Each register holds a list of elements; no element is appended to a register twice. So a read shows which transactions
wrote what it saw, and in which order, and the dependencies between transactions follow from the history alone:

- ww: one appended right after the other. wr: one read what the other wrote. rw: one read what was there before the
  other wrote (an anti-dependency). rt: one was over before the other was begun (real time).

A cycle of dependencies is an anomaly: no serial order explains it.

=================  ===================================================================================================
G0                 a cycle of ww
G1a                a read of what a failed transaction wrote
G1b                a read of a state in the middle of another transaction
G1c                a cycle of ww and wr
G-single           a cycle with one rw: read skew, lost update
G-nonadjacent      a cycle with several rw, no two of them in a row: long fork
G2                 a cycle with two rw in a row: write skew; the only one that snapshot isolation permits
lost               an acknowledged append that a later read, the last one of its register, does not have
duplicate          an element that is twice in one read
unwritten          an element that nothing wrote
internal           a transaction that does not see its own appends, or sees a register change by itself
incompatible       two reads of a register of which neither continues the other
=================  ===================================================================================================

The name of a cycle that needs an rt edge ends in `-realtime`. A read may be unordered (`is_ordered=False`): then the
register is a set of rows that concurrent transactions may add to without a conflict, and gives wr and rw only.

The reads of a transaction that failed, or whose outcome is unknown, count as those of a read-only transaction: also its
snapshot had to be a consistent one.

>>> history = [
...     Transaction("a", [Read("x", []), Append("y", 1)], "ok", 0, 9),
...     Transaction("b", [Read("y", []), Append("x", 2)], "ok", 1, 8),
...     Transaction("c", [Read("x", [2]), Read("y", [1])], "ok", 10, 11),
... ]
>>> [anomaly.kind for anomaly in check(history, "serializable").anomalies]
['G2']
>>> check(history, "snapshot").anomalies, check(history, "snapshot").write_skews
((), 1)
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from conroi.errors import InvalidInputError
from conroi.format.json import parse_object
from conroi.testing.history_graph import Dependencies

Isolation = Literal["snapshot", "serializable"]
Outcome = Literal["ok", "fail", "info"]
"""Committed; definitely not committed; not known."""


@dataclass(frozen=True, slots=True)
class Append:
    """An element was added at the end of a register."""

    register: str
    element: int


@dataclass(frozen=True, slots=True)
class Read:
    """All elements of a register, as a transaction saw them, with its own appends so far."""

    register: str
    elements: Sequence[int]
    is_ordered: bool = True


Operation: TypeAlias = Append | Read


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction: what it did, in order, and how it ended."""

    name: str
    operations: Sequence[Operation]
    outcome: Outcome
    invoked_ns: int
    completed_ns: int | None = None
    """By the same clock as `invoked_ns`; None if its process was killed."""

    @property
    def reads(self) -> list[Read]:
        """Its reads, in order."""
        return [operation for operation in self.operations if isinstance(operation, Read)]

    @property
    def appends(self) -> list[Append]:
        """Its appends, in order."""
        return [operation for operation in self.operations if isinstance(operation, Append)]


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something that the isolation level does not permit."""

    kind: str
    text: str
    transactions: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True)
class Report:
    """What a history was found to be."""

    anomalies: tuple[Anomaly, ...]
    committed: int
    tried: int
    reads: int
    write_skews: int = 0
    """Cycles of kind G2 at `snapshot`, which permits them."""
    unobserved: int = 0
    """Acknowledged appends after which nothing read their register: of these nothing is known."""
    recovered: int = 0
    """Transactions without a known outcome that were seen to be committed."""

    @property
    def kinds(self) -> Counter[str]:
        """How many anomalies there are of each kind."""
        return Counter(anomaly.kind for anomaly in self.anomalies)

    def __str__(self) -> str:
        found = ", ".join(f"{kind}: {count}" for kind, count in sorted(self.kinds.items())) or "no anomaly"
        return f"{self.committed} of {self.tried} transactions committed, {self.reads} reads checked, {found}"


def check(history: Iterable[Transaction], isolation: Isolation = "serializable") -> Report:
    """Search a history for what the isolation level does not permit. At best its last transaction reads everything."""
    return _Checker(list(history)).report(isolation)


# ---------------------------------------------------------------------------------- the checker


@dataclass(frozen=True, slots=True)
class _Seen:
    """What others had written to a register when a transaction read it for the first time."""

    reader: int
    elements: tuple[int, ...]


@dataclass
class _Register:
    name: str
    writers: dict[int, int] = field(default_factory=dict[int, int])
    """By element, the number of the transaction that appended it, whatever became of it."""
    last_of: dict[int, int] = field(default_factory=dict[int, int])
    """By transaction, the last element that it appended here."""
    seen: list[_Seen] = field(default_factory=list[_Seen])
    is_ordered: bool = True


class _Checker:
    def __init__(self, history: list[Transaction]) -> None:
        self._history = history
        self._anomalies: list[Anomaly] = []
        self._registers: dict[str, _Register] = {}
        self._observed: set[int] = set()
        """Transactions of which others saw an append."""
        self._index_appends()
        for number in range(len(history)):
            self._read_externally(number)

    def _register(self, name: str) -> _Register:
        return self._registers.setdefault(name, _Register(name))

    def _index_appends(self) -> None:
        names = Counter(transaction.name for transaction in self._history)
        for number, transaction in enumerate(self._history):
            if names[transaction.name] > 1:
                raise InvalidInputError(
                    f"Two transactions are called {transaction.name!r}.", hint="Give each a name of its own."
                )
            for append in transaction.appends:
                register = self._register(append.register)
                if append.element in register.writers:
                    raise InvalidInputError(
                        f"{append.element} is appended to {append.register!r} twice, so that a read would not say by "
                        "which transaction.",
                        hint="Append each element once.",
                    )
                register.writers[append.element] = number
                register.last_of[number] = append.element

    def _found(self, kind: str, text: str, *numbers: int) -> None:
        names = tuple(self._history[number].name for number in numbers)
        self._anomalies.append(Anomaly(kind, f"{text} ({', '.join(names)})", names))

    # ------------------------------------------------------------------------ one transaction by itself

    def _read_externally(self, number: int) -> None:
        """Split each read into what others wrote and what the transaction itself did before; compare its reads."""
        own: dict[str, list[int]] = defaultdict(list)
        first: dict[str, tuple[int, ...]] = {}
        for operation in self._history[number].operations:
            if isinstance(operation, Append):
                own[operation.register].append(operation.element)
                continue
            others = self._without_own(number, operation, own[operation.register])
            if others is None:
                continue
            name = operation.register
            if name not in first:
                first[name] = others
                self._note(number, operation, others)
            elif _comparable(first[name], operation) != _comparable(others, operation):
                self._found("internal", f"{name} was {_shown(first[name])} and later {_shown(others)}", number)

    def _without_own(self, number: int, read: Read, own: list[int]) -> tuple[int, ...] | None:
        elements = tuple(read.elements)
        doubled = [element for element, count in Counter(elements).items() if count > 1]
        if doubled:
            self._found("duplicate", f"{read.register} has {_shown(doubled)} more than once", number)
            return None
        split = len(elements) - len(own)
        sees_own = set(own) <= set(elements) if not read.is_ordered else elements[max(split, 0) :] == tuple(own)
        if not sees_own:
            self._found("internal", f"{read.register} is {_shown(elements)} after its own {_shown(own)}", number)
            return None
        mine = set(own)
        others = elements[:split] if read.is_ordered else tuple(e for e in elements if e not in mine)
        writers = self._register(read.register).writers
        early = [element for element in others if writers.get(element) == number]
        if early:
            self._found("internal", f"{read.register} has {_shown(early)} before it was appended", number)
            return None
        return others

    def _note(self, number: int, read: Read, others: tuple[int, ...]) -> None:
        """Remember a read of what others wrote, unless it shows what was never committed."""
        register = self._register(read.register)
        register.is_ordered = register.is_ordered and read.is_ordered
        unwritten = [element for element in others if element not in register.writers]
        if unwritten:
            self._found("unwritten", f"{register.name} has {_shown(unwritten)}, which nothing wrote", number)
            return
        for element in others:
            writer = register.writers[element]
            if self._history[writer].outcome == "fail":
                self._found("G1a", f"{register.name} has {element} of a transaction that failed", number, writer)
                return
            self._observed.add(writer)
        self._check_not_intermediate(number, register, others, is_ordered=read.is_ordered)
        register.seen.append(_Seen(number, others))

    def _check_not_intermediate(
        self, number: int, register: _Register, others: tuple[int, ...], *, is_ordered: bool
    ) -> None:
        there = set(others)
        for element in others[-1:] if is_ordered else others:
            writer = register.writers[element]
            if register.last_of[writer] not in there:
                text = f"{register.name} has {element} without the later {register.last_of[writer]}"
                self._found("G1b", text, number, writer)
                return

    # ------------------------------------------------------------------------ all of them

    def report(self, isolation: Isolation) -> Report:
        unobserved = sum(map(self._find_lost, self._registers.values()))
        graph = Dependencies(len(self._history))
        for register in self._registers.values():
            if register.is_ordered:
                self._order(register, graph)
            else:
                self._layer(register, graph)
        graph.add_real_time([(each.invoked_ns, each.completed_ns) for each in self._history])
        write_skews = 0
        for cycle in graph.cycles():
            if isolation == "snapshot" and cycle.kind.startswith("G2"):
                write_skews += 1
                continue
            text = " ".join(f"{self._history[source].name} -{kind}->" for source, kind in cycle.edges)
            names = tuple(self._history[source].name for source, _ in cycle.edges)
            self._anomalies.append(Anomaly(cycle.kind, f"{text} {names[0]}", names))
        outcomes = [transaction.outcome for transaction in self._history]
        recovered = sum(outcomes[number] == "info" for number in self._observed)
        return Report(
            tuple(self._anomalies),
            committed=outcomes.count("ok") + recovered,
            tried=len(outcomes),
            reads=sum(len(transaction.reads) for transaction in self._history),
            write_skews=write_skews,
            unobserved=unobserved,
            recovered=recovered,
        )

    def _find_lost(self, register: _Register) -> int:
        """Acknowledged appends that the last read does not have; how many no later read could have had."""
        last = max(register.seen, key=lambda seen: self._history[seen.reader].invoked_ns, default=None)
        there = set[int]() if last is None else set(last.elements)
        unobserved = 0
        for element, writer in register.writers.items():
            if self._history[writer].outcome != "ok" or element in there:
                continue
            done_ns = self._history[writer].completed_ns
            if last is None or done_ns is None or done_ns >= self._history[last.reader].invoked_ns:
                unobserved += all(element not in seen.elements for seen in register.seen)
            else:
                self._found("lost", f"{register.name} has lost {element}", writer, last.reader)
        return unobserved

    def _order(self, register: _Register, graph: Dependencies) -> None:
        """The edges of a list: every read is a prefix of the longest one."""
        longest = max((seen.elements for seen in register.seen), key=len, default=())
        writers = [register.writers[element] for element in longest]
        for before, after in itertools.pairwise(writers):
            graph.add(before, "ww", after)
        for seen in register.seen:
            length = len(seen.elements)
            if seen.elements != longest[:length]:
                self._found(
                    "incompatible",
                    f"{register.name} was {_shown(seen.elements)} and elsewhere {_shown(longest)}",
                    seen.reader,
                )
                continue
            if length:
                graph.add(writers[length - 1], "wr", seen.reader)
            if length < len(writers):
                graph.add(seen.reader, "rw", writers[length])

    def _layer(self, register: _Register, graph: Dependencies) -> None:
        """The edges of a set: reads are layers, each with the elements of the one before it and new ones."""
        layers: list[tuple[frozenset[int], list[int]]] = []
        for seen in sorted(register.seen, key=lambda seen: len(seen.elements)):
            elements = frozenset(seen.elements)
            if layers and not layers[-1][0] <= elements:
                odd = sorted(layers[-1][0] - elements)
                self._found("incompatible", f"{register.name} has more, but lacks {_shown(odd)}", seen.reader)
            elif layers and layers[-1][0] == elements:
                layers[-1][1].append(seen.reader)
            else:
                layers.append((elements, [seen.reader]))
        before, readers_before, relay = frozenset[int](), list[int](), None
        for elements, readers in layers:
            new = {register.writers[element] for element in elements - before}
            relay = graph.add_relay(new, relay)
            for reader in readers:
                graph.pass_on(relay, reader)
            for reader in readers_before:
                for writer in new:
                    graph.add(reader, "rw", writer)
            before, readers_before = elements, readers


def _comparable(elements: tuple[int, ...], read: Read) -> tuple[int, ...]:
    return elements if read.is_ordered else tuple(sorted(elements))


def _shown(elements: Sequence[int]) -> str:
    return str(list(elements)) if len(elements) <= 12 else f"[… {str(list(elements[-12:]))[1:]}"


# ---------------------------------------------------------------------------------- on disk


class Recorder:
    """Appends the transactions of one process to a file, so that those in flight when it is killed are known, too.

    Each line is one write: what was invoked before anything is done, and how it ended.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def invoke(self, name: str, appends: Sequence[Append], at_ns: int, **more: object) -> None:
        """A transaction is about to begin, and may append these."""
        self._write({"invoke": name, "at": at_ns, "appends": [[a.register, a.element] for a in appends], **more})

    def complete(
        self, name: str, outcome: Outcome, operations: Sequence[Operation], at_ns: int, **more: object
    ) -> None:
        """A transaction is over; `more` are facts for people."""
        done = [
            ["append", operation.register, operation.element]
            if isinstance(operation, Append)
            else ["read" if operation.is_ordered else "set", operation.register, list(operation.elements)]
            for operation in operations
        ]
        self._write({"complete": name, "at": at_ns, "outcome": outcome, "operations": done, **more})

    def note(self, **facts: object) -> None:
        """A line that is no transaction."""
        self._write({"note": facts})

    def _write(self, line: Mapping[str, object]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


def load_history(paths: Iterable[str | os.PathLike[str]]) -> list[Transaction]:
    """The transactions that recorders wrote; one without an end has an unknown outcome."""
    begun: dict[str, Transaction] = {}
    for line in _lines(paths):
        if "invoke" in line:
            appends = [Append(register, element) for register, element in line["appends"]]
            begun[line["invoke"]] = Transaction(line["invoke"], appends, "info", line["at"])
        elif "complete" in line:
            invoked = begun[line["complete"]]
            done = [_operation(*operation) for operation in line["operations"]]
            # What was planned, and is not known to be done, may still be there, unless the outcome is known.
            missing = [append for append in invoked.operations if append not in done and line["outcome"] != "ok"]
            begun[line["complete"]] = Transaction(
                invoked.name, [*done, *missing], line["outcome"], invoked.invoked_ns, line["at"]
            )
    return list(begun.values())


def load_notes(paths: Iterable[str | os.PathLike[str]]) -> list[dict[str, Any]]:
    """The lines that are no transactions, and the facts for people of those that are."""
    return [line.get("note", line) for line in _lines(paths)]


def _lines(paths: Iterable[str | os.PathLike[str]]) -> Iterator[dict[str, Any]]:
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):  # the last one may be cut short
                    yield parse_object(line, "A line of the history")


def _operation(kind: str, register: str, value: int | list[int]) -> Operation:
    if isinstance(value, int):
        return Append(register, value)
    return Read(register, tuple(value), is_ordered=kind == "read")
