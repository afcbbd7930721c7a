"""Replace the data of whole columns, fragment by fragment, without rewriting the others."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from conroi.data.columns import Columns, column_batches, write_column_file
from conroi.data.table_version import TableVersion
from conroi.data.writer import Progress
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import key_columns
from conroi.operations import DataReplacement
from conroi.verbs.columns import no_column
from conroi.verbs.key_check import is_key_among
from conroi.verbs.plan import Plan


def replace_column_data(
    pinned: TableVersion, columns: Columns, *, fragments: Sequence[int] | None = None, progress: Progress | None = None
) -> Plan | None:
    """Compute columns anew for every row, or those of some fragments, by SQL expressions or a function over batches."""
    for name in () if callable(columns) else columns:
        pinned.field(name)
    groups: list[pb.Transaction.DataReplacement.Group] = []
    done = 0
    for fragment in _chosen(pinned, fragments):
        batches = column_batches(pinned, fragment.id, columns)
        if not len(batches.schema):
            raise no_column(pinned)
        names = [pinned.field(name).name for name in batches.schema.names]
        _refuse_key(pinned, names)
        schema = pa.schema([pinned.schema.field(name) for name in names])
        file = write_column_file(pinned, pinned.writer(), batches, schema, fragment.physical_rows)
        groups.append(pb.Transaction.DataReplacement.Group(fragment_id=fragment.id, new_file=file))
        done += fragment.physical_rows
        if progress is not None:
            progress(done)
    if not groups:
        return None
    return Plan(pinned.staged(DataReplacement(replacements=tuple(groups))))


def _chosen(pinned: TableVersion, ids: Sequence[int] | None) -> Sequence[pb.DataFragment]:
    known = pinned.manifest.fragments_by_id
    if ids is None:
        return pinned.manifest.fragments
    unknown = [number for number in ids if number not in known]
    if unknown:
        raise InvalidInputError(
            f"Version {pinned.version} of the table has no fragment {', '.join(map(str, unknown))}.",
            table=pinned.root,
            hint=f"It has {', '.join(map(str, sorted(known)[:20])) or 'none'}; a compaction makes new ones.",
        )
    return [known[number] for number in sorted(set(ids))]


def _refuse_key(pinned: TableVersion, names: list[str]) -> None:
    if is_key_among(names, pinned):
        raise InvalidInputError(
            f"The table's key is {', '.join(key_columns(pinned.manifest.fields))}, and its columns cannot be replaced.",
            table=pinned.root,
            hint="Use update(), which checks keys.",
        )
