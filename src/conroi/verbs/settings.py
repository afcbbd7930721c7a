"""Config and metadata of a table, of its schema, of its columns."""

from __future__ import annotations

from collections.abc import Mapping

from conroi.data.pinned import Pinned
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.operations import UpdateConfig
from conroi.operations.update_config import update_map
from conroi.verbs.field_paths import find
from conroi.verbs.plan import Plan

Values = Mapping[str, str | None]
"""New values by key; None deletes a key."""
AUTO_COMPACT = "conroi.auto_compact"
"""Setting: the number of small fragments of about the same size above which writers compact them."""


def check_settings(values: Values, table: str) -> None:
    """Reject an invalid value of a conroi setting."""
    limit = values.get(AUTO_COMPACT)
    if limit is not None and not (isinstance(limit, str) and limit.isdecimal() and int(limit) >= 2):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(
            f"{AUTO_COMPACT}={limit!r} is not a number of fragments.",
            table=table,
            hint='Give 2 or more as text, such as "32"; None switches it off.',
        )


def set_config(pinned: Pinned, values: Values, *, replace: bool = False) -> Plan:
    """Configuration that Lance and conroi act on, such as `lance.*`."""
    check_settings(values, pinned.root)
    return Plan(pinned.staged(UpdateConfig(config=_update_map(pinned, values, replace))))


def set_metadata(
    pinned: Pinned,
    *,
    table: Values | None = None,
    schema: Values | None = None,
    fields: Mapping[str, Values] | None = None,
    replace: bool = False,
) -> Plan:
    """Metadata of the table, its schema, or single columns."""
    if table is None and schema is None and not fields:
        raise InvalidInputError("No metadata was given.", table=pinned.root, hint="Pass table=, schema= or fields=.")
    operation = UpdateConfig(
        table_metadata=None if table is None else _update_map(pinned, table, replace),
        schema_metadata=None if schema is None else _update_map(pinned, schema, replace),
        field_metadata={
            find(pinned, column).id: _update_map(pinned, values, replace) for column, values in (fields or {}).items()
        },
    )
    return Plan(pinned.staged(operation))


def _update_map(pinned: Pinned, values: Values, replace: bool) -> pb.UpdateMap:
    for key, value in values.items():
        is_text = isinstance(key, str) and isinstance(value, str | None)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not key or not is_text:
            raise InvalidInputError(
                f"{key!r}: {value!r} cannot be stored.", table=pinned.root, hint="Keys and values are strings."
            )
    return update_map(values, replace=replace)
