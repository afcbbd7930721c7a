"""Parsing of namespace requests: pylance and lancedb pass them as models or as plain mappings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from conroi.catalog.names import SEPARATOR, object_id
from conroi.errors import InvalidInputError


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
        if any(str(key).startswith("conroi.") for key in found):
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
