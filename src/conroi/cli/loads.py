"""Loads: files into tables, all in one transaction, also from a plan in a TOML file."""

from __future__ import annotations

import codecs
import os
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conroi.cli.failures import UsageProblem
from conroi.cli.sources import Source, Together, find
from conroi.cli.text_files import TextOptions
from conroi.errors import AlreadyExistsError, DuplicateKeyError, NotFoundError

if TYPE_CHECKING:
    import pyarrow as pa

    from conroi.lake import Lake
    from conroi.transaction import Transaction, TransactionResult


MODES = ("append", "overwrite", "merge")
SPARK_CHARSETS = {
    "utf-8": "UTF-8",
    "utf-16": "UTF-16",
    "utf-32": "UTF-32",
    "ascii": "US-ASCII",
    "iso8859-1": "ISO-8859-1",
}
"""By the name that Python gives an encoding."""


@dataclass(frozen=True)
class Load:
    """Files for one table."""

    name: str
    sources: tuple[Source, ...]
    mode: str = "append"
    on: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    creates: bool = False
    """Whether the table is created if it does not exist."""
    evolve: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UsageProblem(f"The mode {self.mode!r} is not known. It is one of {', '.join(MODES)}.")
        if self.mode == "merge" and not self.on and not self.key:
            raise UsageProblem(f"A merge into {self.name} needs the columns to match rows by: --on id.")
        if not self.sources:
            raise UsageProblem(f"Say which files to load into {self.name}.")


@dataclass
class Loading:
    """One transaction of loads, which may have to be done more than once."""

    loads: Sequence[Load]
    progress: Callable[[int], None]
    as_frame: Callable[[Load, pa.Schema | None], Any] | None = None
    """The files as a Spark frame; None reads them here."""
    rows: dict[str, int] = field(default_factory=dict[str, int])
    result: TransactionResult | None = None
    _failure: Exception | None = None
    _created: set[str] = field(default_factory=set[str])
    """The tables that this attempt creates."""

    def run(self, lake: Lake, *, message: str | None, author: str | None, once: str | None) -> TransactionResult:
        """Load everything, or nothing."""
        transactions: list[Transaction] = []

        def work(tx: Transaction) -> None:
            transactions.append(tx)
            self.rows = {}
            self._created.clear()
            if not tx.is_done:
                for each in self.loads:
                    self._stage(tx, each)

        said = message or f"load {', '.join(dict.fromkeys(each.name for each in self.loads))}"
        try:
            while True:
                try:
                    lake.run(work, message=said, author=author, idempotency_key=once)
                    break
                except AlreadyExistsError as error:
                    if error.table not in self._created:
                        raise
                    # A concurrent load created it first: --create means "if it is not there", so load into that one.
        except DuplicateKeyError as error:
            error.hint = self._merge_hint(lake, error)
            raise
        except Exception:
            if self._failure is not None:  # the file was at fault; on its way through Rust its error became a text
                raise self._failure from None
            raise
        return transactions[-1].result

    def _merge_hint(self, lake: Lake, error: DuplicateKeyError) -> str | None:
        """The key of the table, in words to type."""
        names = [each.name for each in self.loads if each.mode == "append" and each.name in lake]
        name = error.table if error.table in names else next(iter(names), None)
        if name is None or not lake[name].key or "merge()" not in (error.hint or ""):
            return error.hint  # a key that is in the files twice, for one
        return f"Give --mode merge --on {','.join(lake[name].key)} to update rows that are there and insert the others."

    def _stage(self, tx: Transaction, load: Load) -> None:
        if load.name not in tx:
            if not load.creates:
                raise NotFoundError(
                    f"The lake has no table {load.name!r}.",
                    table=load.name,
                    hint="Give --create to make it from the files, or make it first with `conroi create`.",
                )
            self._created.add(load.name)
            tx.create_table(load.name, self._data(load, None), key=list(load.key) or None)
            return
        table = tx[load.name]
        data = self._data(load, table.schema)
        if load.mode == "append":
            table.append(data, evolve_schema=load.evolve)
        elif load.mode == "overwrite":
            table.overwrite(data)
        else:
            merge = table.merge(data, on=list(load.on or load.key))
            merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def _data(self, load: Load, known: pa.Schema | None) -> Any:
        if self.as_frame is not None:
            return self.as_frame(load, known)
        self.rows.setdefault(load.name, 0)

        def count(rows: int) -> None:
            self.rows[load.name] += rows
            self.progress(rows)

        return Together(load.sources, known, count, self._failed).open()

    def _failed(self, error: Exception) -> None:
        self._failure = error


