"""Values that no call should be given, by kind, and good ones by the name of the argument."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.public_calls import CLICKHOUSE, ROWS, World

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("n", pa.float64())])
GOOD_BATCH = pa.record_batch({"id": [7], "v": ["x"], "n": [1.0]}, schema=SCHEMA)


class StreamBrokeError(Exception):
    """Raised by a stream of the caller's own, which reaches the caller as it is."""


def _breaking() -> Iterator[pa.RecordBatch]:
    yield GOOD_BATCH
    raise StreamBrokeError


def _nothing(*_: object) -> None: ...


def _nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


def _bad_text() -> pa.Table:
    column = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe"))
    return pa.table({"id": [7], "v": column, "n": [1.0]})


BAD: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "0": lambda: 0,
    "7": lambda: 7,
    "-1": lambda: -1,
    "2**63": lambda: 2**63,
    "2**64": lambda: 2**64,
    "-2**70": lambda: -(2**70),
    "NaN": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "1.5": lambda: 1.5,
    "empty text": lambda: "",
    "text": lambda: "nope",
    "sql": lambda: "id = 1) or (true",
    "a lone surrogate": lambda: "\ud800",
    "NUL": lambda: "a\0b",
    "control characters": lambda: "\x1b[31m\n",
    "a huge text": lambda: "x" * 200_000,
    "a deep expression": lambda: "(" * 3_000 + "1" + ")" * 3_000,
    "bytes": lambda: b"\xff\xfe",
    "an empty dict": dict,
    "a dict": lambda: {"v": "'x'"},
    "a dict of numbers": lambda: {"id": 1},
    "a dict by numbers": lambda: {1: 2},
    "a dict of None": lambda: {"id": None},
    "a dict of surrogates": lambda: {"\ud800": "\udc00"},
    "a dict of lists": lambda: {"id": [1, 2]},
    "an empty list": list,
    "a list of None": lambda: [None],
    "a list of numbers": lambda: [1, 2**70],
    "a list of names": lambda: ["id", "nope"],
    "a list of surrogates": lambda: ["\ud800"],
    "rows of other columns": lambda: [{"nope": 1}],
    "rows beyond 64 bits": lambda: [{"id": 2**70, "v": "x", "n": 1.0}],
    "rows of surrogates": lambda: [{"id": 7, "v": "\ud800", "n": 1.0}],
    "rows with cycles": lambda: _cycle(),
    "a set": lambda: {"id"},
    "a deep list": lambda: _nested(3_000, lambda inner: [inner]),
    "a deep dict": lambda: _nested(3_000, lambda inner: {"a": inner}),
    "an object": object,
    "a class": lambda: int,
    "a function": lambda: _nothing,
    "a generator": lambda: (each for each in [1]),
    "a path": lambda: Path("nope"),
    "the end of time": lambda: dt.datetime.max,
    "an aware time": lambda: dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    "a long time": lambda: dt.timedelta.max,
    "a negative time": lambda: dt.timedelta.min,
    "text that is not UTF-8": _bad_text,
    "a lying stream": lambda: pa.RecordBatchReader.from_batches(SCHEMA, [pa.record_batch({"id": ["x"]})]),
    "a breaking stream": lambda: pa.RecordBatchReader.from_batches(SCHEMA, _breaking()),
    "a table of no columns": lambda: pa.table({}),
    "a column twice": lambda: pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"]),
    "a schema": lambda: pa.schema([("id", pa.string())]),
    "a type": pa.int64,
}


def _cycle() -> Any:
    row: dict[str, Any] = {"id": 7}
    row["v"] = row
    return [row]


def good(world: World, call: str, name: str) -> Any:
    """An argument that would do, so that the bad one is the only reason to refuse."""
    owner, _, verb = call.rpartition(".")
    by_call: dict[tuple[str, str], Any] = {
        ("create_table", "name"): "fresh",
        ("create_table", "uri"): str(world.folder / "fresh.lance"),
        ("clone", "uri"): str(world.folder / "fresh.lance"),
        ("connect", "uri"): str(world.folder / "fresh"),
        ("create_namespace", "name"): "space",
        ("drop_namespace", "name"): "space",
        ("register", "name"): "fresh",
        ("create", "name"): "fresh",
        ("create_index", "name"): "fresh",
        ("add_base", "name"): "fresh",
        ("drop_index", "name"): "id_idx",
        ("branch", "name"): "dev",
        ("merge", "source"): "dev" if "lake" in owner or owner in ("past", "dev") else ROWS,
        ("rename_columns", "names"): {"v": "w"},
        ("add_columns", "columns"): {"w": "id + 1"},
        ("replace_column_data", "columns"): {"n": "n * 2"},
        ("drop_columns", "columns"): ["v"],
        ("write", "table"): "fresh",
        ("name", "table"): "fresh",
        ("clickhouse", "source"): pa.table({"id": [1]}),
    }
    if owner in ("branches", "tags", "lake_tags") and name == "name" and verb != "create":
        return {"branches": "dev", "tags": "one", "lake_tags": "first"}[owner]
    by_name: dict[str, Any] = {
        "a": 1,
        "b": 2,
        "changes": {"v": {"nullable": True}},
        "column": "v",
        "compacted": {},
        "count": 1,
        "data": ROWS,
        "folder": "t.lance",
        "job_id": "j",
        "key": "id",
        "location": "other.lance",
        "mode": "none",
        "moves": {},
        "name": "t",
        "new_name": "newer",
        "object_id": "t",
        "of": "dev",
        "on": "id",
        "path": str(world.folder / "base"),
        "query": "SELECT 1",
        "schema_or_data": ROWS,
        "sources": [ROWS],
        "target": f"chdb://{world.folder}/{CLICKHOUSE}/db/t",
        "uri": str(world.folder / "alone.lance"),
        "value": "x",
        "values": {"v": "'x'"},
        "version": 1,
        "where": "id = 1",
        "work": _nothing,
    }
    return by_call.get((verb, name), by_name.get(name))
