"""attach() and detach() of a lake: what belongs to which store."""

from __future__ import annotations

from pathlib import Path

import pytest

import conroi
from conroi.catalog.folders import MARKER
from conroi.errors import InvalidInputError
from conroi.format.on_disk import REPLICA_DIR
from conroi.stores import attach, detach
from conroi.versions import open_records
from tests.support.databases import sqlite_address


@pytest.fixture
def store(tmp_path: Path) -> str:
    return sqlite_address(tmp_path)


@pytest.fixture
def uri(tmp_path: Path, store: str) -> str:
    lake = conroi.connect(tmp_path / "lake", store=store)
    lake.create_table("t", [{"n": 1}])
    lake["t"].append([{"n": 2}])
    return lake.uri


def test_a_lake_needs_the_address_of_a_store(uri: str, tmp_path: Path) -> None:
    records = open_records(f"sqlite:///{tmp_path}/records.db", None)
    for call in (attach, detach):
        with pytest.raises(InvalidInputError, match="This is a lake"):
            call(uri, records)


def test_to_detach_a_lake_from_a_store_that_does_not_have_it_does_nothing(uri: str, store: str, tmp_path: Path) -> None:
    assert detach(uri, f"sqlite:///{tmp_path}/other.db") == 0
    assert conroi.connect(uri, store=store)["t"].count_rows() == 2
    assert detach(uri, store) == 2
    assert detach(uri, store) == 0
    assert conroi.connect(uri)["t"].count_rows() == 2, "its folder has it"


def test_to_attach_a_lake_where_it_is_does_nothing(uri: str, store: str) -> None:
    before = (Path(uri) / MARKER).read_bytes()
    assert attach(uri, store) == 2
    assert (Path(uri) / MARKER).read_bytes() == before


def test_a_lake_goes_from_one_store_to_another(uri: str, store: str, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    detach(uri, store)
    assert attach(uri, other) == 2
    lake = conroi.connect(uri, store=other)
    assert (lake.version, lake["t"].count_rows()) == (2, 2)
    lake["t"].append([{"n": 3}])
    assert conroi.connect(uri, store=other)["t"].count_rows() == 3
    (newest,) = lake.history(limit=1)
    assert newest.version == 3


def test_a_folder_without_a_copy_of_the_history_cannot_be_attached(uri: str, store: str, tmp_path: Path) -> None:
    for file in (Path(uri) / REPLICA_DIR).iterdir():
        file.unlink()
    with pytest.raises(InvalidInputError, match="has no copy of its history"):
        attach(uri, f"sqlite:///{tmp_path}/other.db")
    assert attach(uri, store) == 2, "its own store has it"
