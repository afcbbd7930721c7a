"""Deletion vector files: the offsets of the deleted rows of a fragment.

Few deletions are an Arrow file with one column, many a roaring bitmap; pylance switches at 5,000. Both forms carry a
checksum (see `conroi.format.checksums`) when conroi wrote them.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from conroi.errors import CorruptionError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.checksums import seal, unseal_end, unseal_inside
from conroi.format.roaring import decode_bitmap, encode_bitmap

SMALLEST_BITMAP_ROWS = 5000
MOST_ARROW_ROWS = 16 * 1024 * 1024
"""No program writes so many rows in this form."""
_WHAT = "deletion file"
_SCHEMA = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
_ARROW_END = struct.Struct("<i6s")  # how long the footer is, and the mark that ends the file


def encode_deletions(deleted: BitMap, *, force_bitmap: bool = False) -> tuple[pb.DeletionFile.FileType, bytes]:
    """The kind of deletion file that fits these rows, and its bytes."""
    if force_bitmap or len(deleted) >= SMALLEST_BITMAP_ROWS:
        content = encode_bitmap(deleted)
        return pb.DeletionFile.BITMAP, content + seal(content)
    return pb.DeletionFile.ARROW_ARRAY, _sealed_arrow(_arrow_file(deleted))


def decode_deletions(data: bytes, file: pb.DeletionFile, *, physical_rows: int | None = None) -> BitMap:
    """The deleted rows in a file, checked against what the manifest says about it."""
    if file.file_type == pb.DeletionFile.BITMAP:
        deleted = decode_bitmap(unseal_end(data, what=_WHAT), what=_WHAT)
    elif file.file_type == pb.DeletionFile.ARROW_ARRAY:
        most = min([MOST_ARROW_ROWS, *(rows for rows in (physical_rows, file.num_deleted_rows) if rows)])
        deleted = _rows_of_arrow_file(unseal_inside(data, what=_WHAT), most)
    else:
        raise UnsupportedError(
            f"The table has a deletion file of kind {file.file_type}, which this version of conroi does not support.",
            hint="Upgrade conroi.",
        )
    _check_against_manifest(deleted, file, physical_rows)
    return deleted


def _check_against_manifest(deleted: BitMap, file: pb.DeletionFile, physical_rows: int | None) -> None:
    # Very old writers did not count the rows; they left 0.
    if file.num_deleted_rows and len(deleted) != file.num_deleted_rows:
        raise _damaged(f"it has {len(deleted)} rows, the manifest says {file.num_deleted_rows}")
    if physical_rows is not None and deleted and deleted.max() >= physical_rows:
        raise _damaged(f"it names row {deleted.max()} of a fragment with {physical_rows} rows")


def _arrow_file(deleted: BitMap) -> bytes:
    rows = pa.array(np.asarray(deleted.to_array(), np.uint32))
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, _SCHEMA, options=options) as writer:
        writer.write(pa.record_batch([rows], schema=_SCHEMA))  # pyright: ignore[reportUnknownMemberType]
    return sink.getvalue().to_pybytes()


def _sealed_arrow(content: bytes) -> bytes:
    """The Arrow file with a seal before its footer, where no offset points to."""
    footer_size, _ = _ARROW_END.unpack(content[-_ARROW_END.size :])
    at = len(content) - _ARROW_END.size - footer_size
    return content[:at] + seal(content) + content[at:]


def _rows_of_arrow_file(content: bytes, most_rows: int) -> BitMap:
    try:
        _check_claims(content, most_rows)
        rows = _row_column(content)
    except (struct.error, pa.ArrowException, OSError, MemoryError) as error:
        raise _damaged(f"it is not a valid Arrow file ({error})") from error
    deleted = BitMap(rows)
    if len(deleted) != len(rows):
        raise _damaged("it names a row twice")
    return deleted


def _check_claims(content: bytes, most_rows: int) -> None:
    """Refuse a batch that says it has more rows or bytes than it can have, before anything is decompressed.

    The footer says where the batch is; its header how many rows it has and where its buffers are; each compressed
    buffer begins with its size. These are flatbuffers, of which only the few fields that matter are looked up.
    """
    (footer_size, _) = _ARROW_END.unpack_from(content, len(content) - _ARROW_END.size)
    footer = len(content) - _ARROW_END.size - footer_size
    if footer_size < 0 or footer < 0:
        raise _damaged("its footer is longer than the file")
    blocks = _field(content, _table(content, footer), 3)
    if blocks is None:
        return  # no batch: refused by the reader
    (block,) = struct.unpack_from("<I", content, blocks)
    at, header_size, body_size = struct.unpack_from("<qixxxxq", content, blocks + block + 4)
    if not 0 <= at <= len(content) or header_size < 0 or body_size < 0 or at + header_size + body_size > len(content):
        raise _damaged("its batch is not inside of it")
    start = at + 8 if content[at : at + 4] == b"\xff\xff\xff\xff" else at + 4
    header = _field(content, _table(content, start), 2)
    batch = None if header is None else _table(content, header)
    length = None if batch is None else _field(content, batch, 0)
    buffers = None if batch is None else _field(content, batch, 2)
    if batch is None or length is None or buffers is None:
        return
    if not 0 <= struct.unpack_from("<q", content, length)[0] <= most_rows:
        raise _damaged(f"it says it has more than {most_rows} rows")
    vector = _table(content, buffers)
    (count,) = struct.unpack_from("<I", content, vector)
    if count > 2:
        raise _damaged("it does not have the one column that it should have")
    if _field(content, batch, 3) is None:
        return
    for number in range(count):
        offset, size = struct.unpack_from("<qq", content, vector + 4 + 16 * number)
        if not 0 <= offset <= body_size or not 0 <= size <= body_size:
            raise _damaged("a buffer is not inside of it")
        if size >= 8 and struct.unpack_from("<q", content, at + header_size + offset)[0] > 4 * most_rows + 64:
            raise _damaged(f"it would need more memory than {most_rows} rows take")


def _table(content: bytes, at: int) -> int:
    """Where a flatbuffer is that is referred to from here."""
    return at + struct.unpack_from("<I", content, at)[0]


def _field(content: bytes, table: int, number: int) -> int | None:
    """Where a field of a flatbuffer's table is; None if it has its default."""
    vtable = table - struct.unpack_from("<i", content, table)[0]
    if vtable < 0:
        raise _damaged("its header points outside of it")
    (size,) = struct.unpack_from("<H", content, vtable)
    if 4 + 2 * number >= size:
        return None
    (offset,) = struct.unpack_from("<H", content, vtable + 4 + 2 * number)
    return table + offset if offset else None


def _row_column(content: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    with pa.ipc.open_file(pa.py_buffer(content)) as reader:
        if reader.schema != _SCHEMA or reader.num_record_batches != 1:
            raise _damaged("it does not have the one column and the one batch that it should have")
        batch = reader.get_batch(0)
        batch.validate(full=True)
        if batch.column(0).null_count:
            raise _damaged("it has a row without a number")
        return batch.column(0).to_numpy()


def _damaged(how: str) -> CorruptionError:
    return CorruptionError(
        f"The deletion file is damaged: {how}.",
        hint="Restore the file from a copy, or open an older version of the table.",
    )
