"""Three-way merge of the tables of a lake: existence, names and contents, from metadata alone. Pure.

Tables are matched by identity, never by name. All tables are decided together: first which tables exist after the
merge, then their names, then which side's content they have. Only tables that both sides changed need a merge of rows,
which reads the rows: see `conroi.branches.contents`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from conroi.branches.results import Choice, Conflict
from conroi.catalog.names import parents, shown

UNKNOWN = "unknown"
"""The content of a base where criss-cross merges left several."""

Content: TypeAlias = Literal["source", "target", "both"]
"""Which side's content a table has after the merge; `both` is a merge of the two."""


@dataclass(frozen=True, slots=True)
class TableFact:
    """A table, or a namespace, in one state of the lake."""

    name: str | None
    """Its id in the state. None: of the base, where merges that crossed each other left several."""
    content: object = ""
    """The content of one identity is the same in two states exactly if this is equal; `UNKNOWN` only in the base."""
    is_table: bool = True


Facts: TypeAlias = Mapping[str, TableFact]
"""The tables and namespaces of one state, by identity."""
Choose: TypeAlias = Callable[[Conflict], Choice | None]
"""Resolves a conflict; None if it cannot."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The planned change of one table, or of one namespace."""

    identity: str
    source: TableFact | None
    target: TableFact | None
    name: str | None
    """Its name after the merge; None if it does not exist then."""
    content: Content
    is_table: bool
    conflicts: int = 0
    """How many conflicts of its own were resolved."""

    @property
    def is_created(self) -> bool:
        return self.target is None and self.name is not None

    @property
    def is_dropped(self) -> bool:
        return self.target is not None and self.name is None

    @property
    def is_renamed(self) -> bool:
        return self.target is not None and self.name is not None and self.name != self.target.name

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to do, or was anything to settle."""
        has_content = self.name is not None and self.content != "target"
        return self.is_created or self.is_dropped or self.is_renamed or has_content or bool(self.conflicts)


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What a merge does to the tables and namespaces of the target, in the order of their names."""

    tables: tuple[TablePlan, ...]
    namespaces: tuple[TablePlan, ...]
    kept_namespaces: tuple[str, ...] = ()
    """Namespaces that the source dropped and that are not empty after the merge."""


def plan(base: Facts, source: Facts, target: Facts, choose: Choose) -> MergePlan:
    """Merge the tables of the source into the target; an unresolved conflict counts as resolved for `target`."""
    planner = _Planner(base, source, target, choose)
    planner.decide_presence()
    planner.decide_names()
    planner.settle_collisions()
    return planner.result()


def is_changed(base: Facts, side: Facts) -> bool:
    """Whether anything differs from the base: if not, there is nothing to merge and nothing to remember."""
    return base.keys() != side.keys() or any(_differs(base[identity], fact) for identity, fact in side.items())


def _differs(base: TableFact, side: TableFact) -> bool:
    return base.content == UNKNOWN or (base.name, base.content) != (side.name, side.content)


