"""Appends while others take the table back: every version holds exactly what its history says."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import conroi
from tests.soak.restoring import SCHEMA, Diary, Traveller, travel
from tests.support.together import together

pytestmark = pytest.mark.contract("T15")


def replayed(first: list[int], last: int, diaries: list[Diary]) -> dict[int, set[int]]:
    """The rows of each version: what was there before and what was added, or what an older version had."""
    appended = {version: ids for diary in diaries for version, ids in diary.appended.items()}
    restored = {version: back for diary in diaries for version, back in diary.restored.items()}
    assert not appended.keys() & restored.keys(), "no version has two authors"
    assert len(appended) + len(restored) == sum(len(d.appended) + len(d.restored) for d in diaries)
    rows = {1: set(first)}
    for version in range(2, last + 1):
        assert version in appended or version in restored, f"no process reports version {version}"
        rows[version] = rows[restored[version]] if version in restored else rows[version - 1] | set(appended[version])
    return rows


@pytest.mark.parametrize(("processes", "steps"), [(4, 12), pytest.param(8, 150, marks=pytest.mark.soak)])
@pytest.mark.parametrize("stable_row_ids", [False, True])
def test_every_version_is_what_its_history_says(
    processes: int, steps: int, stable_row_ids: bool, tmp_path: Path
) -> None:
    root = str(tmp_path / "t.lance")
    conroi.create_table(root, pa.table({"id": [-1]}, schema=SCHEMA), stable_row_ids=stable_row_ids)
    travellers = [
        Traveller(root, number, 7, steps, is_pylance=number % 2 == 0, is_restoring=number % 4 >= 2)
        for number in range(processes)
    ]
    diaries = together(travel, travellers, patience_s=600)
    table = conroi.open_table(root)
    rows = replayed([-1], table.version, diaries)
    assert any(diary.restored for diary in diaries), "there were restores"
    for version in range(1, table.version + 1):
        found = table.at(version).to_arrow()["id"].to_pylist()
        assert (len(found), set(found)) == (len(rows[version]), rows[version])


def test_control_a_row_that_is_not_in_the_books_is_found(tmp_path: Path) -> None:
    root = str(tmp_path / "t.lance")
    conroi.create_table(root, pa.table({"id": [-1]}, schema=SCHEMA)).append(pa.table({"id": [5]}))
    assert replayed([-1], 2, [Diary(appended={2: [6]})])[2] != {-1, 5}
    with pytest.raises(AssertionError):
        replayed([-1], 2, [Diary()])