def spark_frame(load: Load, known: pa.Schema | None) -> Any:
    """The files as a Spark frame, which its executors read and write; `known` are the columns of the table."""
    from conroi.spark import session

    spark = session()
    frame: Any = None
    for source in load.sources:
        part = _spark_source(spark, source, known)
        frame = part if frame is None else frame.unionByName(part)
    return frame


def _spark_source(spark: Any, source: Source, known: pa.Schema | None) -> Any:
    if source.kind not in ("csv", "tsv"):
        names = {"lance": "conroi", "ndjson": "json"}
        return spark.read.format(names.get(source.kind, source.kind)).load(source.path)
    separator = source.text.delimiter or ("," if source.kind == "csv" else "\t")
    options = {"header": True, "sep": separator, "encoding": _charset(source.text.encoding or "utf-8")}
    inferred = spark.read.csv(source.path, inferSchema=True, **options).schema
    types = _given_types(source, known, inferred.names)
    if not types:
        return spark.read.csv(source.path, schema=inferred, **options)
    return _as_text_first(spark, source, inferred, types, options)


def _charset(encoding: str) -> str:
    """The name by which Spark knows an encoding."""
    name = codecs.lookup(encoding).name
    found = SPARK_CHARSETS.get(name)
    if found is None:
        raise UsageProblem(
            f"Spark does not read files in the encoding {encoding!r}.",
            hint=f"It reads {', '.join(SPARK_CHARSETS)}. Load the file without --spark.",
        )
    return found


def _given_types(source: Source, known: pa.Schema | None, names: Sequence[str]) -> dict[str, pa.DataType]:
    """The types that Spark must not infer: given ones, and text of the table, which may look like numbers."""
    import pyarrow as pa

    texts = [field for field in known or () if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)]
    return {field.name: field.type for field in texts if field.name in names} | source.text.arrow_types()


def _as_text_first(
    spark: Any, source: Source, inferred: Any, types: dict[str, pa.DataType], options: dict[str, Any]
) -> Any:
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StringType, StructField, StructType

    fields = [StructField(each.name, StringType() if each.name in types else each.dataType) for each in inferred]
    frame = spark.read.csv(source.path, schema=StructType(fields), **options)
    for name, type_ in types.items():
        frame = frame.withColumn(name, frame[name].cast(from_arrow_type(type_)))
    return frame


_TOP = {"message", "author", "once", "table"}
_TABLE = {"name", "files", "mode", "on", "key", "create", "evolve", "format", "delimiter", "encoding", "types"}


@dataclass(frozen=True)
class LoadPlan:
    """What such a file says."""

    loads: tuple[Load, ...]
    message: str | None = None
    author: str | None = None
    once: str | None = None


def read_plan(path: str) -> LoadPlan:
    """The plan in a file; the files that it names are beside it."""
    try:
        content = tomllib.loads(Path(path).read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UsageProblem(f"{path} is not TOML: {error}.") from error
    _check(content, _TOP, path)
    tables = content.get("table", [])
    if not isinstance(tables, list) or not tables:
        raise UsageProblem(f"{path} names no table. Write [[table]], and below it name and files.")
    loads = tuple(_load(each, path) for each in tables)  # pyright: ignore[reportUnknownVariableType]
    return LoadPlan(loads, content.get("message"), content.get("author"), content.get("once"))


def _load(entry: dict[str, Any], path: str) -> Load:
    _check(entry, _TABLE, path)
    if not isinstance(entry.get("name"), str) or not entry.get("files"):
        raise UsageProblem(f"A [[table]] of {path} says no name or no files.")
    folder = os.path.dirname(path)
    files = [name if "://" in name else os.path.join(folder, name) for name in _words(entry["files"])]
    types: Any = entry.get("types", {})
    if not isinstance(types, dict):
        raise UsageProblem(
            f"A [[table]] of {path} says types that are no table.", hint='Write types = { zip = "string" }.'
        )
    given = {str(name): str(type_) for name, type_ in types.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    text = TextOptions(entry.get("delimiter"), entry.get("encoding"), given).checked()
    return Load(
        name=entry["name"],
        sources=tuple(each.with_text(text) for each in find(files, entry.get("format"))),
        mode=entry.get("mode", "append"),
        on=_words(entry.get("on")),
        key=_words(entry.get("key")),
        creates=bool(entry.get("create", False)),
        evolve=bool(entry.get("evolve", False)),
    )


def _words(value: Any) -> tuple[str, ...]:
    """One word, or a list of them."""
    return () if value is None else (value,) if isinstance(value, str) else tuple(str(each) for each in value)


def _check(entry: dict[str, Any], known: set[str], path: str) -> None:
    odd = sorted(set(entry) - known)
    if odd:
        raise UsageProblem(
            f"{path} says {', '.join(odd)}, which is not known here. Known are {', '.join(sorted(known))}."
        )
