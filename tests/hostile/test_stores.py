"""Damaged content in the database of a lake, in transactions and in what Spark hands over: typed errors."""

from __future__ import annotations

import base64
import contextlib
import sqlite3
import zlib
from pathlib import Path

import pytest

import conroi
from conroi.inserts.fence import _said
from conroi.spark.pins import PinnedVersion
from conroi.stores import detach

pytestmark = pytest.mark.contract("I7", "I2")

DAMAGED = {
    "deep": "[" * 200_000,
    "no JSON": "{",
    "a number": "7",
    "a list": "[1]",
    "null": "null",
    "a huge number": '{"t": ' + "9" * 10_000 + "}",
    "numbers": '{"message": 7, "t": 7}',
}


@pytest.mark.parametrize("column", ["content", "notes", "changes"])
@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_row_of_a_lake_in_a_database(column: str, content: str, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/lake.db"
    lake = conroi.connect(tmp_path / "lake", store=store)
    lake.create_table("t", [{"n": 1}])
    other = conroi.connect(tmp_path / "lake", store=store)
    other["t"].append([{"n": 2}])
    table = "conroi_lake_rows" if column == "content" else "conroi_lake_commits"
    with sqlite3.connect(tmp_path / "lake.db") as database:
        database.execute(f"UPDATE {table} SET {column} = ?", (content,))
    database.close()
    if column == "content":
        works = [lambda: conroi.connect(tmp_path / "lake", store=store)["t"], lambda: detach(tmp_path / "lake", store)]
    else:
        works = [lambda: list(conroi.connect(tmp_path / "lake", store=store).history()), lambda: lake["t"].count_rows()]
    for work in works[:1]:
        with pytest.raises(conroi.CorruptionError):
            work()
    for work in works[1:]:
        with contextlib.suppress(conroi.ConroiError):
            work()


@pytest.mark.parametrize("said", ["[" * 200_000, "{}", "[1]", '["x", "y", true]', '["x", -1, true]', "7"])
def test_a_damaged_note_of_an_insert(said: str) -> None:
    with pytest.raises(conroi.CorruptionError):
        _said(said, "t")


@pytest.mark.parametrize(
    "text",
    ["", "!!!", "AAAA", *(base64.b64encode(zlib.compress(each.encode())).decode() for each in DAMAGED.values())],
)
def test_a_damaged_pin_of_spark(text: str) -> None:
    with pytest.raises(conroi.InvalidInputError, match="damaged"):
        PinnedVersion.from_text(text)
