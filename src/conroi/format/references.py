"""File references of a manifest or a transaction, by name. Pure.

Names, not paths: a file of a clone or a branch is in another folder than its manifest. All these names contain random
ids, so collisions do not happen; a collision would only retain one file too many.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.message import Message

from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.format.naming import data_path, deletion_path, transaction_path
from conroi.format.on_disk import DATA_DIR, DELETIONS_DIR, INDICES_DIR, TRANSACTIONS_DIR

DATA_SUFFIXES = (".lance", ".blob")


def names_in_manifest(manifest: Manifest) -> Iterator[str]:
    """The names of all files that the version needs, its own transaction's included."""
    yield from filter(None, map(name_of, paths_in_manifest(manifest)))


def names_in_transaction(transaction: pb.Transaction) -> Iterator[str]:
    """The names of all files that the change brings in or keeps, whatever kind of change it is."""
    yield from filter(None, map(name_of, paths_in_transaction(transaction)))


def paths_in_manifest(manifest: Manifest) -> Iterator[str]:
    """Where those files are, below the root of the table or of one of its bases; of an index, its folder."""
    if manifest.head.transaction_file:
        yield transaction_path(manifest.head.transaction_file)
    for fragment in manifest.fragments:
        yield from _of_fragment(fragment)
    for index in manifest.indices:
        yield _index_folder(index.uuid)


def paths_in_transaction(transaction: Message) -> Iterator[str]:
    """The same of a change."""
    return (reference.path for reference in references_in_transaction(transaction))


@dataclass(frozen=True, slots=True)
class Reference:
    """A file, or the folder of an index, that a change names."""

    path: str
    """Below the root of the table, or of the base."""
    base_id: int | None = None
    """The base that it is under; None for the table's own folder."""
    may_be_empty: bool = False
    """Whether it is an index that names no files: all of it may be in the manifest."""


def references_in_transaction(transaction: Message) -> Iterator[Reference]:
    """What a change names, each with the base that it is under."""
    if isinstance(transaction, pb.DataFragment):
        for file in transaction.files:
            yield from references_in_transaction(file)
        if transaction.HasField("deletion_file"):
            file = transaction.deletion_file
            yield Reference(deletion_path(transaction.id, file), _base_of(file))
    elif isinstance(transaction, pb.DataFile):
        yield Reference(data_path(transaction.path), _base_of(transaction))
    elif isinstance(transaction, pb.IndexMetadata):
        yield Reference(_index_folder(transaction.uuid), _base_of(transaction), not transaction.files)
    elif isinstance(transaction, pb.Transaction.Rewrite.RewrittenIndex):
        yield Reference(_index_folder(transaction.new_id), may_be_empty=not transaction.new_index_files)
    else:
        for message in _messages_in(transaction):
            yield from references_in_transaction(message)


def _base_of(message: pb.DataFile | pb.DeletionFile | pb.IndexMetadata) -> int | None:
    return message.base_id if message.HasField("base_id") else None


def name_of(path: str) -> str | None:
    """The name by which a file of a table is needed; None if it is of no kind that we know.

    >>> name_of("data/0101ab.lance"), name_of("data/0101ab/1.blob"), name_of("_refs/tags/a.json")
    ('0101ab', '0101ab', None)
    """
    folder, _, rest = path.partition("/")
    if folder == DATA_DIR and rest.endswith(DATA_SUFFIXES):
        # Big values of a data file are beside it, in a folder that is called like it.
        return rest.partition("/")[0].removesuffix(".lance")
    if folder == DELETIONS_DIR and rest.endswith((".arrow", ".bin")):
        return rest
    if folder == TRANSACTIONS_DIR and rest.endswith(".txn"):
        return rest
    if folder == INDICES_DIR and "/" in rest:
        return rest.partition("/")[0]
    return None


def _messages_in(message: Message) -> Iterator[Message]:
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        if isinstance(value, Message):
            yield value
        else:
            yield from value


def _of_fragment(fragment: pb.DataFragment) -> Iterator[str]:
    for file in fragment.files:
        yield data_path(file.path)
    if fragment.HasField("deletion_file"):
        yield deletion_path(fragment.id, fragment.deletion_file)


def _index_folder(message: pb.UUID) -> str:
    name = str(uuid.UUID(bytes=message.uuid)) if len(message.uuid) == 16 else message.uuid.hex()
    return f"{INDICES_DIR}/{name}/"
