"""Scans planned on the driver: which filters and aggregates workers evaluate, and what each task reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from conroi.data.arrow_types import row_width
from conroi.format.json import parse_json
from conroi.format.manifest import count_rows
from conroi.spark.connector import join_plans
from conroi.spark.connector.predicates import (
    ALWAYS,
    aggregate_plan,
    has_plain_nulls,
    lance_filter,
    not_null_filter,
    top_plan,
)
from conroi.spark.connector.predicates import scan_filters as filters_of_scan
from conroi.spark.connector.tasks import schema_from_text, schema_to_text, struct_from_text
from conroi.spark.pins import PinnedVersion
from conroi.spark.scan import batch_rows, shared_out
from conroi.spark.types import arrow_schema

Request = Mapping[str, Any]
BYTES_PER_TASK = 256 * 1024 * 1024
"""Approximate number of bytes of the requested columns that a task reads. They are streamed: none waits in memory."""
AGGREGATED_ROWS = 64 * 1024
"""Rows of numbers and dates that a worker aggregates at once."""
MOST_RUNTIME_VALUES = 1_000
"""Values of a filter that comes from a join; a longer list costs more than the rows that it leaves out."""
SMALLEST_TASK = 4 * 1024 * 1024
"""Bytes below which a scan is not split further, however many cores are free."""


def filters(request: Request) -> dict[str, Any]:
    """For each predicate the filter of Lance; None for those that Spark evaluates."""
    schema = schema_from_text(request["columns"])
    return {"filters": [lance_filter(tree, schema) for tree in request["predicates"]]}


def scan_filters(request: Request) -> dict[str, Any]:
    """The same for a scan, and whether Spark shall evaluate all of them again.

    It derives filters for the other tables of a join from those that it sees in its plan, so it sees those of a table
    that is small enough to be broadcast, unless the join itself is tried as part of a scan.
    """
    schema = schema_from_text(request["columns"])
    size = request["rows"] * row_width(schema)
    return {
        "filters": filters_of_scan(request["predicates"], schema),
        "repeated": size <= request["broadcastBytes"] and not request["joined"],
    }


def runtime_filters(request: Request) -> dict[str, Any]:
    """The filters of a join with a small table, in the same form; None for a list of values that is too long."""
    schema = schema_from_text(request["columns"])
    return {
        "filters": [
            lance_filter(tree, schema) if len(tree.get("children", ())) <= MOST_RUNTIME_VALUES else None
            for tree in request["predicates"]
        ]
    }


def top(request: Request) -> dict[str, Any]:
    """The first rows in an order that workers sort their fragments in; None if they cannot."""
    return {"plan": top_plan(request["keys"], request["rows"], schema_from_text(request["columns"]))}


def aggregates(request: Request) -> dict[str, Any]:
    """The aggregates that workers compute for their fragments; Spark combines them."""
    if request.get("join") is None:
        planned = aggregate_plan(request["functions"], schema_from_text(request["columns"]))
    else:
        planned = join_plans.aggregates(request)
    return {"schema": None} if planned is None else {"plan": planned[0], "schema": planned[1].json()}


def plan(request: Request) -> dict[str, Any]:
    """The tasks of a scan, and the request that they share."""
    if request.get("join") is not None:
        return _joined_plan(request)
    pinned = PinnedVersion.from_text(request["pin"]).opened()
    target = arrow_schema(struct_from_text(request["schema"]))
    fragments = pinned.manifest.fragments
    given = request.get("bytesPerTask")
    total = count_rows(fragments) * max(1, row_width(target))
    size = int(given) if given is not None else bytes_per_task(total, int(request["parallelism"]))
    kind = "scan" if target.names else "count"
    if request.get("aggregates") is not None:
        kind = "aggregate"
        size = max(size, BYTES_PER_TASK) if given is None else size
    groups = shared_out(fragments, target, size)
    if kind == "aggregate":
        groups = groups or [[]]  # a sum over no row would be null
    common = {
        "op": kind,
        "pin": request["pin"],
        "schema": schema_to_text(target),
        "limit": request.get("limit"),
        "top": request.get("top"),
        "aggregates": request.get("aggregates"),
        "batchRows": _aggregated_rows(_summed(request, pinned.schema)) if kind == "aggregate" else batch_rows(target),
    }
    # Spark plans again with the filters of a join
    condition, not_null = _split(
        request["filters"], pinned.schema, can_split=kind != "count" and common["limit"] is None
    )
    shared = {"filter": condition, "notNull": not_null}
    return {"common": common, "tasks": [{"fragments": group, **shared} for group in groups]}


def _joined_plan(request: Request) -> dict[str, Any]:
    """The tasks of a join that workers aggregate: they share out one table, and hold the others in memory."""
    joined, task = join_plans.task_plan(request)
    tables = [request, *request["others"]]
    for build, part in zip(joined.builds, task["builds"], strict=True):
        part |= _whole_table(tables[build.on.side])
    probe = tables[joined.probe]
    pinned = PinnedVersion.from_text(probe["pin"]).opened()
    read = pa.schema([pinned.schema.field(name) for name in join_plans.probed_columns(task)])
    condition, not_null = _split(probe["filters"], pinned.schema, can_split=True)
    common = {
        "op": "aggregate",
        "pin": probe["pin"],
        "schema": schema_to_text(arrow_schema(struct_from_text(request["schema"]))),
        "join": json.dumps(task),
        "batchRows": _aggregated_rows(read),
        "filter": condition,
        "notNull": not_null,
    }
    given = request.get("bytesPerTask")
    fragments = pinned.manifest.fragments
    total = count_rows(fragments) * row_width(read)
    size = bytes_per_task(total, int(request["parallelism"])) if given is None else int(given)
    groups = shared_out(fragments, read, size) or [[]]
    return {"common": common, "tasks": [{"fragments": group} for group in groups]}


def _whole_table(table: Request) -> dict[str, Any]:
    pinned = PinnedVersion.from_text(table["pin"]).opened()
    condition, not_null = _split(table["filters"], pinned.schema, can_split=True)
    fragments = [fragment.id for fragment in pinned.manifest.fragments]
    return {
        "pin": table["pin"],
        "fragments": fragments,
        "filter": condition,
        "notNull": not_null,
        "batchRows": AGGREGATED_ROWS,
    }


def _split(texts: Sequence[str], schema: pa.Schema, *, can_split: bool) -> tuple[str | None, list[str]]:
    """The filter of Lance, and the columns that must not be null.

    Arrow counts nulls, so a worker finds out in no time that there are none; Lance evaluates the filter for each row.
    """
    plain = [field.name for field in schema if has_plain_nulls(field.type)] if can_split and texts else []
    by_text = {not_null_filter(name): name for name in plain}
    not_null = [by_text[text] for text in texts if text in by_text]
    others = [text for text in texts if text not in by_text and text != ALWAYS]
    return " AND ".join(others) or None, not_null


def _summed(request: Request, schema: pa.Schema) -> pa.Schema:
    steps: Any = parse_json(request["aggregates"], "The aggregates")
    return pa.schema([schema.field(step[1]) for step in steps if not isinstance(step, str)])


def _aggregated_rows(read: pa.Schema) -> int:
    """Rows that a worker aggregates at once: more than it would send, if they are narrow, since they stay there."""
    is_narrow = all(pa.types.is_primitive(field.type) for field in read)
    return AGGREGATED_ROWS if is_narrow else batch_rows(read)


def bytes_per_task(total: int, parallelism: int) -> int:
    """So that the tasks are neither too big nor too small, and all cores get an equal share."""
    waves = max(1, -(-total // (BYTES_PER_TASK * parallelism)))
    return max(SMALLEST_TASK, -(-total // (waves * parallelism)))
