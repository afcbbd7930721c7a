"""Structured streaming over tables of a lake: where a batch ends, what its tasks read, and commits that land once.

All is decided as by `format("conroi")`, so a checkpoint of one goes on with the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from conroi.environment import moment
from conroi.errors import ClosedError, InvalidInputError, UnsupportedError
from conroi.format.json import parse_object
from conroi.lake import Lake
from conroi.spark.connector.lake_session import LakeSession
from conroi.spark.connector.tasks import schema_to_text, struct_from_text
from conroi.spark.connector.writes import PlannedWrite, task_facts
from conroi.spark.options import BYTES, COLUMNS, FILTER, KEY, MESSAGE, OF_PLACE, Options
from conroi.spark.scan import batch_rows, checked_filter
from conroi.spark.streaming_sink import run_once
from conroi.spark.table_stream import NOTHING_YET, Limits, Slice, TableStream
from conroi.spark.types import arrow_schema, table_schema
from conroi.spark.writer import planned_task, refuse_reading_options
from conroi.storage.cloud_options import StorageOptions
from conroi.table import Table

Request = Mapping[str, Any]


def _lake(session: LakeSession, request: Request) -> tuple[Lake, str]:
    """The lake or its branch, and the name of the table there."""
    branch = request["target"]["branch"]
    return session.lake if branch is None else session.lake.branch(branch), request["target"]["name"]


def _table(session: LakeSession, request: Request) -> Table:
    lake, name = _lake(session, request)
    return lake[name]


def _options(request: Request) -> Options:
    """The options of a stream; the catalog says where the table is."""
    options = Options(request["options"])
    options.refuse(OF_PLACE, "a table of a catalog", "The settings of the catalog say where the lake is.")
    return options


# ---------------------------------------------------------------------------- a table as a source


def _stream(session: LakeSession, request: Request) -> TableStream:
    """The stream of a query. It keeps nothing that a new one would not find again."""
    identity = request["stream"]
    if identity not in session.streams:
        options = _options(request)
        options.refuse({COLUMNS}, "a stream of a table of a catalog", "Write .select(…) after it.")
        session.streams[identity] = TableStream(lambda: _table(session, request), options)
    return session.streams[identity]


def begin_stream(session: LakeSession, request: Request) -> dict[str, Any]:
    """Where a new query begins, and what all tasks of all batches are told."""
    stream = _stream(session, request)
    target = arrow_schema(struct_from_text(request["schema"]))
    options = StorageOptions(_table(session, request).pinned.files.objects.storage_options)
    common = {
        "op": "scan",
        "schema": schema_to_text(target),
        "batchRows": batch_rows(target),
        "storageOptions": dict(options),
    }
    return {"initial": json.dumps(NOTHING_YET), "isLimited": stream.limits != Limits(), "common": common}


def newest_version(session: LakeSession, request: Request) -> dict[str, Any]:
    """The last version that `trigger(availableNow=True)` reads."""
    return {"version": _stream(session, request).newest()}


def next_offset(session: LakeSession, request: Request) -> dict[str, Any]:
    """Where the next batch ends."""
    start = parse_object(request["start"], "The offset of a stream")
    found = _stream(session, request).next(start, is_limited=request["isLimited"], until=request.get("until"))
    return {"end": json.dumps(found)}


def plan_batch(session: LakeSession, request: Request) -> dict[str, Any]:
    """What the tasks of a batch read. Storage options are not among it: they are in what all tasks are told."""
    start, end = (parse_object(request[name], "The offset of a stream") for name in ("start", "end"))
    target, options = arrow_schema(struct_from_text(request["schema"])), _options(request)
    where = checked_filter(options.get(FILTER), request["target"]["name"])
    tasks = _stream(session, request).tasks(start, end, target, where, options.bytes_per_task)
    return {"tasks": [{"parts": [_part(each, target) for each in slices]} for slices in tasks]}


def _part(rows: Slice, target: pa.Schema) -> dict[str, Any]:
    pinned = rows.version.opened()
    missing = [name for name in target.names if name not in pinned.schema.names]
    if missing:  # they have come or gone since the query began
        raise InvalidInputError(
            f"The table has no column {', '.join(missing)}.",
            table=pinned.root,
            version=pinned.version,
            hint=f"It has {', '.join(pinned.schema.names)}. Begin a new query.",
        )
    pin = rows.version.with_storage_options(StorageOptions({})).to_text()
    return {"pin": pin, "fragments": [rows.fragment], "filter": rows.where}


def end_batch(session: LakeSession, request: Request) -> dict[str, Any]:
    """All up to this offset was handed on."""
    _stream(session, request).forget_before(parse_object(request["end"], "The offset of a stream"))
    return {}


def end_stream(session: LakeSession, request: Request) -> dict[str, Any]:
    """The query has ended."""
    session.streams.pop(request["stream"], None)
    return {}


# ---------------------------------------------------------------------------- a table as a sink


def plan_batch_write(session: LakeSession, request: Request) -> dict[str, Any]:
    """How the tasks write the rows of a batch."""
    if request.get("joined") is not None:
        raise UnsupportedError(
            "A streaming query commits each of its batches, so it cannot be part of a transaction.",
            hint="Start it outside of the transaction.",
        )
    options = _options(request)
    refuse_reading_options(options, overwrite=False)
    options.refuse({KEY, BYTES}, "a table that is there", "Create it with its key: CREATE TABLE … TBLPROPERTIES.")
    table, struct = _table(session, request), struct_from_text(request["schema"])
    schema = table_schema(struct)
    task = planned_task(table, schema, replaces_all=request["mode"] == "overwrite")
    planned = PlannedWrite(task, schema, moment(table.pinned.files.environment))
    session.batches[request["write"]] = planned, options.get(MESSAGE)
    return task_facts(task, arrow_schema(struct))


def add_batch_parts(session: LakeSession, request: Request) -> dict[str, Any]:
    """What some tasks wrote."""
    if request["write"] not in session.batches:
        raise ClosedError("The helper process ended while a batch was written.", hint="Start the query again.")
    session.batches[request["write"]][0].add(request["parts"])
    return {}


def commit_batch(session: LakeSession, request: Request) -> dict[str, Any]:
    """Commit a batch, once: again, if Spark repeats it, it changes nothing."""
    planned, message = session.batches.pop(request["write"])
    replaces_all = request["mode"] == "overwrite"
    if not planned.written and not replaces_all:
        return {}
    rows = planned.rows(planned.written)
    lake, name = _lake(session, request)

    def work(tx: Any) -> None:
        if replaces_all:
            tx[name].overwrite(rows, if_moved="win")
        else:
            tx[name].append(rows)

    run_once(lake, request["query"], request["batch"], work, message=message)
    return {}


def abort_batch(session: LakeSession, request: Request) -> dict[str, Any]:
    """Forget a batch. Its files are garbage."""
    session.batches.pop(request["write"], None)
    return {}
