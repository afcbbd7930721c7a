"""Migration of a table or a lake into an external store, and out of it again."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping

from conroi.catalog.folders import Marker, mark_again, marker
from conroi.catalog.replica_store import CopiedCommit, LakeCopy
from conroi.catalog.sql_publication import Answer, RowPublication
from conroi.catalog.sql_queries import LakeCommit, LakeQueries
from conroi.catalog.sql_tables import open_lake_tables
from conroi.catalog.store import Dependencies
from conroi.environment import SYSTEM
from conroi.errors import InvalidInputError, NotFoundError, TooMuchContention, about
from conroi.format.json import parse_json
from conroi.storage import open_objects
from conroi.storage.objects import Objects
from conroi.versions import open_records, store_kind
from conroi.versions.external import ExternalVersions
from conroi.versions.folder import FolderVersions
from conroi.versions.records import RecordStore, full_key

_ROUNDS = 5


def attach(
    uri: str | os.PathLike[str],
    store: str | RecordStore,
    *,
    storage_options: Mapping[str, str] | None = None,
    as_new: bool = False,
) -> int:
    """Put a table under an external store, which from now on decides its newest version; returns that version.

    Every writer must give `store=` from now on. A commit without it is found by the next writer that gives it, and
    adopted. Idempotent.

    The folder of a lake that was moved gets its history in the store back; its old folder is refused from then on. A
    copy of a lake, or one that the store does not have, becomes a lake of its own at the version that its folder has:
    `as_new` declares a copy in the store of the lake itself.
    """
    objects = open_objects(uri, storage_options)
    found = marker(objects)
    if found is not None:
        with about(objects.root):
            return _Lake(objects, found, _address(store)).attach(as_new=as_new)
    records = open_records(store, storage_options)
    with about(objects.root):
        newest = ExternalVersions(objects, records).latest()
        in_folder = FolderVersions(objects).latest()
        if newest is None or in_folder is None:
            raise NotFoundError(
                f"There is no Lance table at {objects.root}.",
                hint="Make it with conroi.create_table(uri, data, store=…), which puts it under the store at once.",
            )
        if in_folder.version > newest.version:  # written without the store
            ExternalVersions(objects, records).adopt(newest.version)
        return max(newest.version, in_folder.version)


def detach(
    uri: str | os.PathLike[str], store: str | RecordStore, *, storage_options: Mapping[str, str] | None = None
) -> int:
    """Take a table out of a store, with its newest version completed; that version, or 0 if the store did not know it.

    Stop writing with `store=` first: opening the table with the store again attaches it again. The records of a table
    whose folder is gone are deleted.

    A lake that was taken out of its store can be read without one; `attach` puts it under another one.
    """
    objects = open_objects(uri, storage_options)
    found = marker(objects)
    if found is not None:
        with about(objects.root):
            return _Lake(objects, found, _address(store)).detach()
    records = open_records(store, storage_options)
    key, version = records.key_of(objects), 0
    with about(objects.root):
        for _ in range(_ROUNDS):
            newest = records.newest(key)
            if newest is None:
                return version
            version = newest.version
            if next(objects.list_names(""), None) is not None:
                ExternalVersions(objects, records).latest()
            records.forget(key, [record.version for record in records.all(key) if record.version <= version])
        raise TooMuchContention(
            "Other writers keep committing through the store.", hint="Stop them, then detach again.", attempts=_ROUNDS
        )


def _address(store: str | RecordStore) -> str:
    if not isinstance(store, str):
        raise InvalidInputError("This is a lake.", hint="Give the address of a store for lakes.")
    return store


class _Lake:
    """The folder of a lake with a store, and its target store."""

    def __init__(self, objects: Objects, found: Marker, address: str) -> None:
        self._objects = objects
        self._marker = found
        self._key = full_key(objects)
        self._kind = store_kind(address)
        self._tables = open_lake_tables(address)
        # A lake of an older conroi is known by its folder.
        self._lake = found.lake or LakeQueries(self._tables, self._key).lake_at(self._key) or self._key
        self._queries = LakeQueries(self._tables, self._lake)
        self._copy = LakeCopy(objects, self._lake)

    def attach(self, *, as_new: bool) -> int:
        head = self._queries.head()
        if head is not None and head.root == self._key:
            mark_again(self._objects, Marker(self._kind, self._lake))
            return head.version
        copied = self._copy.chain()
        if not copied:
            raise InvalidInputError(
                "The folder of the lake has no copy of its history.",
                hint="It gets one with the first commit of this version of conroi through its store.",
            )
        if head is None or as_new:
            return self._add_as_new(copied[-1])
        if copied[-1].version < head.version:
            raise InvalidInputError(
                f"The folder has the lake up to version {copied[-1].version}, and the store up to {head.version}.",
                hint="This is an older copy of the lake: attach(uri, store, as_new=True) makes it a lake of its own.",
            )
        self._refuse_another(self._lake)
        if not self._tables.move_lake(self._lake, head.root, self._key):
            raise TooMuchContention("Another process attached the lake at the same time.", hint="Look, and try again.")
        return head.version

    def _add_as_new(self, copied: CopiedCommit) -> int:
        """In this order, so that another process can complete the work after a crash."""
        rows = {key: json.dumps(fields, separators=(",", ":")) for key, fields in (copied.rows or {}).items()}
        new_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self._lake} {self._key}"))
        self._refuse_another(new_id)
        self._tables.add_lake(new_id, self._key)
        notes = json.dumps({"message": f"attached at version {copied.version}"})
        commit = LakeCommit(copied.version, str(SYSTEM.new_uuid()), None, notes, json.dumps(copied.rows))
        wanted = RowPublication(0, commit, rows, Dependencies(everything=True))
        if self._tables.publish(new_id, self._key, wanted).answer is not Answer.PUBLISHED:
            _, there = LakeQueries(self._tables, new_id).newest()
            if there is None or (there.version, there.rows) != (copied.version, rows):
                raise self._other_lake()
        mark_again(self._objects, Marker(self._kind, new_id))
        LakeCopy(self._objects, new_id).replace(copied)
        return copied.version

    def _refuse_another(self, lake: str) -> None:
        """The store may have another lake for this folder, from an earlier time."""
        if LakeQueries(self._tables, lake).lake_at(self._key) not in (None, lake):
            raise self._other_lake()

    def _other_lake(self) -> InvalidInputError:
        return InvalidInputError(
            "The store has another lake for this folder.",
            hint="If that one is not needed any more, call conroi.stores.detach(uri, store) first.",
        )

    def detach(self) -> int:
        lake = self._queries.lake_at(self._key)
        if lake is None:
            return 0
        _, state = LakeQueries(self._tables, lake).newest()
        if state is not None and lake == self._lake:
            rows = {
                key: parse_json(content, f"The row of {key!r} in the store of the lake")
                for key, content in state.rows.items()
            }
            self._copy.ensure(state.version, state.timestamp_ns, rows)
        self._tables.remove_lake(lake, self._key)
        return 0 if state is None else state.version
