"""Every decoder and reader of foreign bytes, with valid inputs to start from."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import numpy as np
from pyroaring import BitMap

from conroi.catalog.rows import Row
from conroi.catalog.state import decode_records
from conroi.format import lance_pb2 as pb
from conroi.format.arrow_types import simple_type
from conroi.format.deletions import decode_deletions, encode_deletions
from conroi.format.json import decode_document, encode_document
from conroi.format.manifest import Manifest, validate_manifest
from conroi.format.manifest_file import (
    decode_inline_transaction,
    decode_manifest_file,
    encode_manifest_file,
    transaction_at_front,
)
from conroi.format.naming import check_path, check_relative_path, parse_manifest_name, parse_staged_name
from conroi.format.on_disk import LAYOUT_PROPERTY, RECORDS_PROPERTY
from conroi.format.roaring import decode_bitmap, encode_bitmap
from conroi.format.row_ids import (
    constant_versions,
    count_row_ids,
    decode_row_ids,
    decode_versions,
    encode_row_ids,
    fresh_row_ids,
)
from conroi.format.schema import schema_from_fields
from conroi.format.transaction import Transaction, decode_transaction, encode_transaction
from conroi.inserts.fence import note_of
from conroi.storage.location import parse_location
from tests.fuzz import spark_messages, stored
from tests.fuzz.target import Target, text_of

ROWS = 20
_HEAD = [
    pb.Field(id=0, parent_id=-1, name="id", logical_type="int64"),
    pb.Field(id=1, parent_id=-1, name="s", logical_type="struct", nullable=True),
    pb.Field(id=2, parent_id=1, name="t", logical_type="timestamp:us:UTC", nullable=True),
]
_TRANSACTION = Transaction(
    pb.Transaction(
        read_version=2,
        uuid="b8ec0968-3713-4d97-8dbc-219688a7b73c",
        transaction_properties={"k": "v"},
        append=pb.Transaction.Append(fragments=[pb.DataFragment(physical_rows=7)]),
    )
)
_FRAGMENT = pb.DataFragment(
    id=0,
    physical_rows=ROWS,
    files=[pb.DataFile(path="x.lance", fields=[0, 2], column_indices=[0, 1])],
    inline_row_ids=fresh_row_ids(0, ROWS),
)
_INDEX = pb.IndexMetadata(
    uuid=pb.UUID(uuid=bytes(range(16))), name="i", fields=[0], fragment_bitmap=BitMap([0]).serialize()
)
_MANIFEST = Manifest(
    pb.Manifest(
        fields=_HEAD,
        fragments=[_FRAGMENT],
        version=3,
        timestamp={"seconds": 1_700_000_000},
        max_fragment_id=0,
        transaction_file=_TRANSACTION.file_name,
        data_format=pb.DataFormat(file_format="lance", version="2.2"),
    ).SerializeToString(deterministic=True),
    [
        pb.IndexMetadata(
            uuid=pb.UUID(uuid=bytes(range(16))), name="i", fields=[0], fragment_bitmap=BitMap([0]).serialize()
        )
    ],
)
_SEALED = encode_manifest_file(_MANIFEST, encode_transaction(_TRANSACTION))
_DELETED = BitMap([1, 5, 7])
_NOTES = {"conroi.version": "7", "conroi.manifest": "_versions/1", "conroi.transaction": "u", "conroi.lock": "9"}
_LINEAGE = json.dumps([["t.lance", 3]])


_text = text_of


def _manifest(data: bytes) -> None:
    file = decode_manifest_file(data)
    validate_manifest(file.manifest)
    schema_from_fields(file.manifest.fields)
    if file.transaction is not None:
        decode_transaction(file.transaction)


def _deletions(kind: pb.DeletionFile.FileType) -> Callable[[bytes], object]:
    file = pb.DeletionFile(file_type=kind, num_deleted_rows=len(_DELETED))
    return lambda data: decode_deletions(data, file, physical_rows=ROWS)


def _row(data: bytes) -> None:
    row = Row("t", "table", "t.lance", _text(data))
    _ = row.notes, row.pin, row.lineage, row.lock, row.repaired_in, row.incarnation
    note_of(row)


def _document(data: bytes) -> None:
    document = decode_document(data, "it")
    document.integer("version")
    document.pairs("lineage")
    document.ranges("versions")
    document.text("id")


def _fields(data: bytes) -> None:
    simple_type(_text(data))


def _names(data: bytes) -> None:
    text = _text(data)
    parse_manifest_name(text)
    parse_staged_name(text)


TARGETS: Mapping[str, Target] = {
    "manifest": Target(_manifest, (_SEALED, bytes(16) + _SEALED[16:])),
    "inline transaction": Target(decode_inline_transaction, (_SEALED,)),
    "front of a manifest": Target(transaction_at_front, (_SEALED,)),
    "transaction": Target(
        decode_transaction, (encode_transaction(_TRANSACTION), _TRANSACTION.wire.SerializeToString())
    ),
    "deletions in Arrow": Target(_deletions(pb.DeletionFile.ARROW_ARRAY), (encode_deletions(_DELETED)[1],)),
    "deletions in a bitmap": Target(
        _deletions(pb.DeletionFile.BITMAP),
        (encode_deletions(_DELETED, force_bitmap=True)[1], encode_bitmap(_DELETED)),
    ),
    "bitmap": Target(
        lambda data: decode_bitmap(data, what="it"),
        (encode_bitmap(BitMap(range(9000))), encode_bitmap(BitMap(range(300_000)), has_runs=True)),
    ),
    "row ids": Target(
        lambda data: decode_row_ids(data, rows=ROWS),
        (fresh_row_ids(0, ROWS), encode_row_ids(np.arange(0, 2 * ROWS, 2, dtype=np.uint64))),
    ),
    "count of row ids": Target(count_row_ids, (fresh_row_ids(0, ROWS),)),
    "row versions": Target(lambda data: decode_versions(data, rows=ROWS), (constant_versions(3, ROWS),)),
    "document": Target(
        _document,
        (
            encode_document({"version": 7, "lineage": [["a", 1]], "versions": [[1, 2]], "id": "x"}),
            b'{"version": 7, "lineage": [["a", 1]], "versions": [[1, 2]], "id": "x"}',
        ),
    ),
    "row of a lake": Target(
        _row,
        (
            json.dumps(_NOTES).encode(),
            json.dumps({**_NOTES, "conroi.lineage": _LINEAGE, "conroi.insert": '["a",1,2,true]'}).encode(),
        ),
    ),
    "records of a commit": Target(
        lambda data: decode_records({RECORDS_PROPERTY: _text(data), LAYOUT_PROPERTY: "x"}),
        (json.dumps({"t": ["table", "t.lance", "{}", None], "u": None}).encode(),),
    ),
    "logical type": Target(
        _fields, (b"timestamp:us:UTC", b"decimal:128:38:10", b"fixed_size_list:float:16", b"dict:string:int32:false")
    ),
    "names of manifests": Target(_names, (b"18446744073709551614.manifest", b"7.manifest", b"7.manifest-0-0-0")),
    "path in a manifest": Target(lambda data: check_relative_path(_text(data)), (b"a/b.lance",)),
    "path of a file": Target(lambda data: check_path(_text(data)), (b"data/b.lance",)),
    **stored.TARGETS,
    **spark_messages.TARGETS,
    "address": Target(lambda data: parse_location(_text(data)), (b"s3://bucket/a%20b", b"file:///a/b", b"/a/b")),
}
