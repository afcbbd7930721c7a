"""Table and namespace identifiers: `sales.orders` for people, `sales$orders` in `__manifest`."""

from __future__ import annotations

import re
from collections.abc import Container

from conroi.errors import InvalidInputError

SEPARATOR = "$"
LONGEST_PART = 128
LONGEST_NAME = 200
_PART = re.compile(r"\w[\w\- ]*", re.UNICODE)


def object_id(name: str) -> str:
    """The id of a table or namespace; InvalidInputError if nothing can have that name."""
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(f"{name!r} is not a name.", hint='Give text, such as "orders" or "sales.orders".')
    parts = name.split(".")
    for part in parts:
        _check_part(part, name)
    if len(name) > LONGEST_NAME:
        raise InvalidInputError(
            f"The name {name[:40]!r}… has {len(name)} characters.", hint=f"Use {LONGEST_NAME} at most."
        )
    return SEPARATOR.join(parts)


def known_id(name: str, ids: Container[str]) -> str:
    """The id of an existing table, whatever other software called it; else as `object_id` gives it."""
    if isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        written = name.replace(".", SEPARATOR)
        if written in ids and not written.startswith("__"):
            return written
    return object_id(name)


def _check_part(part: str, name: str) -> None:
    shown = name if len(name) <= LONGEST_NAME else name[:40] + "…"
    if not _PART.fullmatch(part) or part.startswith("__") or part != part.strip():
        raise InvalidInputError(
            f"{shown!r} cannot be the name of a table.",
            hint="Use letters, digits, _ and -, with a dot between namespace and table; names with __ in front are "
            "the lake's own.",
        )
    if len(part) > LONGEST_PART:
        raise InvalidInputError(
            f"A part of the name {shown!r} has {len(part)} characters.", hint=f"Use {LONGEST_PART} at most."
        )


def shown(object_id: str) -> str:
    """The name as people write it."""
    return object_id.replace(SEPARATOR, ".")


def parents(object_id: str) -> list[str]:
    """The namespaces that it is in, outermost first."""
    parts = object_id.split(SEPARATOR)
    return [SEPARATOR.join(parts[:count]) for count in range(1, len(parts))]


def folder_name(object_id: str) -> str:
    """A folder name for it that every file system and object store accepts."""
    return re.sub(r"[^A-Za-z0-9_\-]", "_", object_id)
