"""Input files as streams of Arrow batches; none is held in memory as a whole."""

from __future__ import annotations

import glob
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from conroi.cli.failures import UsageProblem
from conroi.cli.options import STDIN
from conroi.cli.text_files import ArrayLines, TextOptions
from conroi.errors import ConroiError, InvalidInputError, NotFoundError, UnsupportedError

ENDINGS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".csv.gz": "csv",
    ".tsv.gz": "tsv",
    ".jsonl.gz": "json",
    ".json.gz": "json",
}
FORMATS = {"csv": "csv", "tsv": "tsv", "json": "json", "ndjson": "json", "parquet": "parquet", "arrow": "arrow"}
"""What --format takes."""
DOWNLOADS = ("http://", "https://", "ftp://")
BATCH_ROWS = 64 * 1024


@dataclass(frozen=True)
class Source:
    """One file or folder, and what it is."""

    path: str
    kind: str
    text: TextOptions = field(default_factory=TextOptions)
    label: str = ""
    allow_bases: tuple[str, ...] = ()
    """For a Lance table: folders outside it to which it may refer."""

    @property
    def shown(self) -> str:
        """What it is called in messages."""
        return self.label or self.path

    def with_text(self, text: TextOptions) -> Source:
        """The same with other options for text."""
        return replace(self, text=text)

    def open(self, known: pa.Schema | None = None) -> pa.RecordBatchReader:
        """A stream of its rows; `known` says the types of columns that text alone does not."""
        try:
            if self.kind in ("csv", "tsv"):
                return _csv(self.path, known, "\t" if self.kind == "tsv" else ",", self.text)
            if self.kind == "lance":
                return _lance(self.path, self.allow_bases)
            return _READERS[self.kind](self.path, known)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, EOFError) as error:
            raise self.unreadable(error) from error
        except OSError as error:
            raise NotFoundError(
                f"{self.shown} cannot be opened: {_first_line(error)}", hint="Check the path, and that it may be read."
            ) from error

    def unreadable(self, error: Exception) -> InvalidInputError:
        """The error for rows that are not what they should be."""
        if "UTF8" in str(error) or "utf-8" in str(error):
            return InvalidInputError(
                f"{self.shown} is not UTF-8: {_first_line(error)}",
                hint="Say how it is encoded: --encoding latin-1, or cp1252.",
            )
        return InvalidInputError(
            f"{self.shown} cannot be read as {self.kind}: {_first_line(error)}",
            hint=_READ_HINTS.get(self.kind, _FORMAT),
        )


_TYPES = "Types are guessed from the first rows of a text file."
_READ_HINTS = {
    **dict.fromkeys(
        ("csv", "tsv"), f"{_TYPES} Give them with --type COLUMN=TYPE, or make the table first with `conroi create`."
    ),
    "json": f"{_TYPES} Correct the file, or make the table first with `conroi create`.",
}
_FORMAT = "Check the file; --format says what it is if its name does not."


class Spool:
    """Standard input in a temporary file: a load that is done again reads it again."""

    def __init__(self, *, is_needed: bool) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="conroi-stdin-") if is_needed else None  # noqa: SIM115
        self._is_filled = False

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def path(self) -> str:
        """Where all of it is."""
        assert self._file is not None, "standard input was asked for"
        if not self._is_filled:
            shutil.copyfileobj(sys.stdin.buffer, self._file)
            self._file.flush()
            self._is_filled = True
        return self._file.name


def find(patterns: Sequence[str], format_: str | None = None, stdin: Spool | None = None) -> list[Source]:
    """The files that were named, patterns with * filled in. `format_` says what they are, `-` is standard input."""
    if format_ is not None and format_ not in FORMATS:
        raise UsageProblem(f"The format {format_!r} is not known.", hint=f"It is one of {', '.join(FORMATS)}.")
    found: list[Source] = []
    for pattern in patterns:
        if pattern == STDIN and stdin is not None:
            found.append(_stdin(format_, stdin))
            continue
        _refuse_download(pattern)
        names = sorted(glob.glob(os.path.expanduser(pattern))) if _is_pattern(pattern) else [pattern]
        if not names:
            raise NotFoundError(f"No file is called {pattern}.", hint="Check the pattern and the folder you are in.")
        found += [Source(name, kind_of(name) if format_ is None else _given(name, format_)) for name in names]
    return found


def _stdin(format_: str | None, stdin: Spool) -> Source:
    if format_ is None:
        raise UsageProblem(
            "Say what comes on standard input.", hint=f"Give --format, which is one of {', '.join(FORMATS)}."
        )
    return Source(stdin.path(), FORMATS[format_], label="standard input")


