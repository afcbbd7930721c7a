"""Moving a table under an external store, and out of it again."""

from __future__ import annotations

import os
from collections.abc import Mapping

from conroi.errors import NotFoundError, TooMuchContention, about
from conroi.stores.addresses import open_records
from conroi.stores.external_versions import ExternalVersions
from conroi.stores.objects import open_objects
from conroi.stores.records import RecordStore
from conroi.stores.versions import FolderVersions

_ROUNDS = 5


def attach(
    uri: str | os.PathLike[str], store: str | RecordStore, *, storage_options: Mapping[str, str] | None = None
) -> int:
    """Put a table under a store, which from now on knows its newest version; that version.

    Every writer must give `store=` from now on. A commit by one that does not is found by the next one that does, and
    taken over. Doing it twice is fine.
    """
    objects, records = open_objects(uri, storage_options), open_records(store, storage_options)
    with about(objects.root):
        newest = ExternalVersions(objects, records).latest()
        in_folder = FolderVersions(objects).latest()
        if newest is None or in_folder is None:
            raise NotFoundError(
                f"There is no Lance table at {objects.root}.",
                hint="Make it with conroi.create_table(uri, data, store=…), which puts it under the store at once.",
            )
        if in_folder.version > newest.version:  # somebody wrote past the store
            ExternalVersions(objects, records).adopt(newest.version)
        return max(newest.version, in_folder.version)


def detach(
    uri: str | os.PathLike[str], store: str | RecordStore, *, storage_options: Mapping[str, str] | None = None
) -> int:
    """Take a table out of a store, with its newest version completed; that version, or 0 if the store did not know it.

    Stop writing with `store=` first: whoever opens the table with the store again puts it back under it. A table whose
    folder is gone is forgotten.
    """
    objects, records = open_objects(uri, storage_options), open_records(store, storage_options)
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
            "Others go on committing through the store.", hint="Stop them, then detach again.", attempts=_ROUNDS
        )
