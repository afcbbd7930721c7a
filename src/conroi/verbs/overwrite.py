"""Overwrite: replaces all rows, or only the rows that match a predicate, with new rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from conroi.commit.change import IfMoved, Plan, must_not_move
from conroi.data.arrow_types import metadata_of
from conroi.data.casts import checked_columns
from conroi.data.incoming import KeysSeen, carries_metadata, opened, write_rows
from conroi.data.predicates import Predicate, checked_predicate
from conroi.data.pylance import open_dataset, pylance_errors
from conroi.data.rows import addresses_of, offsets_by_fragment, take_out
from conroi.data.table_version import TableVersion
from conroi.data.writer import Progress
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import key_columns
from conroi.format.manifest import count_rows
from conroi.operations import Overwrite, Update
from conroi.verbs.create import checked_fields
from conroi.verbs.key_check import checked_new_keys, key_stays, only, refuse_repeated


def overwrite(
    pinned: TableVersion,
    data: object,
    *,
    config: Mapping[str, str] | None = None,
    if_moved: IfMoved = "fail",
    progress: Progress | None = None,
) -> Plan:
    """Replace all rows. Data that fits keeps the table's columns; other data brings its own."""
    rows = opened(data, pinned.schema)
    schema, fields = next_schema(pinned, rows.schema)
    seen = KeysSeen(key_columns(fields))
    written = write_rows(rows, schema, pinned.writer(fields), seen, progress)
    refuse_repeated(seen.keys(), seen.columns, pinned.root)
    operation = Overwrite(
        fragments=tuple(written.fragments),
        schema=tuple(fields),
        schema_metadata=_next_metadata(pinned, rows.schema if carries_metadata(data) else None),
        config_upsert_values=dict(config or {}),
    )
    counts = {"rows_added": written.rows, "rows_deleted": count_rows(pinned.manifest.fragments)}
    return Plan(
        pinned.staged(operation),
        must_not_move=must_not_move(if_moved, pinned.root),
        guard=key_stays(pinned),
        counts=counts,
    )


def _next_metadata(pinned: TableVersion, source: pa.Schema | None) -> dict[str, bytes]:
    """The schema's metadata after an overwrite with data of this schema; as it was, if the data has no place for it."""
    if source is None:
        return dict(pinned.manifest.head.schema_metadata)
    return {key.decode(): value for key, value in (source.metadata or {}).items()}


def next_schema(pinned: TableVersion, source: pa.Schema) -> tuple[pa.Schema, list[pb.Field]]:
    """The table's columns after an overwrite with these."""
    if set(source.names) == set(pinned.schema.names):
        try:
            checked_columns(source, pinned.schema, table=pinned.root)
        except InvalidInputError:
            pass  # same names, other types: the data brings its own schema
        else:
            return pinned.schema, list(pinned.manifest.fields)
    key = pinned.key
    lost = [path for path in key if path.partition(".")[0] not in source.names]
    if lost:
        raise InvalidInputError(
            f"The new data lacks the key column {', '.join(lost)}.",
            table=pinned.root,
            hint="A table keeps its key; drop the table and make a new one without it.",
        )
    keyed = {name: pinned.schema.field(name) for name in {path.partition(".")[0] for path in key}}
    schema = pa.schema([keyed.get(field.name, field) for field in source], metadata=metadata_of(pinned.schema))
    return schema, checked_fields(schema, table=pinned.root, data_format=pinned.manifest.head.data_format.version)


def overwrite_where(
    pinned: TableVersion,
    data: object,
    where: Predicate,
    *,
    if_moved: IfMoved = "fail",
    progress: Progress | None = None,
) -> Plan | None:
    """Replace the rows that match the condition by rows that match it too, in one version."""
    predicate = checked_predicate(where, table=pinned.root)
    with pylance_errors(pinned.root):
        found = pinned.dataset.scanner(columns=[], filter=predicate, with_row_address=True).to_table()
    rows = offsets_by_fragment(addresses_of(found["_rowaddr"]))
    seen = KeysSeen(pinned.key)
    written = write_rows(opened(data, pinned.schema), pinned.schema, pinned.writer(), seen, progress)
    if not rows and not written.fragments:
        return None
    _refuse_strays(pinned, written.fragments, predicate)
    guard = checked_new_keys(pinned, seen, leaving=found["_rowaddr"])
    left = take_out(pinned.files, pinned.manifest, pinned.version, rows)
    operation = Update(
        removed_fragment_ids=left.removed,
        updated_fragments=left.updated,
        new_fragments=tuple(written.fragments),
        fields_for_preserving_frag_bitmap=tuple(sorted(f.id for f in pinned.manifest.fields)),
    )
    return Plan(
        pinned.staged(operation, rows, keys_checked=True),
        must_not_move=must_not_move(if_moved, pinned.root),
        guard=guard,
        counts={"rows_added": written.rows, "rows_deleted": found.num_rows},
    )


def _refuse_strays(pinned: TableVersion, fragments: list[pb.DataFragment], where: Predicate) -> None:
    """New rows outside the condition would be duplicated by running the same load again."""
    if not fragments:
        return
    alone = only(pinned.snapshot, fragments)
    # coalesce takes expressions too, though its stubs know only arrays
    expression = cast("Any", where)
    outside = f"({where}) IS NOT TRUE" if isinstance(where, str) else ~pc.coalesce(expression, pc.scalar(False))
    with pylance_errors(pinned.root):
        strays = open_dataset(pinned.files.objects, alone).count_rows(filter=outside)
    if strays:
        raise InvalidInputError(
            f"{strays} of the new rows do not match the condition {where}.",
            table=pinned.root,
            hint="Filter the data first, or append those rows separately.",
        )