def _given(name: str, format_: str) -> str:
    _refuse_missing(name)
    return FORMATS[format_]


def _refuse_download(name: str) -> None:
    if name.lower().startswith(DOWNLOADS):
        scheme = name.partition("://")[0]
        raise UnsupportedError(
            f"{name} is an address of the web; `conroi load` reads files and object stores, and does not download.",
            hint=f"Download it first, or send it: curl -sSL {scheme}://… | conroi load LAKE/TABLE - --format csv.",
        )


def is_data(path: str) -> bool:
    """Whether a file holds rows, by its ending or because it is a folder."""
    return path.rstrip("/").lower().endswith((*ENDINGS, ".lance")) or os.path.isdir(path)


def _is_pattern(name: str) -> bool:
    return any(letter in name for letter in "*?[") and not os.path.exists(name)


def kind_of(path: str) -> str:
    """What a file or folder is, by its ending or by what is in it."""
    _refuse_missing(path)
    lowered = path.rstrip("/").lower()
    for ending, kind in sorted(ENDINGS.items(), key=lambda item: -len(item[0])):
        if lowered.endswith(ending):
            return kind
    if lowered.endswith(".lance"):
        return "lance"
    if os.path.isdir(f"{path}/_delta_log") or lowered.endswith(".delta"):
        return "delta"
    if os.path.isdir(path):
        if _is_lance(path):
            return "lance"
        if any(Path(path).rglob("*.parquet")):
            return "parquet"
    raise UnsupportedError(
        f"It cannot be told what {path} is.",
        hint=f"Say it with --format, which is one of {', '.join(FORMATS)}. Folders are Lance or Delta tables, or hold "
        "Parquet files.",
    )


def _refuse_missing(path: str) -> None:
    if "://" not in path and not os.path.exists(path):
        raise NotFoundError(f"There is no file {path}.", hint="Check the path.")


def _is_lance(path: str) -> bool:
    from conroi.table_location import table_storage

    return table_storage(path).versions.latest() is not None


# ---------------------------------------------------------------------------- one function for each kind


def _parquet(path: str, known: pa.Schema | None) -> pa.RecordBatchReader:  # noqa: ARG001
    import pyarrow.dataset as ds

    return _scanned(ds.dataset(path, format="parquet"))


def _scanned(dataset: Any) -> pa.RecordBatchReader:
    # Few rows are read ahead: the ones before them are being written meanwhile.
    return dataset.scanner(batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1).to_reader()


def _csv(path: str, known: pa.Schema | None, delimiter: str, text: TextOptions) -> pa.RecordBatchReader:
    from pyarrow import csv

    types: Any = {} if known is None else {field.name: field.type for field in known}
    types |= text.arrow_types()
    delimiter = text.delimiter or delimiter
    reader = csv.open_csv(
        path if "://" not in path else _stream(path),
        read_options=csv.ReadOptions(encoding=text.encoding or "utf8"),
        parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )
    if any(pa.types.is_binary(field.type) and field.name not in types for field in reader.schema):
        raise pa.ArrowInvalid("invalid UTF8 data")  # which pyarrow would keep as bytes
    return reader


def _json(path: str, known: pa.Schema | None) -> pa.RecordBatchReader:
    """JSON lines, or one array of objects. Dates are texts there, or numbers as pyarrow takes them."""
    if known is None or not any(_is_text_in_json(field.type) for field in known):
        return _json_documents(path, known)
    texts = pa.schema([field.with_type(pa.string()) if _is_text_in_json(field.type) else field for field in known])
    try:
        reader = _json_documents(path, texts)
    except pa.ArrowInvalid:
        return _json_documents(path, known)
    schema = pa.schema([known.field(each.name) if each.name in known.names else each for each in reader.schema])
    return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in reader))


def _is_text_in_json(type_: pa.DataType) -> bool:
    return pa.types.is_date(type_)


def _json_documents(path: str, known: pa.Schema | None) -> pa.RecordBatchReader:
    from pyarrow import json

    stream: Any = _stream(path)
    start = _first_letter(_stream(path))
    if start == b"":
        return _no_rows(path, known)
    is_array = start == b"["
    options = json.ParseOptions(
        explicit_schema=known, unexpected_field_behavior="infer", newlines_in_values=not is_array and _is_spread(path)
    )
    try:
        if is_array:
            stream = pa.PythonFile(cast("Any", ArrayLines(stream)))
        return json.open_json(stream, parse_options=options)
    except pa.ArrowInvalid as error:
        if is_array and "Empty JSON" in str(error):
            return _no_rows(path, known)
        raise


