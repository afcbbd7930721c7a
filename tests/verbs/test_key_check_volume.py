"""Eight processes insert many keys, each of which two of them offer: no duplicate, no loss, all counts exact."""

from __future__ import annotations

from collections import Counter

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.verbs.key_check import KeyGuard
from tests.support.arrow import column_values
from tests.support.together import Meet, together
from tests.verbs.inserters import PROCESSES, Inserter, insert_all, offered_by

pytestmark = pytest.mark.contract("K2", "T15")

SEED = 20261115
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("by", pa.int64())])


@pytest.mark.parametrize(
    ("total", "batch"), [pytest.param(4_000, 100), pytest.param(100_000, 500, marks=pytest.mark.soak)]
)
def test_no_duplicate_no_loss_and_counts_are_exact(total: int, batch: int, root: str) -> None:
    conroi.create_table(root, SCHEMA, key="id")
    inserters = [Inserter(root, number, SEED, total, batch) for number in range(PROCESSES)]
    told = together(insert_all, inserters, patience_s=3000)

    found = lance.dataset(root).to_table()
    assert sorted(column_values(found["id"])) == list(range(total)), "each key once, and nothing else"
    assert sum(inserted for inserted, _ in told) == total
    written = Counter(found["by"].to_pylist())
    assert [written[number] for number in range(PROCESSES)] == [inserted for inserted, _ in told]
    offering = offered_by(SEED, total)
    assert all(
        by in offering[key] for key, by in zip(column_values(found["id"]), column_values(found["by"]), strict=True)
    )
    assert min(inserted for inserted, _ in told) > 0, "all of them took part"
    print(
        f"{total:,} keys, {2 * total:,} offers, {conroi.open_table(root).version:,} versions; (rows, commits): {told}"
    )


def insert_without_comparing(inserter: Inserter, meet: Meet) -> tuple[int, int]:
    KeyGuard.__call__ = lambda *_: None  # type: ignore[method-assign]
    return insert_all(inserter, meet)


def test_control_without_the_comparison_there_are_duplicates(root: str) -> None:
    conroi.create_table(root, SCHEMA, key="id")
    inserters = [Inserter(root, number, SEED, 2_000, 50) for number in range(PROCESSES)]

    def insert() -> None:
        told = together(insert_without_comparing, inserters)
        assert sum(inserted for inserted, _ in told) == 2_000

    with pytest.raises((AssertionError, conroi.DuplicateKeyError)):
        insert()
    ids = Counter(lance.dataset(root).to_table()["id"].to_pylist())
    assert max(ids.values()) > 1
