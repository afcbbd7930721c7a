"""A long history costs one request for each manifest, and a listing; nothing is asked for twice."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import conroi
from conroi.testing import Meter, connect_through
from tests.support.instruments import CloudLike

pytestmark = pytest.mark.contract("M4")

APPENDS = 120
TABLES = 3


@pytest.fixture(scope="module")
def long_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long") / "lake"
    lake = conroi.connect(str(folder))
    tables = [lake.create_table(f"t{number}", [{"n": 0}]) for number in range(TABLES)]
    for number in range(APPENDS):
        tables[number % TABLES] = tables[number % TABLES].append([{"n": number}])
    return folder


@pytest.mark.parametrize("is_cloud", [False, True])
def test_requests_follow_the_number_of_manifests(is_cloud: bool, long_lake: Path) -> None:
    meter = Meter()
    lake = connect_through(str(long_lake), lambda objects: meter.counting(CloudLike(objects) if is_cloud else objects))
    started = time.monotonic()
    with meter.measure() as measured:
        diagnosis = lake.doctor()
    assert diagnosis.findings == ()
    of_tables, of_the_lake = TABLES + APPENDS, 1 + TABLES + APPENDS
    manifests = of_tables + of_the_lake
    assert diagnosis.checked["manifests"] == diagnosis.checked["versions"] == manifests
    # The rows of the lake's oldest and newest version are read, and their manifests for it.
    assert measured.requests("get", "manifest") == manifests + 2
    files = sum(1 for path in long_lake.rglob("*") if path.is_file())
    pages = -(-files // 1000)
    # All files once, and a constant number of small folders: dropped and released tables, branches, leases.
    assert measured.requests("list") <= pages + 4
    assert measured.requests("head") == 0
    assert measured.requests("put") == 0
    assert measured.requests("put_if_absent") == (2 if is_cloud else 0), "the probe"
    # Every data file of the newest versions is opened by pylance itself, past the meter; all else is counted.
    assert measured.requests() <= manifests + pages + 13, measured
    print(f"{manifests} manifests in {time.monotonic() - started:.2f} s")


def test_a_fragment_that_many_versions_share_is_looked_at_once(long_lake: Path) -> None:
    diagnosis = conroi.connect(str(long_lake)).doctor(deep=True)
    rows_of_lake = diagnosis.checked["files"] - (TABLES + APPENDS)
    assert 0 < rows_of_lake <= 1 + TABLES + APPENDS, "one small file for each commit of the lake"


def test_progress_is_told(long_lake: Path) -> None:
    seen: list[int] = []
    diagnosis = conroi.connect(str(long_lake)).doctor(progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == sum(diagnosis.checked.values())
