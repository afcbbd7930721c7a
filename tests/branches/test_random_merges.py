"""Random work on two branches, merged to and fro, against four lines of plain Python."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import conroi
from tests.branches.conftest import numbers, upsert

Rows = dict[int, int]
SIDES = ("main", "dev")


def merged(base: Rows, source: Rows, target: Rows, prefer: str) -> tuple[Rows, set[int]]:
    """What a merge must make of the target, and the keys about which the two disagree."""
    result, conflicts = dict[int, int](), set[int]()
    for key in base.keys() | source.keys() | target.keys():
        before, theirs, mine = base.get(key), source.get(key), target.get(key)
        if before not in (theirs, mine) and theirs != mine:
            conflicts.add(key)
        value = mine if theirs in (before, mine) else theirs if mine == before or prefer == "source" else mine
        if value is not None:
            result[key] = value
    return result, conflicts


keys = st.integers(0, 7)
rows = st.dictionaries(keys, st.integers(0, 5), min_size=1, max_size=3)
step = st.one_of(
    st.tuples(st.just("upsert"), st.sampled_from(SIDES), rows),
    st.tuples(st.just("delete"), st.sampled_from(SIDES), st.sets(keys, min_size=1, max_size=3)),
    st.tuples(st.just("compact"), st.sampled_from(SIDES), st.none()),
    st.tuples(st.just("merge"), st.sampled_from(SIDES), st.sampled_from(("source", "target"))),
)


@pytest.mark.contract("B3")
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(step, min_size=4, max_size=14))
def test_merges_do_what_four_lines_of_python_say(steps: list[tuple[str, str, Any]]) -> None:
    lake = conroi.connect(f"memory://{uuid.uuid4().hex}")
    base: Rows = {n: n for n in range(4)}
    lake.create_table("orders", [{"id": key, "n": value} for key, value in base.items()], key="id")
    lake.branches.create("dev")
    lakes, model = {"main": lake, "dev": lake.branch("dev")}, {"main": dict(base), "dev": dict(base)}
    for kind, side, what in [*steps, ("merge", "dev", "source"), ("merge", "main", "source")]:
        mine = lakes[side]
        if kind == "upsert":
            upsert(mine, what)
            model[side].update(what)
        elif kind == "delete":
            mine["orders"].delete(f"id IN ({', '.join(map(str, what))})")
            for key in what:
                model[side].pop(key, None)
        elif kind == "compact":
            mine["orders"].compact()
        else:
            other = "main" if side == "dev" else "dev"
            expected, conflicts = merged(base, model[side], model[other], what)
            dry = lakes[other].merge(side, dry_run=True)
            assert {dict(c.key or {})["id"] for c in dry.conflicts} == conflicts
            lakes[other].merge(side, prefer=what)
            model[other], base = expected, dict(model[side])
        assert numbers(lakes[side]) == model[side]
    assert numbers(lakes["main"]) == model["main"] == model["dev"] == numbers(lakes["dev"])


def test_the_model_is_able_to_disagree() -> None:
    base, source, target = {1: 1, 2: 2, 3: 3}, {1: 9, 2: 2, 4: 4}, {1: 8, 2: 7, 3: 3}
    assert merged(base, source, target, "source") == ({1: 9, 2: 7, 4: 4}, {1})
    assert merged(base, source, target, "target") == ({1: 8, 2: 7, 4: 4}, {1})


# ---------------------------------------------------------------------------- without a key

change = st.tuples(st.sampled_from(("append", "delete", "update", "compact")), st.integers(0, 5))


def _do(lake: conroi.Lake, rows: dict[int, str], touched: set[int], side: str, n: int, what: tuple[str, int]) -> int:
    """One change of a table without a key, and of its model: base rows by number, new ones beside them."""
    kind, number = what
    if kind == "append":
        lake["log"].append([{"text": f"{side}{n}"}])
        rows[100 + n] = f"{side}{n}"
        return 1
    if kind == "compact":
        return 0
    if number not in rows:
        return 0
    touched.add(number)
    if kind == "delete":
        lake["log"].delete(f"text = '{rows.pop(number)}'")
        return 0
    lake["log"].update({"text": f"'{side}{n}'"}, where=f"text = '{rows[number]}'")
    rows[number] = f"{side}{n}"
    return 1


@pytest.mark.contract("B3")
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(mine=st.lists(change, max_size=4), theirs=st.lists(change, max_size=4))
def test_rows_without_a_key_are_merged_or_refused(mine: list[tuple[str, int]], theirs: list[tuple[str, int]]) -> None:
    lake = conroi.connect(f"memory://{uuid.uuid4().hex}")
    base = {n: f"base{n}" for n in range(6)}
    lake.create_table("log", [{"text": text} for text in base.values()])
    lake.branches.create("dev")
    dev = lake.branch("dev")
    here, there = dict(base), dict(base)
    touched: dict[str, set[int]] = {"main": set(), "dev": set()}
    came = sum(_do(lake, here, touched["main"], "main", n, what) for n, what in enumerate(mine))
    came += sum(_do(dev, there, touched["dev"], "dev", n, what) for n, what in enumerate(theirs))
    both = touched["main"] & touched["dev"]
    try:
        lake.merge("dev")
    except conroi.MergeConflict:
        assert both
        assert came
        lake.merge("dev", prefer="source")
        assert sorted(lake["log"].to_arrow()["text"].to_pylist()) == sorted(there.values())
        return
    assert not both or not came
    expected = Counter[str]()
    for number in range(6):
        value = there.get(number) if here.get(number) == base[number] else here.get(number)
        expected.update([value] if value is not None else [])
    expected.update(text for rows in (here, there) for number, text in rows.items() if number >= 100)
    assert Counter(lake["log"].to_arrow()["text"].to_pylist()) == expected
