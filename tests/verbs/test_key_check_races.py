"""Eight processes insert the same new keys at the same moment."""

from __future__ import annotations

from collections import Counter

import lance
import pyarrow as pa
import pytest

import conroi
from tests.support.together import together
from tests.verbs.racers import PROCESSES, Racer, Told, race

pytestmark = pytest.mark.contract("K2")

ROUNDS, KEYS = 3, 20
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64()), pa.field("by", pa.int64())])


def raced(root: str, verb: str, *, key: str | None = "id", pylance: int = 0, has_guard: bool = True) -> list[Told]:
    conroi.create_table(root, pa.table({"id": [1], "n": [0], "by": [-1]}, schema=SCHEMA), key=key)
    racers = [
        Racer(root, number, ROUNDS, KEYS, verb, has_guard=has_guard, is_pylance=number < pylance)
        for number in range(PROCESSES)
    ]
    return together(race, racers)


def found(root: str) -> pa.Table:
    """The contested rows, as pylance reads them."""
    return lance.dataset(root).to_table(filter="id >= 1000")


def assert_one_row_of_each_key(root: str) -> None:
    ids = Counter(found(root)["id"].to_pylist())
    assert len(ids) == ROUNDS * KEYS, "no key is lost"
    assert set(ids.values()) == {1}, "and none is there twice"


@pytest.mark.parametrize("key", ["id", None])
def test_exactly_one_inserts_each_key_and_the_others_update_it(key: str | None, root: str) -> None:
    told = raced(root, "upsert", key=key)
    assert_one_row_of_each_key(root)
    assert sum(one.inserted for one in told) == ROUNDS * KEYS
    assert sum(one.updated for one in told) == ROUNDS * KEYS * (PROCESSES - 1)


def test_no_update_is_lost_among_them(root: str) -> None:
    """The first process inserts 1, every other adds 1."""
    told = raced(root, "add up")
    assert_one_row_of_each_key(root)
    assert set(found(root)["n"].to_pylist()) == {PROCESSES}
    assert sum(one.inserted for one in told) == ROUNDS * KEYS
    assert sum(one.updated for one in told) == ROUNDS * KEYS * (PROCESSES - 1)


def test_who_only_inserts_inserts_nothing_the_second_time(root: str) -> None:
    told = raced(root, "insert")
    assert_one_row_of_each_key(root)
    written = Counter(found(root)["by"].to_pylist())
    assert [written.get(number, 0) for number in range(PROCESSES)] == [one.inserted for one in told]
    assert sum(one.updated for one in told) == 0


def test_appends_are_refused_but_for_one(root: str) -> None:
    told = raced(root, "append")
    assert_one_row_of_each_key(root)
    assert sum(one.inserted for one in told) == ROUNDS * KEYS
    assert sum(one.refused for one in told) == ROUNDS * KEYS * (PROCESSES - 1)


@pytest.mark.contract("K3")
@pytest.mark.parametrize("verb", ["upsert", "insert"])
def test_four_of_them_may_be_pylance(verb: str, root: str) -> None:
    told = raced(root, verb, pylance=4)
    assert_one_row_of_each_key(root)
    assert sum(one.inserted for one in told) == ROUNDS * KEYS
    assert sum(one.updated for one in told) == (ROUNDS * KEYS * (PROCESSES - 1) if verb == "upsert" else 0)


def test_control_without_the_comparison_all_eight_insert(root: str) -> None:
    told = raced(root, "upsert", has_guard=False)
    ids = Counter(found(root)["id"].to_pylist())
    assert set(ids.values()) == {PROCESSES}, "each key is there once for each process"
    assert sum(one.inserted for one in told) == ROUNDS * KEYS * PROCESSES
