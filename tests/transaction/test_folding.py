"""Statements on one table in one transaction become one version that has all of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.sampling import sampled
from tests.transaction.folded import KINDS, Kind, Lakes, check_alone, check_new_table, check_with_other
from tests.transaction.model import OTHERS, RARER, STATEMENTS, row_of

ROW_CHANGES = ("append", "delete", "update", "merge")
MakeLakes = Callable[[Kind], Lakes]


@pytest.fixture(scope="module")
def lakes_of(tmp_path_factory: pytest.TempPathFactory) -> MakeLakes:
    made: dict[Kind, Lakes] = {}

    def get(kind: Kind) -> Lakes:
        if kind not in made:
            made[kind] = Lakes(Path(tmp_path_factory.mktemp("lakes")), kind)
        return made[kind]

    return get


def chosen(count: int, length: int, seed: int) -> list[tuple[str, ...]]:
    """Some of all lists of statements, always the same ones."""
    return random.Random(seed).sample(list(itertools.product(STATEMENTS, repeat=length)), count)


@pytest.mark.contract("W6", "W12")
@pytest.mark.parametrize("first", STATEMENTS)
def test_two_statements_are_one_version(lakes_of: MakeLakes, first: str):
    for number, second in enumerate(STATEMENTS):
        kind = KINDS[(number + list(STATEMENTS).index(first)) % 4]
        check_alone(lakes_of(kind), (first, second))


@pytest.mark.contract("W6", "W12")
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_three_statements_are_one_version(lakes_of: MakeLakes, kind: Kind):
    for names in chosen(6, 3, seed=KINDS.index(kind)):
        check_alone(lakes_of(kind), names)


@pytest.mark.contract("W6", "W12")
@pytest.mark.parametrize(
    ("kind", "first", "second"),
    sampled(
        "orders of row changes",
        [(kind, *pair) for kind in KINDS for pair in itertools.permutations(ROW_CHANGES, 2)],
        least=12,
    ),
)
def test_row_changes_that_undo_each_other_are_one_version(lakes_of: MakeLakes, kind: Kind, first: str, second: str):
    others = [name for name in ROW_CHANGES if name not in (first, second)]
    for names in (others, others[::-1]):
        check_alone(lakes_of(kind), (first, second, *names))


@pytest.mark.contract("W6", "W12")
@pytest.mark.parametrize("rarer", RARER)
def test_a_rarer_statement_before_or_after_another_is_one_version(lakes_of: MakeLakes, rarer: str):
    for number, usual in enumerate(("append", "delete", "merge", "add_columns", "overwrite")):
        check_alone(lakes_of(KINDS[number % 4]), (usual, rarer))
        check_alone(lakes_of(KINDS[(number + 1) % 4]), (rarer, usual))


@pytest.mark.contract("W12")
def test_a_thousand_statements_are_one_version(lakes_of: MakeLakes):
    lake = lakes_of(KINDS[0]).new()
    with lake.begin() as tx:
        for number in range(1000):
            tx["t"].append([row_of(1000 + number)])
        tx["t"].delete("id >= 1500")
    assert lake["t"].count_rows() == 506
    assert lake["t"].version == 3


@pytest.mark.contract("W12")
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_table_that_is_made_and_changed_in_one_transaction_is_one_version(lakes_of: MakeLakes, kind: Kind):
    pairs = [("append", "append"), ("append", "overwrite"), ("overwrite", "append"), ("delete", "evolve")]
    for names in [*pairs, *((name,) for name in (*STATEMENTS, *RARER) if name != "restore")]:
        check_new_table(lakes_of(kind), names)


@pytest.mark.contract("W3", "W4", "W12")
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_row_changes_land_on_top_of_others_unless_both_change_the_same_rows(
    lakes_of: MakeLakes, kind: Kind, other: str
):
    for names in (("append", "append"), ("delete", "append"), ("append", "update"), ("merge", "delete")):
        touches_row_1 = names[0] == "delete" or "update" in names
        outcome = check_with_other(lakes_of(kind), names, other)
        if other == "delete of the same rows" and touches_row_1:
            assert outcome == "RetryableConflict", names
        else:
            assert outcome == "landed", names


@pytest.mark.contract("W3", "W12")
@pytest.mark.parametrize("other", OTHERS)
def test_with_another_writer_in_between_all_of_both_is_there_or_nothing_of_the_second(lakes_of: MakeLakes, other: str):
    for number, names in enumerate(chosen(6, 2, seed=list(OTHERS).index(other))):
        check_with_other(lakes_of(KINDS[number % 4]), names, other)


@pytest.mark.soak
@pytest.mark.contract("W6", "W12")
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("first", STATEMENTS)
def test_all_pairs_and_triples_are_one_version(lakes_of: MakeLakes, kind: Kind, first: str):
    for second in STATEMENTS:
        check_alone(lakes_of(kind), (first, second))
        for third in STATEMENTS:
            check_alone(lakes_of(kind), (first, second, third))


@pytest.mark.soak
@pytest.mark.contract("W3", "W4", "W12")
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("first", STATEMENTS)
def test_all_pairs_and_triples_with_another_writer(lakes_of: MakeLakes, kind: Kind, first: str, other: str):
    for second in STATEMENTS:
        check_with_other(lakes_of(kind), (first, second), other)
        for third in STATEMENTS:
            check_with_other(lakes_of(kind), (first, second, third), other)
