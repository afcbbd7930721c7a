"""Choice between the three plans of a merge, by the sizes of source and table: process, probe or join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import pyarrow as pa

from conroi.data.arrow_types import row_width
from conroi.data.table_version import TableVersion
from conroi.errors import InvalidInputError
from conroi.format.manifest import count_rows
from conroi.merge.request import Action, Request, RowKind

Way: TypeAlias = Literal["process", "probe", "join"]
"""`process`: all of it here. `probe`: tasks look for the source's keys in the table, the rest is done here. `join`:
executors do it all."""

MOST_SOURCE_ROWS = 2_000_000
MOST_SOURCE_BYTES = 512 * 1024 * 1024
"""Maximum size of a DataFrame that is collected into this process, in bytes."""
MOST_TABLE_KEY_BYTES = 512 * 1024 * 1024
"""Maximum size of the table's key columns that are read in this process, in bytes, where there is another plan."""
MOST_KEY_BYTES = 32 * 1024 * 1024
"""Maximum size of the keys that are sent with every task, in bytes."""

_STEPS: Mapping[Way, str] = {
    "process": "in this process: read the table's keys, compare, write",
    "probe": "tasks look for the source's keys in the table; this process writes the rows",
    "join": "executors share out source and table by key, compare, and write the rows; this process commits",
}


@dataclass(frozen=True, slots=True, repr=False)
class MergePlan:
    """The plan of a merge, and why it was chosen. Sizes are estimates of memory use."""

    way: Way
    why: str
    on: tuple[str, ...]
    source_rows: int
    source_bytes: int
    table_rows: int
    table_key_bytes: int
    """Of the columns that are matched on, and the addresses of the rows."""

    def __str__(self) -> str:
        return "\n".join(
            [
                f"merge on {', '.join(self.on)}: {self.way}",
                f"  why     {self.why}",
                f"  source  {self.source_rows:,} rows, {_size(self.source_bytes)}",
                f"  table   {self.table_rows:,} rows, {_size(self.table_key_bytes)} of keys",
                f"  steps   {_STEPS[self.way]}",
            ]
        )

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class SourceSize:
    """How big a source is."""

    rows: int
    bytes: int


def choose(
    request: Request,
    pinned: TableVersion,
    source: SourceSize,
    *,
    has_spark: bool,
    is_frame: bool,
    way: Way | None = None,
) -> MergePlan:
    """The requested plan, or else the cheapest one that no size rules out."""
    columns = pa.schema([pinned.schema.field(name) for name in request.on if name in pinned.schema.names])
    table_rows = count_rows(pinned.manifest.fragments)
    table_bytes = table_rows * (row_width(columns) + 8)
    key_bytes = source.rows * row_width(columns)
    if way is None:
        way, why = _chosen(request, source, key_bytes, table_bytes) if is_frame or has_spark else ("process", _NO_SPARK)
        if way == "join" and not is_frame:
            way = "probe" if key_bytes <= MOST_KEY_BYTES else "process"
    else:
        _check(way, pinned.root, has_spark=has_spark, is_frame=is_frame)
        why = "you asked for it"
    return MergePlan(way, why, request.on, source.rows, source.bytes, table_rows, table_bytes)


_NO_SPARK = "the source is in this process, and no Spark session was given"


def _chosen(request: Request, source: SourceSize, key_bytes: int, table_bytes: int) -> tuple[Way, str]:
    if source.rows > MOST_SOURCE_ROWS:
        return "join", f"the source has more than {MOST_SOURCE_ROWS:,} rows"
    if source.bytes > MOST_SOURCE_BYTES:
        return "join", f"the source has more than {_size(MOST_SOURCE_BYTES)}"
    if table_bytes <= MOST_TABLE_KEY_BYTES:
        return "process", "the source and the table's keys are small enough for one process"
    if request.has(RowKind.TARGET_ONLY, Action.UPDATE):
        return "join", "rows that the source does not have are updated, and the table is big"
    if key_bytes > MOST_KEY_BYTES:
        return "join", f"the source has more than {_size(MOST_KEY_BYTES)} of keys, too many to send with every task"
    return "probe", "the table is big, but the source's keys are few enough to send with every task"


def _check(way: Way, table: str, *, has_spark: bool, is_frame: bool) -> None:
    if way not in get_args(Way):
        raise InvalidInputError(
            f"plan={way!r} is not a way to merge.", table=table, hint='Give "process", "probe" or "join".'
        )
    if way == "join" and not is_frame:
        raise InvalidInputError(
            'plan="join" needs a source that is a Spark DataFrame.',
            table=table,
            hint='Make it one with spark.createDataFrame(…), or use plan="probe" with spark=….',
        )
    if way == "probe" and not has_spark:
        raise InvalidInputError(
            'plan="probe" needs Spark.', table=table, hint="Pass spark=…, or a Spark DataFrame as the source."
        )


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"
