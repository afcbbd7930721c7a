"""Folder kinds: a lake, or a table of Lance, Delta, Iceberg or Hudi; and the marker of a lake with a store."""

from __future__ import annotations

import contextlib
import itertools
import os
from dataclasses import dataclass

from conroi.errors import CorruptionError, NotFoundError
from conroi.format.json import decode_document, encode_document
from conroi.format.naming import VERSIONS_DIR
from conroi.storage.objects import ObjectExists, Objects
from conroi.versions.external import FinalPut

MANIFEST = "__manifest"
"""The table of a lake that lists its tables."""
_TABLE_FOLDERS = {VERSIONS_DIR: "a Lance table", "_delta_log": "a Delta table", ".hoodie": "a Hudi table"}
_ICEBERG_FOLDER, _ICEBERG_METADATA = "metadata", ".metadata.json"
_LOOKED_AT = 1000
"""So many files of a folder `metadata` are looked at."""


def content_of(folder: Objects) -> str | None:
    """What kind of table or lake a folder is; None if it is none."""
    if folder.is_local:
        path = folder.root
        if any(os.path.exists(f"{path}/{name}") for name in (MANIFEST, MARKER)):
            return "a lake"
        for name, kind in _TABLE_FOLDERS.items():
            if os.path.isdir(f"{path}/{name}"):
                return kind
        with contextlib.suppress(OSError):
            if any(name.endswith(_ICEBERG_METADATA) for name in os.listdir(f"{path}/{_ICEBERG_FOLDER}")):
                return "an Iceberg table"
        return None
    if folder.head(MARKER) is not None or _has(folder, MANIFEST):
        return "a lake"
    for name, kind in _TABLE_FOLDERS.items():
        if _has(folder, name):
            return kind
    names = itertools.islice(folder.list_names(_ICEBERG_FOLDER), _LOOKED_AT)
    return "an Iceberg table" if any(name.endswith(_ICEBERG_METADATA) for name in names) else None


def _has(folder: Objects, name: str) -> bool:
    return next(iter(folder.list_names(name)), None) is not None


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
    except ObjectExists:
        return marker(root) or made
    return made


def mark_again(root: Objects, changed: Marker) -> None:
    """Replace the marker after the lake got another id."""
    root.put(MARKER, _encoded(changed))


def _encoded(made: Marker) -> bytes:
    return encode_document({"history": made.history, "lake": made.lake})
