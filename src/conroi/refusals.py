"""Verbs that a handle does not have where it stands, and the error for a program that calls them: one table for all.

A snapshot of a lake, and a table inside a transaction, have fewer verbs than the lake and the table themselves. They do
not have the methods, so a type checker finds such a call; at run time the call is an InvalidInputError with a hint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from conroi.errors import InvalidInputError

C = TypeVar("C", bound=type)

Refusal = tuple[str, str]
"""Message and hint; `{0}` is the handle."""


_IN_A_PAST_VERSION: Refusal = (
    "Version {0.version} is a past version inside a transaction; it can only be read.",
    "Change the table as the transaction sees it, tx[name]; its restore() brings a past version back.",
)
_IN_A_PAST_LAKE: Refusal = (
    "This is the lake as it was at version {0.version}; it can only be read.",
    "Use the lake itself, as conroi.connect() gave it.",
)


def _outside(message: str, what: str) -> Refusal:
    return message, f"lake[name] outside the transaction {what}."


IN_TRANSACTION: dict[str, Refusal] = {
    "begin": ("A table inside a transaction is in one already.", "Do the statements here."),
    "clone": (
        "A table inside a transaction cannot be cloned: its version is not committed yet.",
        "Clone it after the commit, with lake[name].clone().",
    ),
    "doctor": _outside("A table inside a transaction cannot be examined.", "has doctor()"),
    "expire": _outside("Versions cannot be expired inside a transaction.", "has expire(), or the lake"),
    "gc": _outside("Files cannot be collected inside a transaction.", "has gc(), or the lake"),
    "insert": (
        "insert() takes a lock and commits by itself, so it cannot be a statement of a transaction.",
        "Use append() here: it is atomic with the rest.",
    ),
    "latest": _outside(
        "A table inside a transaction stays at the transaction's snapshot.", "is the newest version"
    ),
    "migrate_manifest_names": _outside(
        "Manifest names cannot be migrated inside a transaction.", "can be migrated"
    ),
}  # fmt: skip
"""What a table inside a transaction has not: each of these acts at once."""

PAST_IN_TRANSACTION: dict[str, Refusal] = {
    **IN_TRANSACTION,
    **dict.fromkeys(
        [
            "add_base",
            "add_columns",
            "alter_columns",
            "append",
            "compact",
            "create_index",
            "declare_key",
            "delete",
            "drop_columns",
            "drop_index",
            "merge",
            "optimize_indices",
            "overwrite",
            "rename_columns",
            "replace_column_data",
            "reserve_fragments",
            "restore",
            "set_config",
            "set_metadata",
            "update",
            "update_mem_wal_state",
        ],
        _IN_A_PAST_VERSION,
    ),
    "clone": _outside("A past version inside a transaction cannot be cloned.", "has at(version).clone()"),
}
"""What a past version of a table inside a transaction has not: every change as well."""

PAST_LAKE: dict[str, Refusal] = {
    **dict.fromkeys(
        (
            *("adopt", "begin", "concat", "copy", "create_namespace", "create_table", "deregister", "doctor"),
            *("drop_namespace", "drop_table", "expire", "gc", "insert", "insert_lock", "job", "mend", "register"),
            *("rename_table", "run", "set_locks", "temp_table", "write"),
        ),
        _IN_A_PAST_LAKE,
    ),
    "merge": ("The target is the lake as it was at version {0.version}; it can only be read.", "Merge into a branch."),
}
"""What a snapshot of a lake has not: every change, and upkeep."""


def refused(handle: Any, refusal: Refusal) -> InvalidInputError:
    """The error of a verb that the handle does not have."""
    message, hint = refusal
    return InvalidInputError(message.format(handle), table=handle._name_for_errors(None), hint=hint)  # noqa: SLF001


def refuses(verbs: Mapping[str, Refusal]) -> Callable[[C], C]:
    """Class decorator: a verb of this table is an error with a hint, and to type checkers it does not exist."""

    def missing(handle: Any, name: str) -> Callable[..., NoReturn]:
        if name not in verbs:
            raise AttributeError(f"{type(handle).__name__!r} object has no attribute {name!r}", name=name, obj=handle)

        def refuse(*_: object, **__: object) -> NoReturn:
            raise refused(handle, verbs[name])

        return refuse

    def decorate(owner: C) -> C:
        setattr(owner, "__getattr__", missing)  # noqa: B010
        return owner

    return decorate
