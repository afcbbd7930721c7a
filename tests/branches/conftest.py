"""A small lake with a branch to work on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import conroi
from conroi.lake_snapshot import LakeReader


@pytest.fixture
def lake(uri: str) -> conroi.Lake:
    """`orders` with the key id and three rows, `log` without a key and two rows."""
    lake = conroi.connect(uri)
    with lake.begin("two tables") as tx:
        tx.create_table("orders", [{"id": i, "n": 10 * i} for i in (1, 2, 3)], key="id")
        tx.create_table("log", [{"text": "a"}, {"text": "b"}])
    return lake


@pytest.fixture
def dev(lake: conroi.Lake) -> conroi.Lake:
    """A branch of it."""
    lake.branches.create("dev")
    return lake.branch("dev")


def numbers(lake: LakeReader, name: str = "orders") -> dict[int, Any]:
    """The rows of a table with a key, as a dict."""
    return {row["id"]: row["n"] for row in lake[name].to_arrow().to_pylist()}


def texts(lake: LakeReader, name: str = "log") -> list[str]:
    """The rows of a table without one, in order."""
    return sorted(row["text"] for row in lake[name].to_arrow().to_pylist())


def upsert(lake: conroi.Lake, rows: Mapping[int, int], name: str = "orders") -> None:
    """Update and insert rows by key."""
    source = [{"id": key, "n": value} for key, value in rows.items()]
    lake[name].merge(source, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
