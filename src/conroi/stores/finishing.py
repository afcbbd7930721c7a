"""Finalize step: put a manifest under its final name after a store has decided which commit owns the version."""

from __future__ import annotations

from dataclasses import dataclass

from conroi.errors import ConroiError, StoreError, StoreUnavailable
from conroi.format.manifest_file import decode_manifest_file
from conroi.format.naming import parse_transaction_name
from conroi.format.transaction import decode_transaction
from conroi.stores.objects import NameTaken, Objects


@dataclass(frozen=True, slots=True)
class FinalPut:
    """The conditional put; on storage that refuses conditions, look and then put.

    Between the look and the put only a process that completes the same version can write it, with the same bytes.
    """

    def put_new(self, objects: Objects, path: str, data: bytes) -> None:
        try:
            objects.put_if_absent(path, data)
        except StoreUnavailable:
            raise
        except StoreError:
            if objects.head(path) is not None:
                raise NameTaken(path) from None
            objects.put(path, data)


def is_same_commit(mine: bytes, theirs: bytes) -> bool:
    """Whether two manifest files are of one transaction."""
    if mine == theirs:
        return True
    ids = {_transaction_id(mine), _transaction_id(theirs)}
    return len(ids) == 1 and None not in ids


def _transaction_id(data: bytes) -> str | None:
    try:
        file = decode_manifest_file(data)
        if file.transaction is not None:
            return decode_transaction(file.transaction).uuid
        named = parse_transaction_name(file.manifest.head.transaction_file)
    except ConroiError:
        return None
    return None if named is None else str(named[1])
