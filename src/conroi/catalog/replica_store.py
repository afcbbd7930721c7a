"""Replica of a lake's newest state in its own folder, for a lake whose history is in a database: read without it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, cast

from conroi.catalog.folders import Marker
from conroi.catalog.rows import Row
from conroi.catalog.state import Changes, CommitMetadata, LakeState
from conroi.catalog.store import Attempt, DependenciesOf, Published, Seen
from conroi.commit.fairness import PriorityToken, Turns
from conroi.environment import Environment, utc_time
from conroi.errors import CorruptionError, InvalidInputError, NotFoundError, StoreError
from conroi.format.json import decode_document, encode_document
from conroi.format.on_disk import REPLICA_DIR
from conroi.history import moment_ns
from conroi.storage.objects import Objects


class ReplicaStore:
    """The newest states that the folder has: behind the store by one commit, or by all that were under way at once."""

    def __init__(self, root: Objects, found: Marker, environment: Environment) -> None:
        self._root = root
        self._marker = found
        self._copy = LakeCopy(root, found.lake or "")
        self._turns = Turns(environment)

    @property
    def turns(self) -> Turns:
        return self._turns

    def priority_token(self) -> PriorityToken:
        raise self.read_only()

    def read_only(self) -> InvalidInputError:
        """The error for a call that would change the lake."""
        kind = self._marker.history
        return InvalidInputError(
            f"This lake keeps its history in a {kind} store, and was opened without it: it can only be read.",
            table=self._root.root,
            hint=f'Give its address: conroi.connect(uri, store="{kind}://…"). A copy of a lake is made a lake of its '
            "own by conroi.stores.attach(uri, store, as_new=True).",
        )

    def newest(self, known: LakeState | None) -> Seen:
        states = self._states()
        newest = states[-1][1]
        if known is not None and newest.version <= known.version:
            return Seen(known)
        return Seen(newest, is_complete=known is None)

    def has_moved(self, known: LakeState, versions: int) -> bool:
        return self.newest(known).state.version >= known.version + versions

    compares_in_put = False

    def build(
        self,
        base: LakeState,  # noqa: ARG002
        changes: Changes,  # noqa: ARG002
        notes: CommitMetadata,  # noqa: ARG002
        uuid: str,  # noqa: ARG002
        dependencies: DependenciesOf,  # noqa: ARG002
    ) -> Attempt:
        raise self.read_only()

    def at(self, version: int) -> LakeState:
        for _, state in self._states():
            if state.version == version:
                return state
        raise self._not_here(f"version {version}")

    def as_of(self, moment: datetime | str) -> LakeState:
        wanted = moment_ns(moment, self._root.root)
        found = [state for _, state in self._states() if state.timestamp_ns <= wanted]
        if not found:
            raise self._not_here("version that old")
        return found[-1]

    def history(self, newest: int, limit: int | None) -> Iterator[Published]:
        published = [_published(commit) for commit, state in self._states() if state.version <= newest]
        yield from published[::-1][:limit]

    def published_as(self, key: str) -> Published | None:
        found = (_published(commit) for commit, _ in self._states())
        return next((each for each in found if each.notes.idempotency_key == key), None)

    def will_try(self, key: str, version: int) -> None:  # noqa: ARG002
        raise self.read_only()

    def _states(self) -> list[tuple[CopiedCommit, LakeState]]:
        """The newest versions, ascending, with their states; at least one."""
        found: list[tuple[CopiedCommit, LakeState]] = []
        for commit in self._copy.chain():
            rows = {key: Row.from_json(key, fields) for key, fields in (commit.rows or {}).items()}
            found.append((commit, LakeState(commit.version, commit.timestamp_ns, rows)))
        if not found:
            kind = self._marker.history
            raise InvalidInputError(
                f"This lake keeps its history in a {kind} store, and its folder has no copy of it.",
                table=self._root.root,
                hint=f'Give the address of the store: conroi.connect(uri, store="{kind}://…").',
            )
        return found

    def _not_here(self, what: str) -> NotFoundError:
        return NotFoundError(
            f"The folder of the lake has no {what}; only its store has the whole history.",
            table=self._root.root,
            hint=f'Open the lake with store="{self._marker.history}://…".',
        )


def _published(commit: CopiedCommit) -> Published:
    changes = commit.changes
    return Published(
        version=commit.version,
        timestamp=utc_time(commit.timestamp_ns),
        notes=CommitMetadata.of(commit.notes),
        uuid=commit.uuid,
        changes=None
        if changes is None
        else {key: None if fields is None else Row.from_json(key, fields) for key, fields in changes.items()},
        operation="Update" if commit.uuid else "Unknown",
    )


_log = logging.getLogger(__name__)

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

    def add_whole(self, version: int, timestamp_ns: int, rows: Mapping[str, JsonRow]) -> None:
        """Ensure that this version can be read from the folder, also if others may delete what is older."""
        try:
            found = self.chain()
        except CorruptionError:
            found = []
        if version and (not found or found[-1].version < version):
            self._put(CopiedCommit(version, timestamp_ns, rows=rows))
            self._newest = max(self._newest, version)

    def add(self, commit: CopiedCommit) -> bool:
        """Write the file of a published version, after those before it. Best effort: the next writer checks it."""
        try:
            self._put(commit)
            self._newest = max(self._newest, commit.version)
            if commit.rows is not None:
                self._delete_before(commit.version - FULL_EVERY)
        except StoreError as error:
            _log.info("version %d of %s is not in its folder yet: %s", commit.version, self._root.root, error)
            return False
        return True

    def replace(self, commit: CopiedCommit) -> None:
        """Start again with this version; newer files belong to another lake, or to lost commits."""
        newer = [_path(version) for version in self.versions() if version > commit.version]
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
        self._root.delete([_path(old) for old in self.versions() if old < version])

    # ------------------------------------------------------------------------ reading

    def chain(self) -> list[CopiedCommit]:
        """The newest versions, ascending, each with all rows; none if the folder has no copy of this lake."""
        for _ in range(_ROUNDS):
            versions = self.versions()
            try:
                return _with_rows(self._chain(versions))
            except NotFoundError:  # deleted since it was listed, because newer ones are there
                continue
        raise CorruptionError(
            "The copy of the lake's state in its folder has gaps.",
            table=self._root.root,
            hint="Open the lake with store=. If this is a copy of a lake, copy the folder again.",
        )

    def versions(self) -> list[int]:
        """The versions that have a file, ascending."""
        names = (path.rpartition("/")[2].partition(".") for path in self._root.list_names(REPLICA_DIR))
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
        except (CorruptionError, ValueError, KeyError, TypeError, OverflowError) as error:
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
    return f"{REPLICA_DIR}/{version:020d}.json"