def _stream(path: str) -> Any:
    """The bytes of a file, unpacked."""
    if "://" not in path:
        return pa.input_stream(path, compression="detect")
    from pyarrow import fs

    store, inside = fs.FileSystem.from_uri(path)
    return store.open_input_stream(inside, compression="detect")


def _first_letter(stream: Any) -> bytes:
    with stream:
        while part := stream.read(1024):
            letters = part.removeprefix(b"\xef\xbb\xbf").lstrip()
            if letters:
                return letters[:1]
    return b""


def _is_spread(path: str) -> bool:
    """Whether the first document goes on in the next line, as in a file that was indented."""
    with _stream(path) as stream:
        first = stream.read(BATCH_ROWS).lstrip().partition(b"\n")[0].rstrip()
    return not first.endswith(b"}")


def _no_rows(path: str, known: pa.Schema | None) -> pa.RecordBatchReader:
    if known is None:
        raise InvalidInputError(
            f"{path} has no rows, so its columns are not known.", hint="Make the table with `conroi create`."
        )
    return pa.RecordBatchReader.from_batches(known, [])


def _arrow(path: str, known: pa.Schema | None) -> pa.RecordBatchReader:  # noqa: ARG001
    """An Arrow file or an Arrow stream."""
    with _stream(path) as stream:
        is_file = stream.read(6) == b"ARROW1"
    if not is_file:
        return pa.ipc.open_stream(_stream(path))
    opened = pa.ipc.open_file(path)
    batches = (opened.get_batch(number) for number in range(opened.num_record_batches))
    return pa.RecordBatchReader.from_batches(opened.schema, batches)


def _lance(path: str, allow_bases: Sequence[str]) -> pa.RecordBatchReader:
    import conroi

    table = conroi.open_table(path, allow_bases=list(allow_bases) or None)
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches())


def _delta(path: str, known: pa.Schema | None) -> pa.RecordBatchReader:  # noqa: ARG001
    try:
        from deltalake import DeltaTable  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UnsupportedError(
            f"{path} is a Delta table, and the package that reads those is not installed.", hint="pip install deltalake"
        ) from error
    return _scanned(DeltaTable(path).to_pyarrow_dataset())


_READERS: dict[str, Callable[[str, pa.Schema | None], pa.RecordBatchReader]] = {
    "parquet": _parquet,
    "json": _json,
    "arrow": _arrow,
    "delta": _delta,
}


@dataclass(frozen=True)
class Together:
    """Several sources, one after the other, as one stream; it can be opened again when the work is done again."""

    sources: tuple[Source, ...]
    known: pa.Schema | None = None
    """The columns of the table that the rows are for."""
    progress: Callable[[int], None] = lambda _rows: None
    failed: Callable[[Exception], None] = lambda _error: None
    """Told of an error in the stream, which loses its type where others read it."""

    def open(self) -> pa.RecordBatchReader:
        """The stream, with the columns of the first source."""
        first = self.sources[0].open(self._hints())
        return pa.RecordBatchReader.from_batches(first.schema, self._batches(first))

    def _hints(self) -> pa.Schema | None:
        """Of the table's columns those that the file has: the others must not come in as nulls."""
        if self.known is None or self.sources[0].kind != "json":
            return self.known
        try:
            names = set(self.sources[0].open().schema.names)
        except InvalidInputError:  # it has no rows, or is opened again and says what is wrong
            return self.known
        return pa.schema([field for field in self.known if field.name in names])

    def _batches(self, first: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for number, source in enumerate(self.sources):
            try:
                for batch in first if number == 0 else source.open(first.schema):
                    yield _fitted(batch, first.schema, source)
                    self.progress(batch.num_rows)
            except (pa.ArrowException, ConroiError, OSError) as error:
                told = source.unreadable(error) if isinstance(error, pa.ArrowException) else error
                self.failed(told)
                raise told from error


def _fitted(batch: pa.RecordBatch, schema: pa.Schema, source: Source) -> pa.RecordBatch:
    """The batch in the columns of the first source."""
    if batch.schema.equals(schema):
        return batch
    if set(batch.schema.names) != set(schema.names):
        odd = sorted(set(batch.schema.names) ^ set(schema.names))
        raise InvalidInputError(
            f"{source.shown} has other columns than the first file: {', '.join(odd)}.",
            hint="Load it in a command of its own.",
        )
    try:
        return batch.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"{source.shown} has other types than the first file: {_first_line(error)}",
            hint="Load it in a command of its own.",
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
