"""Read-only catalog store: the copy of a SQL-backed lake's state in its folder, read without the database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from conroi.catalog.heads import Attempt, Published, Seen
from conroi.catalog.records import Notes
from conroi.catalog.rows import Row
from conroi.catalog.state import Changes, LakeState
from conroi.commit.baton import Baton
from conroi.commit.turns import Turns
from conroi.environment import Environment, utc_time
from conroi.errors import InvalidInputError, NotFoundError
from conroi.history import moment_ns
from conroi.stores.lake_copy import CopiedCommit, LakeCopy
from conroi.stores.lake_marker import Marker
from conroi.stores.objects import Objects


class FolderHeads:
    """The newest states that the folder has, at most one commit behind the store."""

    def __init__(self, root: Objects, found: Marker, environment: Environment) -> None:
        self._root = root
        self._marker = found
        self._environment = environment
        self._copy = LakeCopy(root, found.lake or "")
        self._turns = Turns(environment)

    @property
    def turns(self) -> Turns:
        return self._turns

    def baton(self) -> Baton:
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

    def build(self, base: LakeState, changes: Changes, notes: Notes, uuid: str) -> Attempt:  # noqa: ARG002
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
        notes=Notes.of(commit.notes),
        uuid=commit.uuid,
        changes=None
        if changes is None
        else {key: None if fields is None else Row.from_json(key, fields) for key, fields in changes.items()},
        operation="Update" if commit.uuid else "Unknown",
    )
