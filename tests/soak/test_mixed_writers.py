"""pylance and conroi processes write one table at the same time, and every row is accounted for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from tests.soak.writers import COUNTERS, SCHEMA, Books, Writer, write
from tests.support.arrow import column_values
from tests.support.together import together

pytestmark = pytest.mark.contract("T15")

SEED = 20261115


def new_table(root: str, *, stable_row_ids: bool, key: str | None) -> None:
    counters = pa.table({"id": range(COUNTERS), "n": [0] * COUNTERS, "who": ["all"] * COUNTERS}, schema=SCHEMA)
    conroi.create_table(root, counters, key=key, stable_row_ids=stable_row_ids)


def assert_all_is_there(root: str, books: list[Books]) -> None:
    """Each row as its writer left it, each counter the sum of what was added, each version by one author."""
    expected = {key: n for of_one in books for key, n in of_one.rows.items()}
    expected |= {counter: sum(of_one.added[counter] for of_one in books) for counter in range(COUNTERS)}
    by_pylance = lance.dataset(root).to_table(["id", "n"])
    by_conroi = conroi.open_table(root).to_arrow(["id", "n"])
    for found in (by_pylance, by_conroi):
        rows = list(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))
        twice = [key for key, count in Counter(key for key, _ in rows).items() if count > 1]
        assert not twice, f"rows that are there twice: {twice[:10]}"
        assert dict(rows) == expected
    made = Counter(version for of_one in books for version in of_one.versions)
    assert set(made.values()) <= {1}, "no version has two authors"
    operations = {commit.version: commit.operation for commit in conroi.open_table(root).history()}
    for of_one in books:
        assert {version: operations[version] for version in of_one.versions} == of_one.versions


def assert_index_is_right(root: str) -> None:
    dataset = lance.dataset(root)
    for n in range(6):
        by_index, by_scan = (
            sorted(column_values(dataset.scanner(["id"], filter=f"n = {n}", use_scalar_index=use).to_table()["id"]))
            for use in (True, False)
        )
        assert by_index == by_scan


def crew(root: str, *, processes: int, pylance: int, steps: int | None, seconds: float | None) -> list[Writer]:
    return [
        Writer(root, number, SEED, steps=steps, seconds=seconds, is_pylance=number < pylance)
        for number in range(processes)
    ]


@pytest.mark.parametrize("key", ["id", None])
@pytest.mark.parametrize("stable_row_ids", [False, True])
def test_nothing_is_lost_or_doubled(key: str | None, stable_row_ids: bool, tmp_path: Path) -> None:
    root = str(tmp_path / "t.lance")
    new_table(root, stable_row_ids=stable_row_ids, key=key)
    books = together(write, crew(root, processes=4, pylance=2, steps=15, seconds=20))
    assert_all_is_there(root, books)
    assert_index_is_right(root)


@pytest.mark.soak
@pytest.mark.parametrize("key", ["id", None])
@pytest.mark.parametrize("stable_row_ids", [False, True])
def test_nothing_is_lost_or_doubled_in_a_minute(key: str | None, stable_row_ids: bool, tmp_path: Path) -> None:
    root = str(tmp_path / "t.lance")
    new_table(root, stable_row_ids=stable_row_ids, key=key)
    books = together(write, crew(root, processes=8, pylance=4, steps=None, seconds=60), patience_s=600)
    assert_all_is_there(root, books)
    assert_index_is_right(root)
    for kind in (books[:4], books[4:]):
        done = sum((of_one.done for of_one in kind), Counter[str]())
        print("done", dict(done), "refused", dict(sum((of_one.refused for of_one in kind), Counter[str]())))
        assert {"append", "delete", "update", "merge", "add", "compact"} <= set(done), "all verbs took part"
    refused = {verb for of_one in books[4:] for verb in of_one.refused}
    assert refused <= {"compact", "index"}, "no conflict over rows reaches a user of conroi"


def test_control_without_merging_deletions_rows_come_back(tmp_path: Path) -> None:
    root = str(tmp_path / "t.lance")
    new_table(root, stable_row_ids=False, key=None)
    writers = [Writer(root, number, SEED, steps=40, without_rebase=True) for number in range(4)]
    books = together(write, writers)
    with pytest.raises(AssertionError):
        assert_all_is_there(root, books)
