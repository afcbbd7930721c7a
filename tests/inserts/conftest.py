"""A lake whose inserts are locked in PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

import conroi
from tests.support.databases import PostgresServer
from tests.support.insert_workers import SCHEMA


@pytest.fixture
def address(postgres: PostgresServer) -> str:
    return postgres.address()


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def new_lake(uri: str, address: str, store: str | None = None) -> conroi.Lake:
    lake = conroi.connect(uri, store=store, locks=address)
    lake.set_locks("postgresql")
    for name in ("shared", "other"):
        lake.create_table(name, SCHEMA, stable_row_ids=True)
    return lake


@pytest.fixture
def lake(uri: str, address: str) -> conroi.Lake:
    return new_lake(uri, address)
