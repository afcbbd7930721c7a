"""Error mapping: runs a namespace request on the lake and raises conroi errors as `lance_namespace` errors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import lance_namespace

from conroi import errors
from conroi.catalog.names import shown
from conroi.parallel import Pool

P = ParamSpec("P")
R = TypeVar("R")

KINDS: tuple[tuple[type[errors.ConroiError], type[lance_namespace.LanceNamespaceError]], ...] = (
    (errors.ConflictError, lance_namespace.ConcurrentModificationError),
    (errors.AlreadyExistsError, lance_namespace.TableAlreadyExistsError),
    (errors.UnsupportedError, lance_namespace.UnsupportedOperationError),
    (errors.InvalidInputError, lance_namespace.InvalidInputError),
    (errors.NotFoundError, lance_namespace.TableNotFoundError),
    (errors.CorruptionError, lance_namespace.InvalidTableStateError),
    (errors.StoreUnavailable, lance_namespace.ServiceUnavailableError),
    (errors.ConroiError, lance_namespace.InternalError),
)
"""The first match applies."""


_POOL = Pool("conroi-namespace", 32)


def answered(method: Callable[P, R]) -> Callable[P, R]:
    """Decorator of namespace methods: runs in a thread of ours, and maps errors to those of lance_namespace.

    pylance calls from threads of its own, and the interpreter crashes if pylance is called from one of those in turn.
    """

    @wraps(method)
    def with_typed_errors(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return _in_our_thread(lambda: method(*args, **kwargs))
        except errors.ConroiError as error:
            raise as_namespace_error(error) from error

    return with_typed_errors


def _in_our_thread(task: Callable[[], R]) -> R:
    running = _POOL.try_start(task)
    if running is not None:
        return running.result()
    if threading.current_thread().name.startswith("Dummy-"):  # a thread of pylance: see above
        raise lance_namespace.ServiceUnavailableError(
            "The interpreter is shutting down. Hint: wait for threads that write before the main thread ends."
        )
    return task()


def as_namespace_error(error: errors.ConroiError) -> lance_namespace.LanceNamespaceError:
    """The corresponding error of lance_namespace."""
    for kind, theirs in KINDS:
        if isinstance(error, kind):
            return theirs(str(error))
    raise AssertionError("unreachable")


def no_namespace(object_id: str) -> lance_namespace.NamespaceNotFoundError:
    return lance_namespace.NamespaceNotFoundError(
        f"The lake has no namespace {shown(object_id)!r}. Hint: create_namespace() makes one."
    )


def no_table(object_id: str) -> lance_namespace.TableNotFoundError:
    # lancedb identifies a missing table by these words.
    return lance_namespace.TableNotFoundError(
        f"Table not found: {shown(object_id)!r} is not in the lake. Hint: list_tables() says what is."
    )


def no_version(object_id: str, version: int | None) -> lance_namespace.TableVersionNotFoundError:
    return lance_namespace.TableVersionNotFoundError(
        f"Table {shown(object_id)!r} has no version {version or 'yet'} in the lake. "
        "Hint: list_table_versions() says which it has."
    )
