"""The pure plan of a merge: from facts about three states to names, presence and contents. No storage.

Each state is written as `name=content`, by identity; a content is a letter, equal letters are equal contents.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from conroi.branches.plan import UNKNOWN, TableFact, is_changed, plan
from conroi.branches.results import Choice, Conflict

State = dict[str, str]
"""By identity: `name=content`."""


def facts(state: State) -> dict[str, TableFact]:
    return {identity: _fact(identity, text) for identity, text in state.items()}


def _fact(identity: str, text: str) -> TableFact:
    if identity.startswith("/"):
        return TableFact(text, "", is_table=False)
    name, _, content = text.partition("=")
    return TableFact(name if name != "?" else None, UNKNOWN if content == "?" else content)


@dataclass
class Case:
    """What there is, and for each answer what comes of it; without conflicts all three answers give the same."""

    base: State
    source: State
    target: State
    source_wins: State
    """By identity after the merge with prefer="source": `name` and whose content, as in `t=source`."""
    target_wins: State | None = None
    """The same with prefer="target"; None if there is no conflict."""
    conflicts: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Table and kind, without an answer."""


CASES: dict[str, Case] = {
    # ------------------------------------------------------------------ presence
    "nothing happened": Case({"1": "t=a"}, {"1": "t=a"}, {"1": "t=a"}, {"1": "t=target"}),
    "made on the source": Case({}, {"1": "t=a"}, {}, {"1": "t=source"}),
    "made on the target": Case({}, {}, {"1": "t=a"}, {"1": "t=target"}),
    "dropped on both": Case({"1": "t=a"}, {}, {}, {}),
    "dropped on the source": Case({"1": "t=a"}, {}, {"1": "t=a"}, {}),
    "dropped on the target": Case({"1": "t=a"}, {"1": "t=a"}, {}, {}),
    "dropped on the source, changed on the target": Case(
        {"1": "t=a"}, {}, {"1": "t=b"}, {}, {"1": "t=target"}, [("t", "dropped")]
    ),
    "dropped on the source, renamed on the target": Case(
        {"1": "t=a"}, {}, {"1": "u=a"}, {}, {"1": "u=target"}, [("u", "dropped")]
    ),
    "dropped on the target, changed on the source": Case(
        {"1": "t=a"}, {"1": "t=b"}, {}, {"1": "t=source"}, {}, [("t", "dropped")]
    ),
    "dropped on the target, renamed on the source": Case(
        {"1": "t=a"}, {"1": "u=a"}, {}, {"1": "u=source"}, {}, [("u", "dropped")]
    ),
    "on both but not in the base, alike": Case({}, {"1": "t=a"}, {"1": "t=a"}, {"1": "t=target"}),
    "on both but not in the base, other contents": Case(
        {}, {"1": "t=a"}, {"1": "t=b"}, {"1": "t=source"}, {"1": "t=target"}, [("t", "created")]
    ),
    "on both but not in the base, other names": Case(
        {}, {"1": "t=a"}, {"1": "u=a"}, {"1": "t=target"}, {"1": "u=target"}, [("u", "name")]
    ),
    # ------------------------------------------------------------------ contents
    "changed on the source": Case({"1": "t=a"}, {"1": "t=b"}, {"1": "t=a"}, {"1": "t=source"}),
    "changed on the target": Case({"1": "t=a"}, {"1": "t=a"}, {"1": "t=b"}, {"1": "t=target"}),
    "changed alike": Case({"1": "t=a"}, {"1": "t=b"}, {"1": "t=b"}, {"1": "t=target"}),
    "changed on both": Case({"1": "t=a"}, {"1": "t=b"}, {"1": "t=c"}, {"1": "t=both"}),
    # ------------------------------------------------------------------ names
    "renamed on the source": Case({"1": "t=a"}, {"1": "u=a"}, {"1": "t=a"}, {"1": "u=target"}),
    "renamed and changed on the source": Case({"1": "t=a"}, {"1": "u=b"}, {"1": "t=a"}, {"1": "u=source"}),
    "renamed on the source, changed on the target": Case({"1": "t=a"}, {"1": "u=a"}, {"1": "t=b"}, {"1": "u=target"}),
    "renamed on the target, changed on the source": Case({"1": "t=a"}, {"1": "t=b"}, {"1": "u=a"}, {"1": "u=source"}),
    "renamed alike": Case({"1": "t=a"}, {"1": "u=a"}, {"1": "u=a"}, {"1": "u=target"}),
    "renamed to different names": Case(
        {"1": "t=a"}, {"1": "u=a"}, {"1": "v=a"}, {"1": "u=target"}, {"1": "v=target"}, [("v", "name")]
    ),
    "swapped on the source": Case(
        {"1": "a=x", "2": "b=y"}, {"1": "b=x", "2": "a=y"}, {"1": "a=x", "2": "b=y"}, {"1": "b=target", "2": "a=target"}
    ),
    "swapped on the source, changed on the target": Case(
        {"1": "a=x", "2": "b=y"}, {"1": "b=x", "2": "a=y"}, {"1": "a=z", "2": "b=y"}, {"1": "b=target", "2": "a=target"}
    ),
    "dropped and made again on the source": Case({"1": "t=a"}, {"2": "t=b"}, {"1": "t=a"}, {"2": "t=source"}),
    "dropped, and another renamed to its name": Case(
        {"1": "t=a", "2": "b=b"}, {"1": "b=a"}, {"1": "t=a", "2": "b=b"}, {"1": "b=target"}
    ),
    # ------------------------------------------------------------------ collisions
    "made on both under one name": Case(
        {}, {"1": "t=a"}, {"2": "t=b"}, {"1": "t=source"}, {"2": "t=target"}, [("t", "created")]
    ),
    "made again on the source, changed on the target": Case(
        {"1": "t=a"},
        {"2": "t=b"},
        {"1": "t=c"},
        {"2": "t=source"},
        {"1": "t=target"},
        [("t", "created"), ("t", "dropped")],
    ),
    "one name given to two tables": Case(
        {"1": "a=x", "2": "b=y"},
        {"1": "n=x", "2": "b=y"},
        {"1": "a=x", "2": "n=y"},
        {"1": "n=target", "2": "b=target"},
        {"1": "a=target", "2": "n=target"},
        [("n", "name")],
    ),
    "renamed on the source to a name that the target made": Case(
        {"1": "a=x"},
        {"1": "n=x"},
        {"1": "a=x", "2": "n=y"},
        {"1": "n=target"},
        {"1": "a=target", "2": "n=target"},
        [("n", "name")],
    ),
    "made on the source under a name that the target gave": Case(
        {"1": "a=x"},
        {"1": "a=x", "2": "n=y"},
        {"1": "n=x"},
        {"1": "a=target", "2": "n=source"},
        {"1": "n=target"},
        [("n", "created")],
    ),
    "three tables linked by names": Case(
        {"1": "a=x", "2": "b=y"},
        {"1": "b=x", "2": "c=y"},
        {"1": "a=x", "2": "b=y", "3": "c=z"},
        {"1": "b=target", "2": "c=target"},
        {"1": "a=target", "2": "b=target", "3": "c=target"},
        [("c", "name")],
    ),
    "two groups are two conflicts": Case(
        {},
        {"1": "m=x", "2": "n=y"},
        {"3": "m=z", "4": "n=w"},
        {"1": "m=source", "2": "n=source"},
        {"3": "m=target", "4": "n=target"},
        [("m", "created"), ("n", "created")],
    ),
    # ------------------------------------------------------------------ where merges crossed
    "history: both have the same": Case({"1": "t=?"}, {"1": "t=a"}, {"1": "t=a"}, {"1": "t=target"}),
    "history: other contents": Case(
        {"1": "t=?"}, {"1": "t=a"}, {"1": "t=b"}, {"1": "t=source"}, {"1": "t=target"}, [("t", "history")]
    ),
    "history: other contents, and renamed": Case(
        {"1": "t=?"}, {"1": "u=a"}, {"1": "t=b"}, {"1": "u=source"}, {"1": "u=target"}, [("t", "history")]
    ),
    "history: other names": Case(
        {"1": "?=a"}, {"1": "u=b"}, {"1": "v=a"}, {"1": "u=source"}, {"1": "v=source"}, [("v", "name")]
    ),
    "history: other names and other contents": Case(
        {"1": "?=?"},
        {"1": "u=b"},
        {"1": "v=a"},
        {"1": "u=source"},
        {"1": "v=target"},
        [("v", "history"), ("v", "name")],
    ),
    "history: dropped on the source": Case({"1": "t=?"}, {}, {"1": "t=b"}, {}, {"1": "t=target"}, [("t", "history")]),
    # ------------------------------------------------------------------ namespaces
    "a namespace made on the source": Case({}, {"/n": "n"}, {}, {"/n": "n"}),
    "a namespace dropped on the source": Case({"/n": "n"}, {}, {"/n": "n"}, {}),
    "a namespace dropped on the source, and not empty": Case(
        {"/n": "n"}, {}, {"/n": "n", "1": "n$t=a"}, {"/n": "n", "1": "n$t=target"}
    ),
    "nested namespaces dropped on the source": Case({"/n": "n", "/n$m": "n$m"}, {}, {"/n": "n", "/n$m": "n$m"}, {}),
    "a table with the name of a namespace": Case(
        {},
        {"1": "n=a"},
        {"/n": "n", "2": "n$t=b"},
        {"1": "n=source"},
        {"/n": "n", "2": "n$t=target"},
        [("n", "created")],
    ),
    "a namespace with the name of a table": Case(
        {},
        {"/n": "n", "1": "n$t=a"},
        {"2": "n=b"},
        {"/n": "n", "1": "n$t=source"},
        {"2": "n=target"},
        [("n", "created")],
    ),
}


