"""expire and gc over and over beside writers and long readers."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import lance
import pytest

import conroi
from conroi.versions.retention import other_ages
from tests.maintenance.workload import FILE_S, TABLES, VERSION_S, Diary, Job, live, make
from tests.support.together import together

pytestmark = pytest.mark.contract("M2")

SEED = 20261116


def run(uri: str, seconds: float, *, collectors: Sequence[str] = ("collector",)) -> list[Diary]:
    kinds = ["writer"] * 4 + ["reader"] * 4 + list(collectors)
    jobs = [Job(uri, number, SEED, seconds, kind) for number, kind in enumerate(kinds)]
    return together(live, jobs, patience_s=seconds + 240)


def assert_nothing_is_lost(lake: conroi.Lake, diaries: list[Diary]) -> None:
    expected = {key: value for diary in diaries for key, value in diary.written.items()} | {-1: -1}
    unknown = {key for diary in diaries for key in diary.unknown}
    for name in TABLES:
        for data in (lake[name].to_arrow(["id", "n"]), lance.dataset(lake[name].uri).to_table(["id", "n"])):
            found = dict(zip(data["id"].to_pylist(), data["n"].to_pylist(), strict=True))
            assert len(found) == data.num_rows, "no row is there twice"
            assert {key: n for key, n in found.items() if key not in unknown} == expected


def assert_no_failures(diaries: list[Diary]) -> None:
    assert [problem for diary in diaries for problem in diary.problems] == []
    done = sum((diary.done for diary in diaries), Counter[str]())
    for what in ("append", "tagged reads", "young reads", "expired", "collected"):
        assert done[what] > 0, f"no process did: {what} ({done})"


def size_of(folder: str) -> int:
    return sum(os.path.getsize(os.path.join(place, name)) for place, _, names in os.walk(folder) for name in names)


def assert_space_comes_back(lake: conroi.Lake, diaries: list[Diary]) -> None:
    """When all are through, what is left is what the newest version needs; all else was freed."""
    for name in TABLES:
        lake[name].compact()
    before = size_of(lake.uri)
    freed = collect_all(lake)
    for name in TABLES:
        left = {file.name for file in (Path(lake[name].uri) / "data").iterdir()}
        dataset = lance.dataset(lake[name].uri)
        needed = {file.path for fragment in dataset.get_fragments() for file in fragment.data_files()}
        assert left == needed
        assert len(dataset.versions()) <= 2, "the newest version of the table, and what gc itself may have made"
    assert size_of(lake.uri) <= before - freed + 20_000
    assert sum(diary.freed for diary in diaries) + freed > 3 * size_of(lake.uri)


def collect_all(lake: conroi.Lake) -> int:
    """Until nothing is left to free; the bytes."""
    freed, until = 0, time.monotonic() + 90
    with other_ages(VERSION_S, FILE_S):
        while time.monotonic() < until:
            expired = lake.expire("0s", keep=1, dry_run=False)
            collected = lake.gc(min_age=f"{FILE_S}s", dry_run=False)
            freed += expired.bytes + collected.bytes
            if len(expired.kept) == 1 and not collected.files and _is_lean(lake):
                return freed
    raise AssertionError("it does not come to an end")


def _is_lean(lake: conroi.Lake) -> bool:
    return all(len(list((Path(lake[name].uri) / "data").iterdir())) == 1 for name in TABLES)


def test_readers_at_kept_versions_and_writers_go_on_beside_collection(tmp_path: Path) -> None:
    lake = make(str(tmp_path / "lake"))
    diaries = run(lake.uri, 6)
    assert_no_failures(diaries)
    assert_nothing_is_lost(conroi.connect(lake.uri), diaries)
    assert_space_comes_back(conroi.connect(lake.uri), diaries)


def test_control_a_collector_that_does_not_ask_takes_what_readers_hold(tmp_path: Path) -> None:
    lake = make(str(tmp_path / "lake"))
    problems = [problem for diary in run(lake.uri, 8, collectors=["careless"]) for problem in diary.problems]
    assert any(problem.startswith("tagged version") for problem in problems), problems


@pytest.mark.soak
def test_a_minute_of_it(tmp_path: Path) -> None:
    lake = make(str(tmp_path / "lake"))
    diaries = run(lake.uri, 60, collectors=["collector", "collector"])
    print(sum((diary.done for diary in diaries), Counter[str]()), sum(diary.freed for diary in diaries))
    assert_no_failures(diaries)
    assert_nothing_is_lost(conroi.connect(lake.uri), diaries)
    assert_space_comes_back(conroi.connect(lake.uri), diaries)
