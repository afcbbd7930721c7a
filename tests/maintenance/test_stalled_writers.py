"""A paused writer, beside writers and collectors that took what it was about to make."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import lance
import pytest

import conroi
from conroi.maintenance.reports import Expired
from conroi.versions.retention import other_ages
from tests.maintenance.stalled_writer import FILE_S, VERSION_S
from tests.maintenance.stopped_process import stopped
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("M3")


def until_gone(version: int, expire: Callable[[], Expired]) -> None:
    """Expire versions until this one has expired, too."""
    until = time.monotonic() + 60
    while version not in expire().removed:
        assert time.monotonic() < until, f"version {version} does not get old"


def numbers(table: conroi.Table) -> list[int]:
    return sorted(column_values(table.to_arrow()["n"]))


@pytest.fixture
def table(tmp_path: Path) -> conroi.Table:
    return conroi.create_table(str(tmp_path / "t"), [{"n": 0}])


@pytest.fixture
def lake(tmp_path: Path) -> conroi.Lake:
    lake = conroi.connect(str(tmp_path / "lake"))
    lake.create_table("t", [{"n": 0}])
    return lake


def move_on(table: conroi.Table) -> None:
    """Others make the version that the stopped writer wants, and more, and collect it."""
    for number in range(1, 6):
        table = table.append([{"n": number}])
    with other_ages(VERSION_S, FILE_S):
        until_gone(2, lambda: table.expire("0s", keep=1, dry_run=False))


def test_a_table_loses_nothing_to_a_writer_that_stood_still(table: conroi.Table) -> None:
    with stopped(table.uri, "table") as writer:
        move_on(table)
        answer = writer.go_on()
    newest = table.latest()
    assert answer == {"version": 7}, "it did its work again, on the newest version"
    assert (newest.version, numbers(newest)) == (7, [-1, 0, 1, 2, 3, 4, 5])
    assert 2 not in newest.versions(), "the collected version stays gone"
    assert lance.dataset(table.uri).count_rows() == 7


def test_control_without_the_watermark_the_row_is_lost(table: conroi.Table) -> None:
    with stopped(table.uri, "table-control") as writer:
        move_on(table)
        answer = writer.go_on()
    assert answer == {"version": 2}, "it believes that it committed"
    assert lance.dataset(table.uri).count_rows() == 6, "but no reader of the table has its row"


def test_a_writer_that_stood_still_after_its_put_has_committed(table: conroi.Table) -> None:
    with stopped(table.uri, "table-after") as writer:
        for number in range(1, 4):
            table.append([{"n": number}])
        answer = writer.go_on()
    assert answer == {"version": 2}
    assert numbers(table.latest()) == [-1, 0, 1, 2, 3]


def test_a_writer_whose_own_version_was_collected_says_that_it_does_not_know(table: conroi.Table) -> None:
    with stopped(table.uri, "table-after") as writer:
        move_on(table)
        answer = writer.go_on()
    assert answer["error"] == "CommitStateUnknown", answer
    assert numbers(table.latest()) == [-1, 0, 1, 2, 3, 4, 5], "it had committed, and others built on it"


def lake_moves_on(lake: conroi.Lake) -> int:
    wanted = lake.version + 1
    for number in range(1, 6):
        lake["t"].append([{"n": number}])
    with other_ages(VERSION_S, FILE_S):
        until_gone(wanted, lambda: lake.expire("0s", keep=1, dry_run=False))
    return wanted


def test_a_transaction_that_stood_still_is_told_to_run_again(lake: conroi.Lake) -> None:
    with stopped(lake.uri, "lake-transaction") as writer:
        wanted = lake_moves_on(lake)
        answer = writer.go_on()
    assert answer["error"] == "RetryableConflict", answer
    assert numbers(lake["t"]) == [0, 1, 2, 3, 4, 5], "nothing of it is visible"
    with pytest.raises(conroi.NotFoundError):
        conroi.connect(lake.uri).at(version=wanted)


def test_a_verb_of_a_lake_that_stood_still_is_done_again(lake: conroi.Lake) -> None:
    with stopped(lake.uri, "lake-verb") as writer:
        lake_moves_on(lake)
        answer = writer.go_on()
    assert answer == {"version": 7}
    assert numbers(conroi.connect(lake.uri)["t"]) == [-1, 0, 1, 2, 3, 4, 5]


def test_control_a_lake_without_the_watermark_loses_the_row(lake: conroi.Lake) -> None:
    with stopped(lake.uri, "lake-transaction-control") as writer:
        lake_moves_on(lake)
        answer = writer.go_on()
    assert "error" not in answer, "it believes that it committed"
    assert numbers(lake["t"]) == [0, 1, 2, 3, 4, 5], "but the lake does not have its row"
