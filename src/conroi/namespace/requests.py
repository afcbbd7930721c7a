"""Namespace requests as pylance and lancedb send them, and conroi's errors as the errors that these clients know."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import lance_namespace

from conroi import errors
from conroi.catalog.names import SEPARATOR, object_id, shown
from conroi.errors import InvalidInputError
from conroi.format.on_disk import OWN_PREFIX
from conroi.storage.parallel import Pool


@dataclass(frozen=True)
class Request:
    """One request, in either form."""

    said: object

    def get(self, name: str) -> Any:
        """The value of this field; None if it is absent."""
        if isinstance(self.said, Mapping):
            return cast("Mapping[str, Any]", self.said).get(name)
        return getattr(self.said, name, None)

    def parts(self, name: str = "id") -> list[str]:
        """An id, as its parts; the empty list is the lake itself."""
        found: Any = self.get(name) or []
        return [str(part) for part in found]

    def object_id(self, name: str = "id") -> str:
        """The id of the table or namespace that it is about; InvalidInputError if that is the lake itself."""
        return joined(self.parts(name))

    def text(self, name: str) -> str | None:
        found = self.get(name)
        return None if found is None else str(found)

    def number(self, name: str) -> int | None:
        found = self.get(name)
        return None if found is None else int(found)

    def texts(self, name: str) -> dict[str, str]:
        """Properties given by the user; those of the lake cannot be given."""
        found: Mapping[str, object] = self.get(name) or {}
        if any(str(key).startswith(OWN_PREFIX) for key in found):
            raise InvalidInputError("Properties that begin with conroi. are the lake's own.", hint="Rename them.")
        return {str(key): str(value) for key, value in found.items()}

    def mode(self, default: str, allowed: Sequence[str], name: str = "mode") -> str:
        """One of several words, in any spelling: ExistOk, exist_ok, EXISTOK."""
        found = (self.text(name) or default).replace("_", "").lower()
        if found not in allowed:
            raise InvalidInputError(f"The {name} {found!r} is not known.", hint=f"One of {', '.join(allowed)}.")
        return found

    def many(self, name: str) -> list[Request]:
        """A list of smaller requests."""
        return [Request(each) for each in self.get(name) or []]

    def refuse_branch(self) -> None:
        """Branches belong to the whole lake."""
        if self.get("branch") not in (None, "main"):
            raise InvalidInputError(
                f"The tables of a lake have no branches of their own, such as {self.get('branch')!r}.",
                hint="Leave out branch.",
            )


def joined(parts: Sequence[str]) -> str:
    """The object id of these parts; InvalidInputError if nothing can have it."""
    if any("." in part or SEPARATOR in part for part in parts):
        raise InvalidInputError(
            f"{list(parts)} cannot be the id of a table.", hint="Give namespace and table as parts, without dots."
        )
    return object_id(".".join(parts))


def paged(names: Sequence[str], request: Request) -> tuple[list[str], str | None]:
    """One page of names, and the token of the next if there is one."""
    after, limit = request.text("page_token"), request.number("limit")
    left = sorted(name for name in names if after is None or name > after)
    if limit is None or len(left) <= limit:
        return left, None
    page = left[: max(limit, 0)]
    return page, page[-1] if page else None


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
