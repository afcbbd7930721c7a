"""kill -9 of a collector, at any request: only more garbage is left, and the next collector takes it."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pytest

import conroi
from tests.maintenance.conftest import numbers
from tests.maintenance.killed_collector import collect, count_requests, kill_at
from tests.support.aging import files_below, make_older

pytestmark = pytest.mark.contract("M2")


def old_lake(folder: Path) -> conroi.Lake:
    """Twelve versions of two tables with deletions, a compaction, a tag, a dropped table; all a month old."""
    lake = conroi.connect(str(folder))
    for name in ("a", "b", "dropped"):
        lake.create_table(name, [{"n": 1}])
    lake.drop_table("dropped")
    for number in range(2, 5):
        with lake.begin() as tx:
            tx["a"].append([{"n": number}])
            tx["b"].append([{"n": number}])
    lake.tags.create("tagged")
    lake["a"].delete("n = 2")
    lake["a"].compact()
    lake["b"].append([{"n": 9}])
    make_older(lake.uri, hours=24 * 30)
    return lake


def assert_all_there(uri: str) -> None:
    lake = conroi.connect(uri)
    assert (numbers(lake["a"]), numbers(lake["b"])) == ([1, 3, 4], [1, 2, 3, 4, 9])
    tagged = lake.at(tag="tagged")
    assert (numbers(tagged["a"]), numbers(tagged["b"])) == ([1, 2, 3, 4], [1, 2, 3, 4])
    for name in ("a", "b"):
        for each in lance.dataset(lake[name].uri).versions():
            lance.dataset(lake[name].uri, version=each["version"]).to_table()


def kinds_left(uri: str) -> dict[str, int]:
    """How many files of which folder are left; names differ from run to run."""
    counts: dict[str, int] = {}
    for path in files_below(uri):
        folder = path.rpartition("/")[0]
        counts[folder] = counts.get(folder, 0) + 1
    return counts


def killed_and_finished(template: Path, folder: Path, request: int) -> dict[str, int]:
    shutil.copytree(template, folder)
    assert kill_at(str(folder), request)
    assert_all_there(str(folder))
    conroi.connect(str(folder))["a"].append([{"n": 100}])  # writing goes on
    conroi.connect(str(folder))["a"].delete("n = 100")
    make_older(folder, hours=24 * 30)
    collect(str(folder), lambda objects: objects)
    assert_all_there(str(folder))
    return kinds_left(str(folder))


def kill_often(tmp_path: Path, step: int) -> None:
    template = tmp_path / "template"
    old_lake(template)
    shutil.copytree(template, tmp_path / "whole")
    requests = count_requests(str(tmp_path / "whole"))
    assert requests > 60
    shutil.rmtree(tmp_path / "whole")
    found = [
        killed_and_finished(template, tmp_path / f"killed-{number}", number)
        for number in range(1 + step // 2, requests + 1, step)
    ]
    data = [{folder: n for folder, n in each.items() if folder.endswith("data")} for each in found]
    assert all(each["a.lance/data"] <= 6 and each["b.lance/data"] == 5 for each in data), data
    assert not any("dropped.lance/data" in each for each in data)


def test_a_killed_collector_leaves_only_garbage(tmp_path: Path) -> None:
    kill_often(tmp_path, step=16)


@pytest.mark.soak
def test_a_collector_killed_at_every_request_leaves_only_garbage(tmp_path: Path) -> None:
    kill_often(tmp_path, step=1)
