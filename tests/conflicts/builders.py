"""A small table and one operation of every kind on it, made by hand from wire messages.

The table: version 5, fragments 0 to 3 with ten rows each, of which fragment 1 has lost row 9; columns a, b, c with the
field ids 0, 1, 2; an index called "old" on a.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any as Anything
from uuid import UUID

from google.protobuf.any_pb2 import Any
from pyroaring import BitMap

from conroi import operations as ops
from conroi.conflicts.facts import Staged
from conroi.conflicts.reason import ConcurrentCommit
from conroi.conflicts.row_merge import VectorKey, vector_key
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest

A, B, C = 0, 1, 2
ROWS = 10
BASE_VERSION = 5
SHARD_S, SHARD_Z = UUID(int=1), UUID(int=2)
KEY_ONE, KEY_TWO = 0b0001, 0b0010  # bits of a filter: one bit for each key


# ---------------------------------------------------------------------------------- fragments
def data_file(path: str, fields: Iterable[int] = (A, B, C)) -> pb.DataFile:
    fields = list(fields)
    return pb.DataFile(
        path=path, fields=fields, column_indices=range(len(fields)), file_major_version=2, file_minor_version=2
    )


def deletion_file(number: int, rows: int, read_version: int = BASE_VERSION) -> pb.DeletionFile:
    return pb.DeletionFile(
        file_type=pb.DeletionFile.BITMAP, read_version=read_version, id=number, num_deleted_rows=rows
    )


def fragment(
    number: int, *, deletions: pb.DeletionFile | None = None, files: Iterable[pb.DataFile] = ()
) -> pb.DataFragment:
    files = list(files) or [data_file(f"{number}.lance")]
    return pb.DataFragment(id=number, files=files, deletion_file=deletions, physical_rows=ROWS)


def new_fragment(name: str, rows: int = 1) -> pb.DataFragment:
    return pb.DataFragment(files=[data_file(name)], physical_rows=rows)


BASE_DELETIONS = {1: BitMap([9])}


def base_fragments() -> list[pb.DataFragment]:
    return [fragment(n, deletions=deletion_file(100, 1, 4) if n == 1 else None) for n in range(4)]


def schema() -> list[pb.Field]:
    return [
        pb.Field(name=name, id=number, parent_id=-1, logical_type="int64", nullable=True)
        for number, name in enumerate("abc")
    ]


def manifest(version: int, fragments: Iterable[pb.DataFragment], indices: Iterable[pb.IndexMetadata] = ()) -> Manifest:
    full = pb.Manifest(fields=schema(), fragments=fragments, version=version, max_fragment_id=9)
    return Manifest(full.SerializeToString(), tuple(indices))


def base() -> Manifest:
    return manifest(BASE_VERSION, base_fragments(), [OLD_INDEX])


# ------------------------------------------------------------------------------------ indices
def index(
    name: str,
    number: int,
    fields: Iterable[int],
    covers: Iterable[int] | None,
    details: bytes = b"",
    kind: str = "BTree",
) -> pb.IndexMetadata:
    return pb.IndexMetadata(
        uuid=pb.UUID(uuid=UUID(int=number).bytes),
        name=name,
        fields=fields,
        dataset_version=BASE_VERSION,
        fragment_bitmap=b"" if covers is None else BitMap(covers).serialize(),
        index_details=Any(type_url=f"/lance.table.{kind}IndexDetails", value=details),
    )


OLD_INDEX = index("old", 77, [A], [0, 1, 2, 3])


def mem_wal_index(*marks: tuple[UUID, int]) -> pb.IndexMetadata:
    details = pb.MemWalIndexDetails(compacted_sstables=[mark(*item) for item in marks])
    return index("__lance_mem_wal", 88, [], None, details.SerializeToString(), "MemWal")


def mark(shard: UUID, generation: int) -> pb.CompactedSsTable:
    return pb.CompactedSsTable(shard_id=pb.UUID(uuid=shard.bytes), generation=generation)


def reuse_index(number: int, *versions: int, external: bool = False) -> pb.IndexMetadata:
    """A fragment-reuse index with an entry for each version; entry v is about a new fragment 100 + v."""
    entries = [
        pb.FragmentReuseVersion(
            dataset_version=v,
            groups=[pb.FragmentReuseGroup(new_fragments=[pb.FragmentDigest(id=100 + v, physical_rows=ROWS)])],
        )
        for v in versions
    ]
    details = (
        pb.FragmentReuseIndexDetails(external=pb.FragmentReuseExternal(path="details.binpb"))
        if external
        else pb.FragmentReuseIndexDetails(inline=pb.FragmentReuseInline(versions=entries))
    )
    covers = [100 + v for v in versions]
    return index("__lance_frag_reuse", number, [], covers, details.SerializeToString(), "FragmentReuse")


# ---------------------------------------------------------------------------------- operations
def key_filter(bits: int, fields: Iterable[int] = (A,)) -> pb.KeyExistenceFilter:
    bloom = pb.KeyExistenceFilter.Bloom(bitmap=bytes([bits]), num_bits=8, number_of_items=8, probability=0.01)
    return pb.KeyExistenceFilter(field_ids=fields, bloom=bloom)


def delete(number: int, rows: Iterable[int], *, file: int) -> ops.Delete:
    """Delete these rows of one fragment; `file` tells deletion files of different writers apart."""
    all_rows = BASE_DELETIONS.get(number, BitMap()) | BitMap(rows)
    return ops.Delete(updated_fragments=(fragment(number, deletions=deletion_file(file, len(all_rows))),))


def move(number: int, rows: Iterable[int], *, file: int) -> ops.Update:
    """Update these rows of one fragment by moving them to a new one."""
    return ops.Update(
        updated_fragments=delete(number, rows, file=file).updated_fragments,
        new_fragments=(new_fragment(f"moved-{file}.lance"),),
        fields_for_preserving_frag_bitmap=(A, B, C),
    )


def rewrite_column(number: int, column: int, rows: Iterable[int] | None, *, file: int) -> ops.Update:
    """Update a column of these rows of one fragment in place, by a new column file."""
    before = next(f for f in base_fragments() if f.id == number)
    kept = data_file(f"{number}.lance", [-2 if field == column else field for field in (A, B, C)])
    after = fragment(number, files=[kept, data_file(f"column-{file}.lance", [column])])
    if before.HasField("deletion_file"):
        after.deletion_file.CopyFrom(before.deletion_file)
    bitmaps = {} if rows is None else {number: BitMap(rows).serialize()}
    return ops.Update(
        updated_fragments=(after,),
        fields_modified=(column,),
        update_mode=pb.Transaction.Update.REWRITE_COLUMNS,
        updated_fragment_offset_bitmaps=bitmaps,
    )


def rewrite(*numbers: int, new: Iterable[pb.DataFragment] | None = None) -> ops.Rewrite:
    alive = sum(ROWS - len(BASE_DELETIONS.get(number, ())) for number in numbers)
    old = [f for f in base_fragments() if f.id in numbers]
    new = [new_fragment(f"compacted-{numbers[0]}.lance", alive)] if new is None else list(new)
    return ops.Rewrite(groups=(pb.Transaction.Rewrite.Group(old_fragments=old, new_fragments=new),))


def replacement(number: int, column: int, file: str) -> ops.DataReplacement:
    group = pb.Transaction.DataReplacement.Group(fragment_id=number, new_file=data_file(file, [column]))
    return ops.DataReplacement(replacements=(group,))


def overlay(number: int, column: int, rows: Iterable[int], *, by_field: bool = False) -> ops.DataOverlay:
    """Lay values over these rows. The message by hand: 1 the file, 2 the rows or 4 the rows by field, 3 a number."""
    bitmap = BitMap(rows).serialize()
    covers = delimited(4, delimited(1, bitmap)) if by_field else delimited(2, bitmap)
    message = delimited(1, data_file("overlay.lance", [column]).SerializeToString()) + covers + b"\x18\x05"
    return ops.DataOverlay(groups=(pb.Transaction.DataOverlay.Group(fragment_id=number, overlays=[message]),))


def delimited(field: int, content: bytes) -> bytes:
    """A field of bytes as it is on the wire."""
    return bytes([field << 3 | 2, len(content)]) + content


def settings(**changes: Mapping[str, str | None]) -> ops.UpdateConfig:
    maps: dict[str, Anything] = {name: ops.update_map(change) for name, change in changes.items()}
    return ops.UpdateConfig(**maps)


# ------------------------------------------------------------------------------------ meetings
def staged(operation: ops.Operation, rows: Mapping[int, Iterable[int]] | None = None, **flags: Anything) -> Staged:
    affected = None if rows is None else {number: BitMap(offsets) for number, offsets in rows.items()}
    return Staged(operation, base(), affected, **flags)


def winner(operation: ops.Operation, version: int = BASE_VERSION + 1, message: str | None = None) -> ConcurrentCommit:
    properties = {"__lance_commit_message": message} if message else {}
    made = ops.transaction(operation, read_version=BASE_VERSION, uuid=f"uuid-{version}", properties=properties)
    return ConcurrentCommit(
        version, made, operation, timestamp_ns=1_700_000_000_000_000_000, writer="lance 14.0.2", message=message
    )


def head_after(*operations: ops.Operation) -> Manifest:
    """The newest version after row changes, as far as a rebase looks at it: the fragments, by hand."""
    fragments = {f.id: f for f in base_fragments()}
    for operation in operations:
        if isinstance(operation, ops.Delete | ops.Update):
            fragments.update({f.id: f for f in operation.updated_fragments})
        gone = getattr(operation, "deleted_fragment_ids", getattr(operation, "removed_fragment_ids", ()))
        for number in gone:
            del fragments[number]
    return manifest(BASE_VERSION + len(operations), fragments.values(), [OLD_INDEX])


def vectors(*known: tuple[pb.DataFragment, Iterable[int]]) -> dict[VectorKey, BitMap]:
    """The deletion vectors of these states of fragments, and those of the base."""
    at_base = [(f, BASE_DELETIONS[f.id]) for f in base_fragments() if f.id in BASE_DELETIONS]
    return {vector_key(state): BitMap(rows) for state, rows in (*at_base, *known)}
