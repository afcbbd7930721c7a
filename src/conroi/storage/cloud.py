"""Object stores (S3, Google Cloud Storage, Azure) by obstore, and the probe that they support conditional writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TypeVar

import obstore
from obstore.exceptions import BaseError

from conroi.environment import SYSTEM, Environment
from conroi.errors import ConroiError, InvalidInputError, NotFoundError, UnsupportedError
from conroi.format.naming import check_path
from conroi.format.on_disk import OWN_DIR
from conroi.storage.cloud_options import (
    OBSTORE_ERRORS,
    CloudStore,
    StorageOptions,
    is_in_progress,
    is_past_the_end,
    is_range_ignored,
    open_store,
    read_options,
    translate,
)
from conroi.storage.location import CloudLocation
from conroi.storage.objects import (
    PIECE_BYTES,
    ObjectExists,
    ObjectInfo,
    Objects,
    Reach,
    own_reach,
    pieces,
    plain_objects,
)
from conroi.storage.parallel import ProcessBound

T = TypeVar("T")
_CHUNK = 200
CONFLICT_ATTEMPTS = 7
"""Maximum number of requests while the server reports that another one is in progress."""
CONFLICT_PAUSE_S = 0.01
"""Upper bound of the first pause between two of them, in seconds; it doubles."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class CloudObjects:
    """The files of one table in a bucket.

    Reads and plain writes are retried a few times when the server does not respond. A conditional write is sent once:
    after a lost response a retry would find its own file and report the name as taken. Only a response that another
    conditional request is in progress (HTTP 409) is followed by a retry, after a pause.
    """

    is_local = False

    def __init__(
        self,
        location: CloudLocation,
        storage_options: Mapping[str, str],
        environment: Environment = SYSTEM,
        reach: Reach | None = None,
    ) -> None:
        self._environment = environment
        self.location = location
        self.root = location.uri()
        self.reach = reach or own_reach(self.root)
        self.storage_options: StorageOptions = read_options(storage_options)
        self.bucket = location.scheme, location.authority, _endpoint(self.storage_options)
        """The bucket, and the server if the options name it."""
        self._store = open_store(location, self.storage_options, retries=True)
        self._store_once = open_store(location, self.storage_options, retries=False)
        # S3 Express (directory buckets) lists in no order and knows no starting point.
        self.is_listing_ordered = not (location.scheme == "s3" and location.authority.endswith("--x-s3"))

    def __repr__(self) -> str:
        return f"CloudObjects({self.root!r})"

    def __reduce__(self) -> tuple[type[CloudObjects], tuple[CloudLocation, dict[str, str]], dict[str, Reach]]:
        return CloudObjects, (self.location, dict(self.storage_options)), {"reach": self.reach}

    def get(self, path: str) -> bytes:
        return self._ask("read", path, lambda: self._store.get(path).bytes().to_bytes())

    def get_range(self, path: str, start: int, end: int) -> bytes:
        if not 0 <= start <= end:
            raise InvalidInputError(f"There are no bytes {start} to {end} in a file")
        if start == end:
            return b""
        return self._ask("read", path, lambda: self._range(path, start, end))

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        return self._ask("read", path, lambda: self._tail(path, length))

    def head(self, path: str) -> ObjectInfo | None:
        try:
            return self._ask("look at", path, lambda: _info(self._store.head(path)))
        except NotFoundError:
            return None

    def put(self, path: str, data: bytes) -> None:
        self._ask("write", path, lambda: self._store.put(path, data, use_multipart=False))

    def put_best_effort(self, path: str, data: bytes) -> None:
        self.put(path, data)

    def put_unique(self, path: str, data: bytes) -> None:
        self.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._ask("create", path, lambda: self._store_once.put(path, data, mode="create", use_multipart=False))

    def rename_if_absent(self, source: str, target: str) -> None:
        self.copy_if_absent(source, target)
        self.delete([source])

    def copy(self, source: str, target: str) -> None:
        check_path(source)
        self._ask("copy to", target, lambda: self._store.copy(source, target), source)

    def copy_if_absent(self, source: str, target: str) -> None:
        # S3 itself cannot copy under a condition; its conditional put can carry the bytes.
        if self.location.scheme == "s3":
            self.put_if_absent(target, self.get(source))
        else:
            check_path(source)
            self._ask("copy to", target, lambda: self._store_once.copy(source, target, overwrite=False), source)

    def copy_from(self, source: Objects, path: str, there: str | None = None) -> None:
        there = there or path
        if isinstance(source, CloudObjects) and self._shares_bucket_with(source):
            old, new = source.location.key_of(there), self.location.key_of(path)
            self._ask("copy to", path, lambda: self._bucket.copy(old, new), path)
            return
        # The file appears when the writer is closed: if the source fails half way, it never does.
        writer = self._ask("write", path, lambda: obstore.open_writer(self._store, path, buffer_size=PIECE_BYTES))
        for piece in pieces(source, there):
            self._ask("write", path, lambda piece=piece: writer.write(piece))
        self._ask("write", path, writer.close)

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            check_path(path)
        if not paths:
            return
        try:
            self._ask("delete", paths[0], lambda: self._store.delete(list(paths)))
        except NotFoundError:
            if len(paths) > 1:
                for path in paths:
                    self.delete([path])

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        folder, offset = prefix.strip("/"), after if self.is_listing_ordered else None
        pages = self._ask(
            "list", folder or ".", lambda: self._store.list(folder or None, offset=offset, chunk_size=_CHUNK)
        )
        while True:
            page = self._ask("list", folder or ".", lambda: next(pages, None))
            if page is None:
                return
            for found in page:
                if after is None or found["path"] > after:
                    yield _info(found)

    def list_names(self, prefix: str, *, after: str | None = None) -> Iterator[str]:
        return (info.path for info in self.list(prefix, after=after))

    def sync(self, paths: Sequence[str]) -> None:
        """No-op: an object store responds when the bytes are durable."""

    def pylance_uri(self, path: str = "") -> str:
        return self.location.uri(path)

    @cached_property
    def _bucket(self) -> CloudStore:
        """The whole bucket: copying between tables goes beyond the one root."""
        return open_store(replace(self.location, key=""), self.storage_options, retries=True)

    def _shares_bucket_with(self, other: CloudObjects) -> bool:
        mine, theirs = self.location, other.location
        same_place = (mine.scheme, mine.authority) == (theirs.scheme, theirs.authority)
        return same_place and dict(self.storage_options) == dict(other.storage_options)

    def _range(self, path: str, start: int, end: int) -> bytes:
        try:
            return self._store.get_range(path, start=start, end=end).to_bytes()
        except BaseError as error:
            if is_past_the_end(error):
                return b""
            if not is_range_ignored(error):
                raise
        return self._store.get(path).bytes().to_bytes()[start:end]

    def _tail(self, path: str, length: int) -> tuple[bytes, int]:
        if self.location.scheme in ("az", "abfss"):  # Azure does not know "the last n bytes"
            size = self._store.head(path)["size"]
            start = max(0, size - length)
            return self._range(path, start, size) if start < size else b"", size
        try:
            answer = self._store.get(path, options={"range": {"suffix": length}})
            return answer.bytes().to_bytes(), answer.meta["size"]
        except BaseError as error:
            if is_past_the_end(error):  # an empty file has no last bytes
                return b"", 0
            if not is_range_ignored(error):
                raise
        data = self._store.get(path).bytes().to_bytes()
        return data[max(0, len(data) - length) :], len(data)

    def _ask(self, verb: str, path: str, request: Callable[[], T], source: str | None = None) -> T:
        check_path(path)
        _OBSTORE.enter(self.root)
        attempt = 0
        while True:
            attempt += 1
            try:
                return request()
            except OBSTORE_ERRORS as error:
                problem = translate(error, verb, path, self.root, source)
                may_pass = is_in_progress(error) and attempt < CONFLICT_ATTEMPTS
            if not may_pass:
                # Raised out here, so that the original, which may quote credentials, is not chained to it.
                raise problem
            self._environment.sleep(self._environment.uniform(0.0, CONFLICT_PAUSE_S * (1 << attempt)))


