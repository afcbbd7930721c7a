"""Replica of a SQL-backed lake's newest state in its own folder.

One small file per version in `_conroi/lake/`: what the commit changed and, every `FULL_EVERY` versions, all rows. The
file of a version exists before the next version is published: its own publisher writes it right after the commit, and
the next writer does if that process crashed. So the folder alone, or a copy of it, can be read without the database, at
most one commit behind. All writers of one file write the same content, so storage without conditional writes suffices.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from conroi.errors import CorruptionError, NotFoundError, StoreError
from conroi.format.documents import decode_document, encode_document
from conroi.stores.objects import Objects

_log = logging.getLogger(__name__)

COPY_DIR = "_conroi/lake"
FULL_EVERY = 16
"""Interval, in versions, at which all rows are written and older files are deleted."""
_ROUNDS = 3
"""Maximum number of listings when a file is deleted under a reader."""

JsonRow = list[Any]
"""A row as `Row.to_json` gives it."""


@dataclass(frozen=True, slots=True)
class CopiedCommit:
    """One version as its file has it: all rows, or what it changed, or both."""

    version: int
    timestamp_ns: int
    uuid: str | None = None
    notes: Mapping[str, str] = field(default_factory=dict[str, str])
    changes: Mapping[str, JsonRow | None] | None = None
    rows: Mapping[str, JsonRow] | None = None


class LakeCopy:
    """The files of one lake. Its caches only save requests."""

    def __init__(self, root: Objects, lake: str) -> None:
        self._root = root
        self._lake = lake
        self._newest = 0
        """The newest version whose file is known to exist."""

    # ------------------------------------------------------------------------ writing

    def ensure(self, version: int, timestamp_ns: int, rows: Mapping[str, JsonRow]) -> None:
        """Write the file of this version, with all rows, unless it exists."""
        if version <= self._newest:
            return
        if self._root.head(_path(version)) is None:
            self._put(CopiedCommit(version, timestamp_ns, rows=rows))
        self._newest = max(self._newest, version)

    def add(self, commit: CopiedCommit) -> None:
        """Write the file of a version that was just published. Best effort: the next writer checks it."""
        try:
            self._put(commit)
            self._newest = max(self._newest, commit.version)
            if commit.rows is not None:
                self._delete_before(commit.version - FULL_EVERY)
        except StoreError as error:
            _log.info("version %d of %s is not in its folder yet: %s", commit.version, self._root.root, error)

    def replace(self, commit: CopiedCommit) -> None:
        """Start again with this version; newer files belong to another lake, or to lost commits."""
        newer = [_path(version) for version in self._versions() if version > commit.version]
        self._root.delete(newer)
        self._put(commit)

    def _put(self, commit: CopiedCommit) -> None:
        content: dict[str, object] = {
            "lake": self._lake,
            "version": commit.version,
            "timestamp_ns": commit.timestamp_ns,
            "uuid": commit.uuid,
            "notes": dict(commit.notes),
            "changes": commit.changes,
        }
        if commit.rows is not None:
            content["rows"] = commit.rows
        self._root.put(_path(commit.version), encode_document(content))

    def _delete_before(self, version: int) -> None:
        self._root.delete([_path(old) for old in self._versions() if old < version])

    # ------------------------------------------------------------------------ reading

    def chain(self) -> list[CopiedCommit]:
        """The newest versions, ascending, each with all rows; none if the folder has no copy of this lake."""
        for _ in range(_ROUNDS):
            versions = self._versions()
            try:
                return _with_rows(self._chain(versions))
            except NotFoundError:  # deleted since it was listed, because newer ones are there
                continue
        raise CorruptionError(
            "The copy of the lake's state in its folder has gaps.",
            table=self._root.root,
            hint="Open the lake with store=. If this is a copy of a lake, copy the folder again.",
        )

    def _versions(self) -> list[int]:
        names = (path.rpartition("/")[2].partition(".") for path in self._root.list_names(COPY_DIR))
        return sorted(int(number) for number, _, kind in names if number.isdecimal() and kind == "json")

    def _chain(self, versions: list[int]) -> list[CopiedCommit]:
        """The newest version that can be reconstructed, and those that lead to it, starting from one with all rows."""
        found: list[CopiedCommit] = []
        while versions:
            commit = self._read(versions.pop())
            if commit is None or (found and found[-1].version != commit.version + 1):
                found = []  # of another lake, or newer than a gap: what is older may be whole
            if commit is None:
                continue
            found.append(commit)
            if commit.rows is not None:
                return found[::-1]
        return []

    def _read(self, version: int) -> CopiedCommit | None:
        """The file of a version; None if it is another lake's."""
        try:
            content = decode_document(self._root.get(_path(version)), _path(version)).content
            if content["lake"] != self._lake:
                return None
            return CopiedCommit(
                int(content["version"]),
                int(content["timestamp_ns"]),
                content["uuid"],
                cast("Mapping[str, str]", content["notes"]),
                content.get("changes"),
                content.get("rows"),
            )
        except (CorruptionError, ValueError, KeyError, TypeError) as error:
            raise CorruptionError(
                f"The file {_path(version)} of the lake cannot be read.",
                table=self._root.root,
                version=version,
                hint="Open the lake with store=. If this is a copy of a lake, copy the folder again.",
            ) from error


def _with_rows(chain: Iterable[CopiedCommit]) -> list[CopiedCommit]:
    rows: Mapping[str, JsonRow] = {}
    found: list[CopiedCommit] = []
    for commit in chain:
        if commit.rows is None:
            changed = {**rows, **(commit.changes or {})}
            rows = {key: fields for key, fields in changed.items() if fields is not None}
        else:
            rows = commit.rows
        found.append(replace(commit, rows=rows))
    return found


def _path(version: int) -> str:
    return f"{COPY_DIR}/{version:020d}.json"
