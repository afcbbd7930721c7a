"""Matching of source and target rows, and the choice between the three plans of a merge."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from conroi.data.arrow_types import positions, row_width
from conroi.data.keys import matches, sample, scan_keys, shown_keys
from conroi.data.pylance import pylance_errors
from conroi.data.rows import addresses_of, count_rows, offsets_by_fragment
from conroi.data.table_version import TableVersion
from conroi.errors import DuplicateKeyError, InvalidInputError
from conroi.format.row_ids import decode_row_ids
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


Positions = npt.NDArray[np.int64]
Addresses = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Match:
    """The pairs of rows with the same key, and those without a partner."""

    addresses: Addresses
    """Of the target row of each pair, ascending."""
    source_rows: Positions
    """The position of the source row of each pair."""
    unmatched_source: Positions
    """Positions of source rows whose key the target does not have."""
    unmatched_target: Addresses
    """Addresses of target rows whose key the source does not have; empty unless asked for."""


class Matching(Protocol):
    """Finds the rows of a table that have the keys of a source, which has no key twice."""

    def __call__(
        self, pinned: TableVersion, source_keys: pa.Table, on: Sequence[str], *, needs_target_only: bool
    ) -> Match: ...


def match(
    pinned: TableVersion,
    source_keys: pa.Table,
    on: Sequence[str],
    *,
    needs_target_only: bool,
    fragment_ids: Sequence[int] | None = None,
) -> Match:
    """Compare the keys with those of the table, or of some fragments. `source_keys` has no key twice."""
    target = scan_keys(pinned, on, fragment_ids=fragment_ids, among=None if needs_target_only else source_keys)
    return match_keys(target, source_keys, needs_target_only=needs_target_only)


def match_keys(target: pa.Table, source_keys: pa.Table, *, needs_target_only: bool) -> Match:
    """Compare the keys with these, as `scan_keys` gives them."""
    target_rows, source_rows = matches(target, source_keys)
    addresses = addresses_of(target["_rowaddr"])
    unmatched = np.empty(0, np.uint64)
    if needs_target_only:
        is_alone = np.ones(len(addresses), bool)
        is_alone[target_rows] = False
        unmatched = addresses[is_alone]
    return Match(addresses[target_rows], source_rows, others(source_rows, source_keys.num_rows), unmatched)


def others(rows: Positions, count: int) -> Positions:
    """Which of so many rows are not among these."""
    is_other = np.ones(count, bool)
    is_other[rows] = False
    return np.flatnonzero(is_other)


def refuse_doubled(pinned: TableVersion, found: Match, source_keys: pa.Table, on: Sequence[str]) -> None:
    """Refuse a key that the table itself has twice: a writer without key checks wrote it."""
    order = np.sort(found.source_rows)
    doubled = np.unique(order[1:][order[1:] == order[:-1]])
    if len(doubled):
        keys = source_keys.take(positions(doubled))
        raise DuplicateKeyError(
            f"The table itself has the key {', '.join(on)} more than once: {shown_keys(keys)}.",
            table=pinned.root,
            version=pinned.version,
            keys=sample(keys, on),
            hint="A writer that does not check keys added them; delete the rows that are wrong, then merge again.",
        )


def take_rows(pinned: TableVersion, addresses: Addresses, columns: dict[str, str]) -> pa.Table:
    """Columns (by expression) of the rows at these addresses, in the order given."""
    if not columns:
        return pa.table({})
    # In a table with stable row ids pylance takes the list as row ids, whatever its name says.
    wanted = row_ids_of(pinned, addresses) if pinned.manifest.has_stable_row_ids else addresses
    with pylance_errors(pinned.root):
        found = pinned.dataset.scanner(
            columns=columns,
            row_addr_allowlist=_allowlist(wanted) if len(wanted) else None,
            filter=None if len(wanted) else "false",  # an empty list of addresses would count as none
            with_row_address=True,
            blob_handling="all_binary",
        ).to_table()
    order = pc.index_in(pa.array(addresses), value_set=found["_rowaddr"])
    return found.take(order).drop_columns(["_rowaddr"])


def row_ids_of(pinned: TableVersion, addresses: Addresses) -> Addresses:
    """The stable ids of the rows at these addresses, in the order given."""
    ids = np.empty(len(addresses), np.uint64)
    fragments = addresses >> np.uint64(32)
    for fragment_id in np.unique(fragments):
        fragment = pinned.manifest.fragments_by_id[int(fragment_id)]
        here = fragments == fragment_id
        sequence = decode_row_ids(fragment.inline_row_ids, rows=fragment.physical_rows)
        ids[here] = sequence[(addresses[here] & np.uint64(0xFFFFFFFF)).astype(np.int64)]
    return ids


def _allowlist(addresses: Addresses) -> bytes:
    """Row addresses (or ids) as pylance takes them: by their upper half, a roaring bitmap of the lower."""
    fragments = offsets_by_fragment(addresses)
    parts = [struct.pack("<I", len(fragments))]
    for fragment, offsets in fragments.items():
        encoded = offsets.serialize()
        parts.append(struct.pack("<II", fragment, len(encoded)) + encoded)
    return b"".join(parts)