class _Planner:
    def __init__(self, base: Facts, source: Facts, target: Facts, choose: Choose) -> None:
        self._base = base
        self._source = source
        self._target = target
        self._choose = choose
        self._is_there: dict[str, bool] = {}
        self._names: dict[str, str] = {}
        """By identity, the name after the merge."""
        self._whole: dict[str, Choice] = {}
        """Of tables of which one side is taken whole."""
        self._settled: dict[str, int] = {}
        self._identities = sorted(
            base.keys() | source.keys() | target.keys(), key=lambda identity: (self._label(identity), identity)
        )

    def _label(self, identity: str) -> str:
        """The name by which people know the table: that on the target, else that on the source."""
        for state in (self._target, self._source, self._base):
            fact = state.get(identity)
            if fact is not None and fact.name is not None:
                return fact.name
        return ""

    def _ask(self, identity: str, kind: str, message: str, table: str | None = None) -> Choice:
        conflict = Conflict(shown(self._label(identity) if table is None else table), kind, message)
        answer = self._choose(conflict)
        self._settled[identity] = self._settled.get(identity, 0) + (answer is not None)
        return answer or "target"

    # ------------------------------------------------------------------------ presence

    def decide_presence(self) -> None:
        """Which tables exist after the merge."""
        for identity in self._identities:
            self._is_there[identity] = self._stays(identity)

    def _stays(self, identity: str) -> bool:
        base, source, target = (state.get(identity) for state in (self._base, self._source, self._target))
        if base is None or (source is None) == (target is None):
            return source is not None or target is not None
        if source is None:
            assert target is not None
            return _differs(base, target) and self._one_side(identity, base, "source", "target") == "target"
        return _differs(base, source) and self._one_side(identity, base, "target", "source") == "source"

    def _one_side(self, identity: str, base: TableFact, dropped: Choice, changed: Choice) -> Choice:
        if base.name is None or base.content == UNKNOWN:
            return self._ask(identity, "history", f"dropped on the {dropped}; {_CROSSED}")
        return self._ask(identity, "dropped", f"dropped on the {dropped}, changed on the {changed}")

    # ------------------------------------------------------------------------ names

    def decide_names(self) -> None:
        """The name of each table, considered alone."""
        for identity in self._identities:
            if self._is_there[identity]:
                self._names[identity] = self._name(identity)

    def _name(self, identity: str) -> str:
        source, target = self._source.get(identity), self._target.get(identity)
        if source is None or target is None:
            return _name_of(source or target)
        base = self._base.get(identity)
        one_of = {"source": _name_of(source), "target": _name_of(target)}
        if base is None and source.content != target.content:
            self._whole[identity] = self._ask(identity, "created", "both branches changed it since it was created")
            return one_of[self._whole[identity]]
        if base is not None and base.content == UNKNOWN and source.content != target.content:
            self._whole[identity] = self._ask(identity, "history", _CROSSED)
        then = None if base is None else base.name
        if source.name in (then, target.name):
            return one_of["target"]
        if target.name == then:
            return one_of["source"]
        message = f"renamed to {shown(one_of['source'])} on the source, to {shown(one_of['target'])} on the target"
        return one_of[self._ask(identity, "name", message)]

    # ------------------------------------------------------------------------ collisions

    def settle_collisions(self) -> None:
        """Tables that would get the same name, with all that are linked to them by names, are one conflict."""
        seen: set[str] = set()
        for one, other in list(self._collisions()):
            if one not in seen:
                group = self._linked({one, other})
                seen |= group
                self._settle(sorted(group, key=lambda identity: (self._label(identity), identity)))

    def _collisions(self) -> Iterator[tuple[str, str]]:
        """Pairs of tables with one name, or of which one has the name of a namespace of the other."""
        by_name: dict[str, list[str]] = {}
        for identity, name in self._names.items():
            by_name.setdefault(name, []).append(identity)
        for name, holders in sorted(by_name.items()):
            for number, one in enumerate(holders):
                yield from ((one, other) for other in holders[:number])
            for parent in parents(name):
                tables = [each for each in by_name.get(parent, ()) if self._is_table(each)]
                yield from ((table, inside) for table in tables for inside in holders)

    def _linked(self, group: set[str]) -> set[str]:
        """All tables that share a name with one of the group: on the source, on the target, or after the merge."""
        named: dict[str, set[str]] = {}
        inside: dict[str, set[str]] = {}
        for identity in self._names:
            for name in self._names_of(identity):
                named.setdefault(name, set()).add(identity)
                for parent in parents(name):
                    inside.setdefault(parent, set()).add(identity)
        found, waiting = set(group), list(group)
        while waiting:
            identity = waiting.pop()
            near: set[str] = set()
            for name in self._names_of(identity):
                near |= named[name] | (inside.get(name, set()) if self._is_table(identity) else set())
                near |= {each for parent in parents(name) for each in named.get(parent, ()) if self._is_table(each)}
            waiting += near - found
            found |= near
        return found

    def _names_of(self, identity: str) -> set[str]:
        facts = (self._source.get(identity), self._target.get(identity))
        return {self._names[identity], *(_name_of(fact) for fact in facts if fact is not None)}

    def _settle(self, group: list[str]) -> None:
        pairs = [pair for pair in self._collisions() if pair[0] in group]
        is_created = all(sum(identity not in self._target for identity in pair) == 1 for pair in pairs)
        one, other = pairs[0]
        name = max(self._names[one], self._names[other], key=len)
        if is_created:
            message = f"the source brings {self._described(one, other)}, and the target has another of this name"
        else:
            message = f"{self._described(one, other)} would have one name"
        answer = self._ask(group[0], "created" if is_created else "name", message, name)
        state = self._source if answer == "source" else self._target
        for identity in group:
            fact = state.get(identity)
            self._is_there[identity] = fact is not None
            self._names.pop(identity)
            if fact is not None:
                self._names[identity] = _name_of(fact)

    def _described(self, one: str, other: str) -> str:
        names = sorted({shown(self._label(each)) for each in (one, other)})
        return " and ".join(names)

    # ------------------------------------------------------------------------ contents

    def result(self) -> MergePlan:
        """The plan, when all names are decided."""
        kept = self._keep_namespaces()
        plans = [self._plan(identity) for identity in self._identities]
        return MergePlan(
            tables=tuple(each for each in plans if each.is_table),
            namespaces=tuple(each for each in plans if not each.is_table),
            kept_namespaces=tuple(kept),
        )

    def _keep_namespaces(self) -> list[str]:
        """A namespace that the source dropped stays if anything of the target is still in it."""
        needed = {parent for name in self._names.values() for parent in parents(name)}
        kept: list[str] = []
        for identity in self._identities:
            fact = self._target.get(identity)
            if fact is None or fact.is_table or self._is_there[identity] or _name_of(fact) not in needed:
                continue
            self._is_there[identity] = True
            self._names[identity] = _name_of(fact)
            kept.append(_name_of(fact))
        return kept

    def _plan(self, identity: str) -> TablePlan:
        return TablePlan(
            identity=identity,
            source=self._source.get(identity),
            target=self._target.get(identity),
            name=self._names.get(identity) if self._is_there[identity] else None,
            content=self._content(identity),
            is_table=self._is_table(identity),
            conflicts=self._settled.get(identity, 0),
        )

    def _content(self, identity: str) -> Content:
        base, source, target = (state.get(identity) for state in (self._base, self._source, self._target))
        if source is None or target is None:
            return "source" if target is None else "target"
        if source.content == target.content:
            return "target"
        if identity in self._whole:
            return self._whole[identity]
        assert base is not None, "else one side is taken whole"
        if source.content == base.content:
            return "target"
        return "source" if target.content == base.content else "both"

    def _is_table(self, identity: str) -> bool:
        return any(identity in state and state[identity].is_table for state in (self._base, self._source, self._target))


_CROSSED = "merges that crossed each other left no common state of it"


def _name_of(fact: TableFact | None) -> str:
    assert fact is not None
    assert fact.name is not None, "only a base has tables without a name"
    return fact.name