def merged(case: Case, answer: Choice | None) -> tuple[State, list[tuple[str, str]]]:
    asked: list[tuple[str, str]] = []

    def choose(conflict: Conflict) -> Choice | None:
        asked.append((conflict.table, conflict.kind))
        return answer

    found = plan(facts(case.base), facts(case.source), facts(case.target), choose)
    state = {
        each.identity: f"{each.name}={each.content}" if each.is_table else each.name
        for each in (*found.tables, *found.namespaces)
        if each.name is not None
    }
    names = [text.partition("=")[0] for text in state.values()]
    assert len(set(names)) == len(names), "no name is given twice"
    return state, sorted(asked)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.contract("B6")
def test_the_plan_of_each_case_is_the_one_written_by_hand(name: str) -> None:
    case = CASES[name]
    state, asked = merged(case, "source")
    assert state == case.source_wins
    assert bool(asked) == (case.target_wins is not None)
    state, _ = merged(case, "target")
    assert state == (case.source_wins if case.target_wins is None else case.target_wins)
    assert merged(case, None)[1] == case.conflicts


@pytest.mark.parametrize("name", CASES)
def test_a_plan_does_not_depend_on_the_order_of_identities(name: str) -> None:
    case = CASES[name]
    base, source, target = (
        {identity[::-1] + "x": text for identity, text in reversed(state.items())} for state in _states(case)
    )
    turned = Case(base, source, target, {})
    base, source, target = ({f"{identity}x": text for identity, text in state.items()} for state in _states(case))
    kept = Case(base, source, target, {})
    for answer in ("source", "target"):
        one, other = merged(turned, answer)[0], merged(kept, answer)[0]
        assert sorted(one.values()) == sorted(other.values())


def _states(case: Case) -> list[State]:
    """Without namespaces, whose identity is their name."""
    return [
        {identity: text for identity, text in state.items() if not identity.startswith("/")}
        for state in (case.base, case.source, case.target)
    ]


def test_whether_a_side_has_anything_to_merge() -> None:
    base = facts({"1": "t=a", "/n": "n"})
    assert not is_changed(base, facts({"1": "t=a", "/n": "n"}))
    for other in ({"1": "t=b", "/n": "n"}, {"1": "u=a", "/n": "n"}, {"1": "t=a"}, {"1": "t=a", "/n": "n", "2": "v=a"}):
        assert is_changed(base, facts(other))
    assert is_changed(facts({"1": "t=?"}), facts({"1": "t=a"}))
