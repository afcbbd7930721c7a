"""Readers of small files beside the versions and of rows in a store: each file is put into memory, then read."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping

from google.protobuf.message import DecodeError

from conroi.catalog.folders import MARKER, created_in, marker
from conroi.catalog.replica_store import LakeCopy
from conroi.catalog.rows import Row
from conroi.catalog.sql_queries import LakeCommit
from conroi.catalog.sql_store import _published, _row
from conroi.commit.fairness import _asked_for
from conroi.environment import SYSTEM
from conroi.errors import ConroiError
from conroi.format import lance_pb2 as pb
from conroi.format.json import encode_document
from conroi.format.keyfilter import bloom_filter, incomparable_filter, may_intersect
from conroi.format.on_disk import (
    BRANCHES_DIR,
    COLLECTED_DIR,
    CREATED_MARK,
    EXPIRED_DIR,
    LEASES_DIR,
    REFS_DIR,
    REPLICA_DIR,
    RESTORING_DIR,
    VERSION_HINT_PATH,
)
from conroi.maintenance.expiry import held_by_refs
from conroi.snapshots.branch_names import BranchNames
from conroi.snapshots.snapshot import TableStorage
from conroi.snapshots.tags import Tags
from conroi.storage import open_objects
from conroi.storage.objects import ObjectInfo, Objects
from conroi.testing import WrappedObjects
from conroi.versions.folder import FolderVersions
from conroi.versions.retention import being_restored, collected_until_ns, leased, leases, retention_of, watermark
from tests.fuzz.target import Target, text_of

_A_DAY_NS = 86_400 * 10**9
_SAMPLE = bloom_filter([0], [])


class _OneFile(WrappedObjects):
    """A storage with one file, whose listings have no order: every reader of the file looks at it."""

    def __init__(self, path: str, data: bytes) -> None:
        super().__init__(_NOTHING)
        self._path, self._data = path, data

    @property
    def is_listing_ordered(self) -> bool:
        return False

    def get(self, path: str) -> bytes:
        return self._data if path == self._path else self.inner.get(path)

    def head(self, path: str) -> ObjectInfo | None:
        return ObjectInfo(path, len(self._data), _A_DAY_NS) if path == self._path else None

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        if self._path.startswith(f"{prefix}/"):
            yield ObjectInfo(self._path, len(self._data), _A_DAY_NS)

    def list_names(self, prefix: str, *, after: str | None = None) -> Iterator[str]:
        return (info.path for info in self.list(prefix, after=after))


_NOTHING = open_objects(f"memory://fuzz-{uuid.uuid4().hex}")


def _files(objects: Objects) -> TableStorage:
    return TableStorage(objects, FolderVersions(objects), SYSTEM)


def _stored(path: str, read: Callable[[Objects], object]) -> Callable[[bytes], object]:
    return lambda data: read(_OneFile(path, data))


def _named(folder: str, read: Callable[[Objects], object]) -> Callable[[bytes], object]:
    """The input is the name of the file, which is empty."""

    def run(data: bytes) -> None:
        name = text_of(data).replace("/", "_")
        read(_OneFile(f"{folder}/{name or '_'}", b"{}"))

    return run


def _refs(objects: Objects) -> None:
    held_by_refs(_files(objects), _A_DAY_NS)
    Tags(_files(objects), 7).list()


def _retention(objects: Objects) -> None:
    for version in (0, 3, 1 << 62):
        retention_of(objects, version)
    watermark(objects)


def _names_of_retention(objects: Objects) -> None:
    _retention(objects)
    being_restored(objects)
    collected_until_ns(objects)
    leased(objects, _A_DAY_NS)
    list(leases(objects, _A_DAY_NS))


def _key_filter(data: bytes) -> None:
    theirs = pb.KeyExistenceFilter()
    try:
        theirs.ParseFromString(data)
    except DecodeError as error:  # a transaction with it is refused by the decoder of transactions
        raise ConroiError("no filter") from error
    for mine in (_SAMPLE, incomparable_filter([0]), theirs):
        may_intersect(mine, theirs)
        may_intersect(theirs, mine)


def _commit(*, notes: bytes = b"{}", changes: bytes = b"{}") -> None:
    _published(LakeCommit(3, "u", None, text_of(notes), text_of(changes), 10**18))


def _manifest_row(data: bytes) -> None:
    row = _row("t", text_of(data))
    _ = row.pin, row.lineage, row.lock, row.incarnation, row.to_json()


_TAG = {"branch": None, "version": 3, "createdAt": "2026-11-18T00:00:00Z", "updatedAt": "x", "manifestSize": 7}
_LANCE_BRANCH = {"parentBranch": None, "parentVersion": 3, "createAt": 1_700_000_000, "manifestSize": 7}
_BRANCH = {
    "id": "i",
    "branch": "b-1",
    "parent": "main",
    "parentVersion": 3,
    "createdAt": "2026-11-18T00:00:00+00:00",
    "lineage": [["main", 3]],
}
_COPY = {
    "lake": "l",
    "version": 3,
    "timestamp_ns": 1,
    "uuid": "u",
    "notes": {"conroi.message": "m"},
    "changes": {"t": ["table", "t.lance", "{}", None]},
    "rows": {"t": ["table", "t.lance", "{}", None]},
}
_PIN = {"conroi.version": "7", "conroi.manifest": "_versions/7.manifest", "conroi.transaction": "u", "conroi.lock": "9"}
_ROW = Row("t", "table", "t.lance", json.dumps(_PIN))
_NOTE = f"{EXPIRED_DIR}/{7:020d}.x"


def _both(content: Mapping[str, object]) -> tuple[bytes, bytes]:
    """As we write it, and without a checksum, so that mutations of values get through."""
    return json.dumps(content).encode(), encode_document(content)


TARGETS: Mapping[str, Target] = {
    "tag": Target(_stored(f"{REFS_DIR}/tags/x.json", _refs), _both(_TAG)),
    "branch of Lance": Target(_stored(f"{REFS_DIR}/branches/x.json", _refs), _both(_LANCE_BRANCH)),
    "branch of a lake": Target(
        _stored(f"{BRANCHES_DIR}/x/{1:020d}.json", lambda objects: list(BranchNames(objects).all())), _both(_BRANCH)
    ),
    "hint": Target(
        _stored(VERSION_HINT_PATH, lambda objects: FolderVersions(objects)._hinted()), _both({"version": 7})
    ),
    "note of expiry": Target(_stored(_NOTE, _retention), _both({"versions": [[1, 3], [5, 7]]})),
    "name of a note of expiry": Target(
        _named(EXPIRED_DIR, _names_of_retention), (b"00000000000000000007-u", b"00000000000000000007.u")
    ),
    "name of a sweep": Target(_named(COLLECTED_DIR, _names_of_retention), (b"00000000000000000007",)),
    "name of a restored version": Target(_named(RESTORING_DIR, _names_of_retention), (b"7-u",)),
    "name of a lease": Target(_named(LEASES_DIR, _names_of_retention), (b"7-60-b8ec0968-3713-4d97-8dbc-219688a7b73c",)),
    "lease": Target(
        _stored(f"{LEASES_DIR}/7-60-b8ec0968-3713-4d97-8dbc-219688a7b73c", _names_of_retention), (b'{"holder": "h:1"}',)
    ),
    "priority token": Target(_asked_for, _both({"needs_s": 1.5})),
    "mark of a table": Target(
        _stored(CREATED_MARK, lambda objects: created_in(objects, "t.lance")),
        _both({"table": "i", "folder": "t.lance"}),
    ),
    "marker of a store": Target(_stored(MARKER, marker), _both({"history": "sqlite", "lake": "l"})),
    "copy of a commit": Target(
        _stored(f"{REPLICA_DIR}/{3:020d}.json", lambda objects: LakeCopy(objects, "l").chain()), _both(_COPY)
    ),
    "notes in a SQL store": Target(lambda data: _commit(notes=data), (b'{"conroi.message": "m"}',)),
    "changes in a SQL store": Target(
        lambda data: _commit(changes=data), (b'{"t": ["table", "t.lance", "{}", null], "u": null}',)
    ),
    "row in a SQL store": Target(_manifest_row, (json.dumps(_ROW.to_json()).encode(),)),
    "key filter": Target(_key_filter, (_SAMPLE.SerializeToString(), incomparable_filter([0]).SerializeToString())),
}