_OBSTORE = ProcessBound("used an object store", "opens a table or lake on an object store")


def _endpoint(options: Mapping[str, str]) -> str:
    return next((value for name, value in sorted(options.items()) if "endpoint" in name), "")


def _info(found: obstore.ObjectMeta) -> ObjectInfo:
    age = found["last_modified"] - _EPOCH
    modified_ns = ((age.days * 86_400 + age.seconds) * 1_000_000 + age.microseconds) * 1_000
    return ObjectInfo(found["path"], found["size"], modified_ns)


_proven: set[object] = set()
"""The buckets of which this process has seen that they keep conditions."""


def require_conditions(objects: Objects, path: str, data: bytes) -> None:
    """UnsupportedError if the storage would overwrite `path`, a file of ours that is there with this data.

    One request for each bucket and process. Local disks need none.
    """
    bucket = getattr(plain_objects(objects), "bucket", None)
    if bucket is None or bucket in _proven:
        return
    try:
        objects.put_if_absent(path, data)
    except ObjectExists:
        _proven.add(bucket)
        return
    raise UnsupportedError(
        "This storage ignores conditional writes: it replaced a file that was to be created only if it is absent. "
        "Concurrent commits would overwrite each other, so nothing was committed.",
        table=objects.root,
        hint="Keep the versions in a database: store='postgresql://…', store='sqlite:///…' or store='dynamodb://…'; or "
        "give every writer of a single table the same commit_lock=.",
    )


def keeps_conditions(objects: Objects, environment: Environment) -> bool | None:
    """Try it with a small file of our own, which is deleted again; None if this client may not write here."""
    path = f"{OWN_DIR}/probe-{environment.new_uuid()}"
    try:
        objects.put_if_absent(path, b"first")
    except (ConroiError, ObjectExists):
        return None
    try:
        objects.put_if_absent(path, b"second")
    except ObjectExists:
        return True
    except ConroiError:
        return None
    else:
        return False
    finally:
        _discard(objects, path)


def _discard(objects: Objects, path: str) -> None:
    try:
        objects.delete([path])
    except ConroiError:
        return  # it does no harm
