"""Errors of conroi on their way through the JVM: as JSON facts, and as the same typed error on the other side."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from typing import Any

from conroi import errors
from conroi.errors import ConroiError
from conroi.format.json import parse_object

_MARKED = re.compile(r"\[conroi\.(\w+)\] (.*)", re.DOTALL)
_TRACE = re.compile(r"\n\s*(?:at |JVM stacktrace|Driver stacktrace)")
"""What Java adds to the text of an error."""
_WHERE = re.compile(r" \[table (.+?)(?:, version (\d+))?\]$", re.DOTALL)
"""What `str(error)` adds to its message."""


def facts_of(error: Exception) -> dict[str, Any]:
    """The type of an error and its attributes; other exceptions are unexpected, and only their text travels."""
    if not isinstance(error, ConroiError):
        message = f"{type(error).__name__}: {error}"
        return {"kind": ConroiError.__name__, "message": message, "text": message}
    found = {name: getattr(error, name, None) for name in _arguments(type(error))}
    found["message"] = error.message
    facts = {name: value for name, value in found.items() if value is not None and _is_plain(value)}
    return {**facts, "kind": type(error).__name__, "text": str(error)}


def _arguments(kind: type[ConroiError]) -> list[str]:
    return [name for name in inspect.signature(kind.__init__).parameters if name not in ("self", "args", "kwargs")]


def _is_plain(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def error_of(facts: Mapping[str, Any]) -> ConroiError:
    """The error again."""
    kind = getattr(errors, str(facts["kind"]), ConroiError)
    if not (isinstance(kind, type) and issubclass(kind, ConroiError)):
        kind = ConroiError
    known = {name: facts[name] for name in _arguments(kind) if name in facts and name != "message"}
    return kind(str(facts["message"]), **known)


def typed(error: BaseException) -> ConroiError | None:
    """Our error inside one of PySpark's; None if there is none."""
    origin: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    for _ in range(20):
        if origin is None:
            break
        if origin.getClass().getSimpleName() == "LakeException":
            return error_of(parse_object(str(origin.facts()), "An error of the connector"))
        origin = origin.getCause()
    return _from_text(str(error))


def _from_text(text: str) -> ConroiError | None:
    """From the text alone, as a Connect client gets it."""
    found = _MARKED.search(text)
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, ConroiError)):
        return None
    message, _, hint = _TRACE.split(found[2], maxsplit=1)[0].partition(" Hint: ")
    facts: dict[str, Any] = {"kind": found[1], "message": message, "hint": hint.split("\n")[0] or None}
    if where := _WHERE.search(message):
        version = None if where[2] is None else int(where[2])
        facts |= {"message": message[: where.start()], "table": where[1], "version": version}
    try:
        return error_of(facts)
    except TypeError:  # it has facts that the text does not repeat
        return ConroiError(facts["message"], hint=facts["hint"])
