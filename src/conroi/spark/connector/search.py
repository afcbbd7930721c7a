"""Searches in SQL: `SELECT id, _distance FROM lake.docs WITH (search = '[0.1, 0.2]', search_limit = 5)`.

Catalogs of Spark have no table functions, so a search is a table with options: its rows are the best ones, and
conditions of the statement apply to them afterwards. `search_filter` applies before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from conroi.data.lookup import Search
from conroi.data.pylance import pylance_errors
from conroi.data.table_version import TableVersion
from conroi.errors import InvalidInputError, UnsupportedError
from conroi.format.json import parse_json, parse_object
from conroi.snapshots.snapshot import load_snapshot
from conroi.spark.connector.tables import DISTANCE, ROW_ADDRESS, ROW_ID, SCORE, TABLE_VERSION
from conroi.spark.connector.tasks import schema_to_text, struct_from_text
from conroi.spark.pins import PinnedVersion
from conroi.spark.types import arrow_schema

Request = Mapping[str, Any]
_KNOWN = {"search", "search_column", "search_limit", "search_filter", "search_options"}
DEFAULT_LIMIT = 10


def plan(request: Request) -> dict[str, Any]:
    """The one task of a search."""
    options: dict[str, str] = {name.lower(): value for name, value in request["options"].items()}
    unknown = sorted(name for name in options if name.startswith("search") and name not in _KNOWN)
    if unknown:
        raise InvalidInputError(
            f"Unknown option {', '.join(unknown)}.", hint=f"A search has {', '.join(sorted(_KNOWN))}."
        )
    struct = struct_from_text(request["schema"])
    pinned = _with_indices(PinnedVersion.from_text(request["pin"]).opened())
    _refuse_row_ids(struct.names, pinned)
    chosen = {name: value for name, value in options.items() if name in _KNOWN}
    replace(_search(chosen, pinned, pinned.schema.names), limit=0).run(
        pinned
    )  # what is wrong is said before a task runs
    common = {"op": "search", "pin": request["pin"], "schema": schema_to_text(arrow_schema(struct)), "search": chosen}
    return {"common": common}


def _with_indices(pinned: TableVersion) -> TableVersion:
    """The version with its indices, which the text of a pin leaves out; a staged version has none."""
    if pinned.snapshot.is_private:
        return pinned
    return TableVersion(pinned.files, load_snapshot(pinned.files.objects, pinned.snapshot.located))


def _search(given: Mapping[str, str], pinned: TableVersion, names: Sequence[str]) -> Search:
    return Search(
        _query(given["search"]),
        given.get("search_column"),
        _limit(given.get("search_limit")),
        [name for name in names if name in pinned.schema.names],
        given.get("search_filter"),
        parse_object(given["search_options"], "search_options") if "search_options" in given else {},
    )


def _refuse_row_ids(names: Sequence[str], pinned: TableVersion) -> None:
    found = sorted({ROW_ADDRESS, ROW_ID, TABLE_VERSION}.intersection(names) - set(pinned.schema.names))
    if found:
        raise UnsupportedError(
            f"A search has no {', '.join(found)}.", table=pinned.root, hint="Select columns of the table."
        )


def found_rows(pinned: TableVersion, given: Mapping[str, str], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a search with these columns; the rank that it does not have is null."""
    whole = _with_indices(pinned)
    with pylance_errors(pinned.root):
        found = _search(given, whole, names).run(whole)
    for rank in (DISTANCE, SCORE):
        if rank in names and rank not in found.column_names:
            found = found.append_column(rank, pa.nulls(len(found), pa.float32()))
    yield from found.combine_chunks().to_batches()


def _query(text: str) -> Any:
    """A vector, if it is a JSON list; else words."""
    if not text.lstrip().startswith("["):
        return text
    found: Any = parse_json(text, "The vector of a search")
    return found


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not text.isdecimal():
        raise InvalidInputError(f"search_limit = {text!r} is no number of rows.", hint="Give a whole number.")
    return int(text)
