"""Fixtures of the tests of maintenance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import conroi
from conroi.reader import Reader
from conroi.storage.local_folders import settable_times
from conroi.versions.retention import other_ages
from tests.catalog.conftest import connect
from tests.support.arrow import column_values

__all__ = ["connect"]  # a fixture


@pytest.fixture(autouse=True)
def settable() -> Iterator[None]:
    """make_older() works: local files are as old as their modification time. Leave it with `by_change_time`."""
    with settable_times():
        yield


@pytest.fixture
def hurried() -> Iterator[None]:
    """Nothing is too young to be collected: for tests without concurrent writers."""
    with other_ages(version_s=0.0, file_s=0.0):
        yield


@pytest.fixture
def table(tmp_path: Path) -> conroi.Table:
    """Five versions, of which each has one row more."""
    table = conroi.create_table(str(tmp_path / "t"), [{"n": 1}])
    for number in range(2, 6):
        table = table.append([{"n": number}])
    return table


@pytest.fixture
def lake(tmp_path: Path) -> conroi.Lake:
    """`t` in five versions, made by the versions 2 to 6 of the lake."""
    lake = conroi.connect(str(tmp_path / "lake"))
    lake.create_table("t", [{"n": 1}])
    for number in range(2, 6):
        lake["t"].append([{"n": number}])
    return lake


def numbers(table: Reader) -> list[int]:
    return sorted(column_values(table.to_arrow()["n"]))
