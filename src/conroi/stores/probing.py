"""Probe for conditional writes: verify that the storage creates a name only if it is free. Commits depend on it.

An S3 server that ignores the condition reports success to every writer of a version, and rows are lost. So the first
commit of a process in a bucket sends one more conditional put, of its own transaction file, which already exists. The
response must be that the name is taken.
"""

from __future__ import annotations

from conroi.environment import Environment
from conroi.errors import ConroiError, UnsupportedError
from conroi.stores.objects import NameTaken, Objects, plain_objects

PROBE_DIR = "_conroi"
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
    except NameTaken:
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
    path = f"{PROBE_DIR}/probe-{environment.new_uuid()}"
    try:
        objects.put_if_absent(path, b"first")
    except (ConroiError, NameTaken):
        return None
    try:
        objects.put_if_absent(path, b"second")
    except NameTaken:
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
