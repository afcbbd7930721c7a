"""Controls of the harness itself: a plain history passes, and no planted bug does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.branches.histories.generating import Step
from tests.branches.histories.model import Entry, State, Table, Version, World
from tests.branches.histories.planted import PLANTED, planted
from tests.branches.histories.running import random_history, replay, shrunk
from tests.branches.histories.three_way import Base, Settling, merged
from tests.branches.histories.values import Column

COLUMNS = (("id", "i64", False, ()), ("v", "i32", True, ()))
LOOSE = (("id", "i64", True, ()), ("v", "i32", True, ()))
ROWS = [{"id": n, "v": n} for n in range(4)]


def put(branch: str, key: int, value: int) -> Step:
    return ("rows", branch, "a", ("upsert", [{"id": key, "v": value}], ("id",)))


PLAIN: list[Step] = [
    ("create", "main", "a", COLUMNS, ("id",), ROWS, False),
    ("create", "main", "b", LOOSE, (), ROWS[:2], False),
    ("create_branch", "dev", "main", "head", None),
    put("dev", 1, 5),
    put("main", 1, 7),
    ("rows", "dev", "b", ("append", [{"id": 9, "v": 9}])),
    put("main", 2, 8),
    ("merge", "dev", "main", None, 1),
    ("merge", "dev", "main", "target", 1),
    put("dev", 3, 6),
    ("merge", "dev", "main", None, 1),
    put("main", 3, 3),  # set back: an older base takes that for no change at all
    put("dev", 0, 1),
    ("merge", "dev", "main", None, 1),
    ("merge", "main", "dev", "source", 1),
]


def test_a_plain_history_passes() -> None:
    outcome = replay(PLAIN)
    assert outcome.problem is None
    assert outcome.counts["merges"] == 5
    assert outcome.counts["merges refused"] == 1
    assert outcome.counts["conflict row"] == 2
    assert outcome.counts["past states"] > 10


SEEN = {
    "a row is lost": "{'id': 0, 'v': 0}] are missing",
    "a row is there twice": "are too many, [] are missing",
    "the names of two tables are swapped": "after merge of dev into main, prefer=target: a: ",
    "the wrong side is preferred": "rows [{'id': 1, 'v': 5}] are too many, [{'id': 1, 'v': 7}] are missing",
    "the dry run lists no conflicts": "conflict row (1,) of ['a'] is not listed",
    "the base is older than the last merge": "conflicts (row) that are none: ['a [id=1]: changed on both branches']",
    "a refused merge happens all the same": "merged in spite of",
    "past states are the newest one": "at(",
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    with planted(bug):
        outcome = replay(PLAIN)
    assert outcome.problem is not None, "the harness is blind for it"
    assert SEEN[bug] in outcome.problem


def test_a_planted_bug_is_shown_in_few_steps() -> None:
    with planted("a row is lost"):
        found = replay([*PLAIN, ("compact", "main", "a"), put("main", 6, 1)])
        short = shrunk(found)
    assert found.problem is not None
    assert short.problem is not None
    assert short.signature == found.signature
    assert len(short.steps) <= 5
    assert any("merge" in line for line in short.code)


def test_a_random_history_finds_a_planted_bug() -> None:
    with planted("a row is lost"):
        assert any(random_history(seed, 25, deep=False).problem for seed in range(3))


# ---------------------------------------------------------------------------- the model by hand


ID, V = Column(1, "id", "i64", nullable=False), Column(2, "v", "i32")


def keyed(rows: dict[int, int]) -> Table:
    table = Table((ID, V), key=(1,))
    return table.append([{1: key, 2: value} for key, value in rows.items()])


def state(**tables: Any) -> State:
    """Tables by name; the identity is the number that comes first."""
    return State({number: Entry(name, table) for name, (number, table) in tables.items()})


def three_way(base: State, source: State, target: State, prefer: Any = None) -> tuple[State, list[str]]:
    version = Version(0, 1, base, {0: 1})
    world = World({})
    world.bases = lambda versions: [version]  # type: ignore[method-assign]
    settling = Settling(lambda kind, key: prefer)
    result = merged(Base(world, [version, version]), source, target, settling)
    return result, sorted(each.kind for each in settling.conflicts)


def rows_of(found: State, name: str) -> dict[int, int]:
    number = found.named(name)
    assert number is not None
    return {row[1]: row[2] for row in found.tables[number].table.rows.values()}


def test_the_model_merges_rows_by_key() -> None:
    base = state(t=(1, keyed({1: 1, 2: 2, 3: 3})))
    source, target = state(t=(1, keyed({1: 9, 2: 2, 4: 4}))), state(t=(1, keyed({1: 8, 2: 7, 3: 3})))
    result, kinds = three_way(base, source, target, "source")
    assert kinds == ["row"]
    assert rows_of(result, "t") == {1: 9, 2: 7, 4: 4}
    assert rows_of(three_way(base, source, target, "target")[0], "t") == {1: 8, 2: 7, 4: 4}


def test_the_model_frees_names_that_the_source_gave_up() -> None:
    one, two, three = keyed({1: 1}), keyed({2: 2}), keyed({3: 3})
    base = state(t=(1, one), b=(2, two))
    result, kinds = three_way(base, state(b=(1, one)), base)
    assert (result.names, kinds) == ({"b"}, [])
    result, kinds = three_way(base, state(t=(2, two), b=(1, one)), base)
    assert (rows_of(result, "t"), rows_of(result, "b"), kinds) == ({2: 2}, {1: 1}, [])
    result, kinds = three_way(base, state(t=(3, three), b=(2, two)), base)
    assert (rows_of(result, "t"), kinds) == ({3: 3}, [])


def test_the_model_settles_a_dropped_table() -> None:
    base, changed = state(t=(1, keyed({1: 1}))), state(t=(1, keyed({1: 2})))
    assert three_way(base, state(), changed, "source")[0].names == set()
    assert three_way(base, state(), changed, "target")[0].names == {"t"}
    assert three_way(base, state(), changed)[1] == ["dropped"]
    assert three_way(base, state(), base) == (State(), [])
    assert three_way(base, changed, state(), "source")[0].names == {"t"}


def test_the_model_makes_one_conflict_of_tables_that_want_one_name() -> None:
    one, two, three = keyed({1: 1}), keyed({2: 2}), keyed({3: 3})
    base = state(a=(1, one), b=(2, two))
    source, target = state(c=(1, one), b=(2, two)), state(a=(1, one), c=(2, two), b=(3, three))
    result, kinds = three_way(base, source, target, "source")
    assert (kinds, rows_of(result, "c"), rows_of(result, "b")) == (["name"], {1: 1}, {2: 2})
    result, kinds = three_way(base, source, target, "target")
    assert (rows_of(result, "a"), rows_of(result, "c"), rows_of(result, "b")) == ({1: 1}, {2: 2}, {3: 3})


def test_the_model_carries_values_over_a_retyped_column() -> None:
    wide = Column(2, "w", "i64")
    base = keyed({1: 1, 2: 2})
    source = base.with_columns((ID, wide))
    target = keyed({1: 9, 2: 2, 3: 3})
    result, kinds = three_way(state(t=(1, base)), state(t=(1, source)), state(t=(1, target)))
    assert (rows_of(result, "t"), kinds) == ({1: 9, 2: 2, 3: 3}, [])
    assert result.tables[1].table.columns[1] == wide
