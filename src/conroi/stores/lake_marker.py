"""Lake marker: the file in the folder of a lake with a store that holds the kind of the store and the lake's id in it.

It never holds the location of the store, since an address may contain a password.
"""

from __future__ import annotations

from dataclasses import dataclass

from conroi.errors import CorruptionError, NotFoundError
from conroi.format.documents import decode_document, encode_document
from conroi.stores.finishing import FinalPut
from conroi.stores.objects import NameTaken, Objects

MARKER = "__conroi.json"


@dataclass(frozen=True, slots=True)
class Marker:
    """What the file says."""

    history: str
    """The kind of store: `sqlite` or `postgresql`."""
    lake: str | None = None
    """The id of the lake in the store; None if an older conroi wrote the file, whose ids are the lakes' folders."""


def marker(root: Objects) -> Marker | None:
    """The marker of the lake in this folder; None if it has no store, or there is no lake."""
    try:
        content = decode_document(root.get(MARKER), MARKER)
        return Marker(content.text("history"), content.optional_text("lake"))
    except NotFoundError:
        return None
    except CorruptionError as error:
        raise CorruptionError(
            f"The file {MARKER} of the lake cannot be read.",
            table=root.root,
            hint='Write {"history": "postgresql"} or {"history": "sqlite"} into it, whichever the lake has, and open '
            "the lake with its store, which adds the rest.",
        ) from error


def mark(root: Objects, made: Marker) -> Marker:
    """Write the marker, unless there is one; returns its content. Works on storage without conditional writes."""
    try:
        FinalPut().put_new(root, MARKER, _encoded(made))
    except NameTaken:
        return marker(root) or made
    return made


def mark_again(root: Objects, changed: Marker) -> None:
    """Replace the marker after the lake got another id."""
    root.put(MARKER, _encoded(changed))


def _encoded(made: Marker) -> bytes:
    return encode_document({"history": made.history, "lake": made.lake})
