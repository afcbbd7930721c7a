"""Index check: a filter through a scalar index returns the same rows as a scan."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from conroi.data.pinned import Pinned
from conroi.data.pylance import pylance_errors
from conroi.errors import ConroiError
from conroi.format import lance_pb2 as pb
from conroi.maintenance.doctor.lines import Line
from conroi.maintenance.doctor.subject import Subject
from conroi.operations.indices import covered_fragments, is_system

EXACT_KINDS = ("BTreeIndexDetails", "BitmapIndexDetails", "ZoneMapIndexDetails", "BloomFilterIndexDetails")
"""Kinds of index that answer comparisons of one column, exactly once the rows were looked at again."""
VALUES_OF_A_FRAGMENT = 16
"""How many values of each fragment are looked up one by one."""


def check_indices(subject: Subject, line: Line) -> None:
    """Every scalar index of the newest version finds the rows that a scan finds."""
    assert line.head is not None
    pinned = Pinned(subject.files, line.head)
    seen: set[str] = set()
    for index in line.head.indices:
        column = _column(pinned, index)
        if column is None or index.name in seen:
            continue
        seen.add(index.name)
        probes = _probes(pinned, column)
        try:
            hidden = max((_hidden(pinned, where) for where in probes), default=0)
        except ConroiError:  # its files are examined by themselves
            continue
        if hidden:
            what = f"A filter on {column!r} misses {hidden:,} rows when it uses the index {index.name!r}."
            subject.add("index-misses-rows", what, version=line.head.version, path=line.head.located.path)


def _column(pinned: Pinned, index: pb.IndexMetadata) -> str | None:
    """The one top-level column of an index that can be compared; None for other indices."""
    covered = covered_fragments(index)
    is_exact = index.index_details.type_url.endswith(EXACT_KINDS)
    if is_system(index) or not is_exact or len(index.fields) != 1 or not covered:
        return None
    found = [field for field in pinned.manifest.fields if field.id == index.fields[0] and field.parent_id == -1]
    return found[0].name if found else None


def _probes(pinned: Pinned, column: str) -> list[Any]:
    """Filters that together ask for rows of every fragment: the whole range, and some values of each fragment."""
    type_ = pinned.schema.field(column).type
    values: set[Any] = set()
    with pylance_errors(pinned.root):
        whole = pinned.dataset.scanner(columns=[column]).to_table()[column].drop_null()
        for fragment in pinned.dataset.get_fragments():
            few: pa.Table = fragment.scanner(columns=[column], limit=VALUES_OF_A_FRAGMENT).to_table()
            values |= set(few[column].drop_null().to_pylist())
    try:
        bounds: Any = pc.min_max(whole)  # pyright: ignore[reportUnknownMemberType]
    except pa.ArrowNotImplementedError:  # a type that has no order
        return []
    if not bounds["min"].is_valid:
        return []
    field: Any = pc.field(column)
    return [(field >= bounds["min"]) & (field <= bounds["max"]), field.isin(pa.array(list(values), type_))]


def _hidden(pinned: Pinned, where: Any) -> int:
    """How many rows that a scan finds are not found through the indices."""
    with pylance_errors(pinned.root):
        by_index, by_scan = (
            pinned.dataset.scanner(columns=[], filter=where, with_row_address=True, use_scalar_index=uses)
            .to_table()["_rowaddr"]
            .to_numpy()
            for uses in (True, False)
        )
    return len(set(by_scan.tolist()) - set(by_index.tolist()))
