"""Files as streams of Arrow batches, none of which is held in memory as a whole."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from conroi.cli.text_files import TextOptions
from conroi.errors import ConroiError, InvalidInputError, NotFoundError, UnsupportedError

ENDINGS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv.gz": "csv",
    ".jsonl.gz": "json",
}
BATCH_ROWS = 64 * 1024


@dataclass(frozen=True)
class Source:
    """One file or folder, and what it is."""

    path: str
    kind: str
    text: TextOptions = field(default_factory=TextOptions)

    def open(self, known: pa.Schema | None = None) -> pa.RecordBatchReader:
        """A stream of its rows; `known` says the types of columns that text alone does not."""
        try:
            if self.kind in ("csv", "tsv"):
                return _csv(self.path, known, "\t" if self.kind == "tsv" else ",", self.text)
            return _READERS[self.kind](self.path, known)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self.unreadable(error) from error

    def unreadable(self, error: Exception) -> InvalidInputError:
        """The error for rows that are not what they should be."""
        if "UTF8" in str(error) or "utf-8" in str(error):
            return InvalidInputError(
                f"{self.path} is not UTF-8: {_first_line(error)}",
                hint="Say how it is encoded: --encoding latin-1, or cp1252.",
            )
        return InvalidInputError(
            f"{self.path} cannot be read as {self.kind}: {_first_line(error)}",
            hint="Types are guessed from the first rows of a text file; make the table first, with the types you want.",
        )


def find(patterns: Sequence[str]) -> list[Source]:
    """The files that were named, patterns with * filled in."""
    found: list[Source] = []
    for pattern in patterns:
        names = sorted(glob.glob(os.path.expanduser(pattern))) if _is_pattern(pattern) else [pattern]
        if not names:
            raise NotFoundError(f"No file is called {pattern}.", hint="Check the pattern and the folder you are in.")
        found += [Source(name, kind_of(name)) for name in names]
    return found


def _is_pattern(name: str) -> bool:
    return any(letter in name for letter in "*?[") and not os.path.exists(name)


def kind_of(path: str) -> str:
    """What a file or folder is, by its ending or by what is in it."""
    if "://" not in path and not os.path.exists(path):
        raise NotFoundError(f"There is no file {path}.", hint="Check the path.")
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
        hint=f"Files end in {', '.join(ENDINGS)}; folders are Lance or Delta tables, or hold Parquet files.",
    )


def _is_lance(path: str) -> bool:
    from conroi.opening import table_files

    return table_files(path).versions.latest() is not None


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
        path,
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
    from pyarrow import json

    options = json.ParseOptions(explicit_schema=known, unexpected_field_behavior="infer")
    stream: Any = pa.input_stream(path, compression="detect")
    return json.open_json(stream, parse_options=options)


def _lance(path: str, known: pa.Schema | None) -> pa.RecordBatchReader:  # noqa: ARG001
    import conroi

    table = conroi.open_table(path)
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
    "lance": _lance,
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
        names = set(self.sources[0].open().schema.names)
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
            f"{source.path} has other columns than the first file: {', '.join(odd)}.",
            hint="Load it in a command of its own.",
        )
    try:
        return batch.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"{source.path} has other types than the first file: {_first_line(error)}",
            hint="Load it in a command of its own.",
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
