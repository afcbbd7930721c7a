"""Task result of a write: metadata of the files it wrote, never their rows."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from conroi.data.files import read_columns
from conroi.data.keys import key_columns_of
from conroi.data.writing import WrittenFiles
from conroi.errors import DuplicateKeyError, InvalidInputError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.documents import parse_object
from conroi.stores.objects import Objects

SCHEMA = "fragments binary, rows long, keys binary, error string"
_ARROW = pa.schema({"fragments": pa.binary(), "rows": pa.int64(), "keys": pa.binary(), "error": pa.string()})


@dataclass(frozen=True)
class Part:
    """The files that one task wrote, or the error in its rows."""

    fragments: bytes = b""
    rows: int = 0
    keys: bytes | None = None
    """The keys, as an Arrow stream; None if there is no key, or too many of them."""
    error: InvalidInputError | None = None

    @staticmethod
    def of(written: WrittenFiles, keys: pa.Table | None, most_key_bytes: int) -> Part:
        """What was written; with its keys, if they are few."""
        fragments = pb.Transaction.Append(fragments=written.fragments).SerializeToString()
        encoded = None if keys is None or keys.nbytes > 8 * most_key_bytes else _encoded(keys)
        is_small = encoded is not None and len(encoded) <= most_key_bytes
        return Part(fragments, written.rows, encoded if is_small else None)

    def to_batch(self) -> pa.RecordBatch:
        """As one row."""
        error = None if self.error is None else error_to_text(self.error)
        row = {"fragments": self.fragments, "rows": self.rows, "keys": self.keys, "error": error}
        return pa.RecordBatch.from_pylist([row], schema=_ARROW)

    def files(self) -> WrittenFiles:
        """What was written."""
        return WrittenFiles(list(pb.Transaction.Append.FromString(self.fragments).fragments), self.rows)

    def key_parts(self, objects: Objects, key: Sequence[str]) -> list[pa.Table]:
        """The keys of the rows; read again from their files if they did not come along."""
        if self.keys is not None:
            return [pa.ipc.open_stream(self.keys).read_all()]
        wanted = list(dict.fromkeys(path.partition(".")[0] for path in key))
        files = [file for fragment in self.files().fragments for file in fragment.files]
        return [key_columns_of(read_columns(objects, file.path, wanted), key) for file in files]

    def by_file(self) -> Iterator[Part]:
        """The same, fragment by fragment."""
        keys = None if self.keys is None else pa.ipc.open_stream(self.keys).read_all()
        start = 0
        for fragment in self.files().fragments:
            rows = fragment.physical_rows
            mine = None if keys is None else _encoded(keys.slice(start, rows))
            yield Part(pb.Transaction.Append(fragments=[fragment]).SerializeToString(), rows, mine)
            start += rows


def parts_of(rows: pa.Table) -> list[Part]:
    """The results of all tasks; raises the first error among them."""
    found: list[Part] = []
    for row in rows.to_pylist():
        if row["error"] is not None:
            raise error_from_text(row["error"])
        found.append(Part(row["fragments"], row["rows"], row["keys"]))
    return found


def joined(parts: Sequence[Part]) -> WrittenFiles:
    """All files together."""
    files = WrittenFiles()
    for part in parts:
        written = part.files()
        files.fragments.extend(written.fragments)
        files.rows += written.rows
    return files


def _encoded(keys: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, keys.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(keys)
    return sink.getvalue().to_pybytes()


def error_to_text(error: InvalidInputError) -> str:
    """An error on its way to the user's process."""
    facts = {"kind": type(error).__name__, "message": error.message, "table": error.table, "hint": error.hint}
    keys = error.keys if isinstance(error, DuplicateKeyError) else None
    if keys:
        facts["keys"] = base64.b64encode(_encoded(pa.Table.from_pylist([dict(key) for key in keys]))).decode()
    return json.dumps(facts)


def error_from_text(text: str) -> InvalidInputError:
    """The error, there."""
    facts = parse_object(text, "The error of a task")
    if facts["kind"] == DuplicateKeyError.__name__:
        keys = pa.ipc.open_stream(base64.b64decode(facts["keys"])).read_all().to_pylist() if "keys" in facts else []
        return DuplicateKeyError(facts["message"], table=facts["table"], keys=keys, hint=facts["hint"])
    kind = UnsupportedError if facts["kind"] == UnsupportedError.__name__ else InvalidInputError
    return kind(facts["message"], table=facts["table"], hint=facts["hint"])
