"""Dependency graph of a history, and the search for its cycles.

Serializability requires that the graph has no cycle. Snapshot isolation requires an order of begins and commits in
which each transaction sees exactly what was committed before it began: ww, wr and rt mean that one committed before the
other began, rw that one began before the other committed. Such an order exists if the graph of these events has no
cycle, which is equivalent to: in every cycle of transactions two rw edges are adjacent.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

_RELAY = ""
"""The kind of an edge that only hands on another."""
_RANKS = {_RELAY: 0, "ww": 1, "wr": 2, "rw": 3, "rt": 4}


@dataclass(frozen=True, slots=True)
class Cycle:
    """A cycle of dependencies; the last edge leads to the source of the first."""

    kind: str
    edges: tuple[tuple[int, str], ...]
    """The source and the kind of each."""


Edge = tuple[int, str, int]
Adjacent = Callable[[int], Iterable[tuple[int, str]]]


class Dependencies:
    """Transactions are numbers from 0; between two of them may be edges of several kinds."""

    def __init__(self, transactions: int) -> None:
        self._transactions = transactions
        self._nodes = transactions
        """Relays have the numbers after those of the transactions."""
        self._edges: dict[int, dict[int, set[str]]] = defaultdict(dict)

    def add(self, source: int, kind: str, target: int) -> None:
        """An edge; one of a transaction to itself says nothing."""
        if source != target:
            self._edges[source].setdefault(target, set()).add(kind)

    def add_relay(self, writers: Iterable[int], before: int | None) -> int:
        """A node for "has read what these wrote, and what the relay before stands for"."""
        relay, self._nodes = self._nodes, self._nodes + 1
        for writer in writers:
            self.add(writer, "wr", relay)
        if before is not None:
            self.add(before, _RELAY, relay)
        return relay

    def pass_on(self, relay: int, reader: int) -> None:
        """A transaction has read what the relay stands for."""
        self.add(relay, _RELAY, reader)

    def add_real_time(self, spans: Sequence[tuple[int, int | None]]) -> None:
        """For each transaction, when it began and when it was known to be over: the edges that imply all others."""
        begins = [(invoked, 0, number) for number, (invoked, _) in enumerate(spans)]
        ends = [(completed, 1, number) for number, (_, completed) in enumerate(spans) if completed is not None]
        done: set[int] = set()
        before: dict[int, set[int]] = {}
        for _, is_end, number in sorted(begins + ends):
            if is_end:
                done = done - before[number] | {number}
                continue
            before[number] = set(done)
            for earlier in done:
                self.add(earlier, "rt", number)

    # ------------------------------------------------------------------------ cycles

    def cycles(self) -> Iterator[Cycle]:
        """One cycle, of the strongest kind, for each set of transactions that are all in cycles with each other."""
        for component in _components(range(self._nodes), self._next(set(_RANKS))):
            yield self._strongest(component)

    def _strongest(self, component: Collection[int]) -> Cycle:
        inside = frozenset(component)
        events = [2 * node + side for node in component for side in (0, 1)]
        if _cycle(events, self._events(inside, {"rt"})):
            for suffix, more in (("", set[str]()), ("-realtime", {"rt"})):
                found = self._forbidden(inside, more, events)
                if found is not None:
                    return _made(found[0] + suffix, found[1], self._transactions)
        edges = _cycle(inside, self._next(set(_RANKS) - {"rt"}, inside))
        if edges:
            return _made("G2", edges, self._transactions)
        return _made("G2-realtime", _cycle(inside, self._next(set(_RANKS), inside)), self._transactions)

    def _forbidden(self, inside: frozenset[int], more: set[str], events: list[int]) -> tuple[str, list[Edge]] | None:
        """The strongest cycle that snapshot isolation does not permit either."""
        for name, kinds in (("G0", {"ww"}), ("G1c", {"ww", "wr", _RELAY})):
            edges = _cycle(inside, self._next(kinds | more, inside))
            if edges:
                return name, edges
        forwards = self._next({"ww", "wr", _RELAY} | more, inside)
        for source, _, target in self._all("rw", inside):
            path = _path(target, source, forwards)
            if path is not None:
                return "G-single", [(source, "rw", target), *path]
        edges = _cycle(events, self._events(inside, more))
        return (
            ("G-nonadjacent", [(a // 2, kind, b // 2) for a, kind, b in edges if a // 2 != b // 2]) if edges else None
        )

    def _next(self, kinds: set[str], inside: frozenset[int] | None = None) -> Adjacent:
        """The edges of these kinds; of several between two transactions, the strongest."""

        def adjacent(node: int) -> Iterator[tuple[int, str]]:
            for target, of_all in self._edges.get(node, {}).items():
                usable = of_all & kinds
                if usable and (inside is None or target in inside):
                    yield target, min(usable, key=_RANKS.__getitem__)

        return adjacent

    def _events(self, inside: frozenset[int], more: set[str]) -> Adjacent:
        """The graph of begins (even numbers) and commits (odd ones)."""

        def adjacent(event: int) -> Iterator[tuple[int, str]]:
            node, is_commit = divmod(event, 2)
            if not is_commit:
                yield event + 1, _RELAY
            kinds = {"ww", "wr", _RELAY} | more if is_commit else {"rw"}
            for target, kind in self._next(kinds, inside)(node):
                yield 2 * target + (0 if is_commit else 1), kind

        return adjacent

    def _all(self, kind: str, inside: frozenset[int]) -> Iterator[Edge]:
        for source in sorted(inside):
            for target, kinds in self._edges.get(source, {}).items():
                if kind in kinds and target in inside:
                    yield source, kind, target


def _made(kind: str, edges: Sequence[Edge], transactions: int) -> Cycle:
    """A cycle without its relays."""
    start = next(place for place, (source, _, _) in enumerate(edges) if source < transactions)
    turned = [*edges[start:], *edges[:start]]
    return Cycle(kind, tuple((source, kind) for source, kind, _ in turned if source < transactions))


def _cycle(nodes: Iterable[int], adjacent: Adjacent) -> list[Edge]:
    """A short cycle; empty if there is none."""
    for component in _components(nodes, adjacent):
        inside = set(component)

        def within(node: int, inside: set[int] = inside) -> Iterator[tuple[int, str]]:
            return ((target, kind) for target, kind in adjacent(node) if target in inside)

        shortest: list[Edge] | None = None
        for start in sorted(inside)[:50]:
            for target, kind in within(start):
                path = _path(target, start, within)
                if path is not None and (shortest is None or len(path) + 1 < len(shortest)):
                    shortest = [(start, kind, target), *path]
        if shortest is not None:
            return shortest
    return []


def _path(start: int, end: int, adjacent: Adjacent) -> list[Edge] | None:
    """The shortest path."""
    came: dict[int, Edge] = {}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        if node == end:
            path: list[Edge] = []
            while node != start:
                path.append(came[node])
                node = came[node][0]
            return path[::-1]
        for target, kind in adjacent(node):
            if target not in came and target != start:
                came[target] = (node, kind, target)
                waiting.append(target)
    return None


def _components(nodes: Iterable[int], adjacent: Adjacent) -> Iterator[list[int]]:
    """Strongly connected components of more than one node (Tarjan), without recursion."""
    numbers: dict[int, int] = {}
    lowest: dict[int, int] = {}
    open_nodes: list[int] = []
    is_open: set[int] = set()
    for root in nodes:
        if root in numbers:
            continue
        work: list[tuple[int, Iterator[tuple[int, str]]]] = []

        def enter(node: int, work: list[tuple[int, Iterator[tuple[int, str]]]] = work) -> None:
            numbers[node] = lowest[node] = len(numbers)
            open_nodes.append(node)
            is_open.add(node)
            work.append((node, iter(adjacent(node))))

        enter(root)
        while work:
            node, targets = work[-1]
            for target, _ in targets:
                if target not in numbers:
                    enter(target)
                    break
                if target in is_open:
                    lowest[node] = min(lowest[node], numbers[target])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == numbers[node]:
                    component = [open_nodes.pop()]
                    while component[-1] != node:
                        component.append(open_nodes.pop())
                    is_open.difference_update(component)
                    if len(component) > 1:
                        yield component
