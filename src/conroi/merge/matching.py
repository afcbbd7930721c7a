"""Matching of source and target rows by key, and the values of rows at given addresses."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from conroi.data.arrow_types import positions
from conroi.data.keys import matches, sample, scan_keys, shown_keys
from conroi.data.pylance import pylance_errors
from conroi.data.rows import addresses_of, offsets_by_fragment
from conroi.data.table_version import TableVersion
from conroi.errors import DuplicateKeyError
from conroi.format.row_ids import decode_row_ids

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
