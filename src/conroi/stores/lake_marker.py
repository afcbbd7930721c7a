"""The file in the folder of a lake with a store that says so; never where, since an address may hold a password."""

from __future__ import annotations

import json

from conroi.errors import CorruptionError, NotFoundError
from conroi.stores.objects import NameTaken, Objects

MARKER = "__conroi.json"


def marker(root: Objects) -> str | None:
    """The kind of store that the lake in this folder has; None if it has none, or there is no lake."""
    try:
        return str(json.loads(root.get(MARKER))["history"])
    except NotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(
            f"The file {MARKER} of the lake cannot be read.",
            table=root.root,
            hint='Write {"history": "postgresql"} or {"history": "sqlite"} into it, whichever the lake has.',
        ) from error


def mark(root: Objects, kind: str) -> str:
    """Leave the mark, unless somebody did; the answer is what it says."""
    try:
        root.put_if_absent(MARKER, json.dumps({"history": kind}).encode())
    except NameTaken:
        return marker(root) or kind
    return kind
