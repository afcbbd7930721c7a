"""Lazy scans for polars and DuckDB, with projections and predicates pushed down."""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from conroi.data.casts import cast_batch
from conroi.data.pylance import pylance_errors
from conroi.data.sql import literal, quoted
from conroi.data.table_version import TableVersion
from conroi.errors import ConroiError, CorruptionError, InvalidInputError, UnsupportedError
from conroi.format.json import parse_json
from conroi.snapshots.snapshot import Snapshot, version_in_use
from conroi.storage.objects import Objects

if TYPE_CHECKING:
    import duckdb
    import polars as pl


@dataclass(frozen=True)
class Base:
    """The base version of a transaction, for scans of its private versions."""

    objects: Objects
    snapshot: Snapshot | None
    check_open: Callable[[], None]
    """ClosedError once the transaction has ended: its staged files may be gone then."""


@dataclass(frozen=True)
class Scan:
    """The rows of one version, which can be read any number of times and from any thread."""

    pinned: TableVersion
    base: Base | None = None
    failures: list[ConroiError] = field(default_factory=list[ConroiError])
    """Errors during a read by an engine: on its way through the engine an error loses its type."""

    def reader(self, columns: Any = None, filter: Any = None, **options: Any) -> pa.RecordBatchReader:
        """A stream of the rows. `columns`, `filter` and `options` are those of pylance's scanner."""
        if self.base is not None:
            self.base.check_open()
        with self.reading():
            dataset = self.pinned.dataset
            rows = dataset.scanner(columns=columns, filter=filter, **options).to_reader()
        return self.guarded(rows)

    def stored_rows(self) -> pa.RecordBatchReader:
        """All rows in the table's own types, blobs with their bytes: what can be written to another table."""
        schema, root = self.pinned.schema, self.pinned.root
        rows = self.reader(blob_handling="all_binary")
        return pa.RecordBatchReader.from_batches(schema, (cast_batch(batch, schema, root) for batch in rows))

    def guarded(self, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """The stream with typed errors."""
        return pa.RecordBatchReader.from_batches(rows.schema, self._batches(rows))

    def _batches(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            with self.reading():
                yield from rows
        except ConroiError as error:
            self.failures.append(error)
            raise

    @contextmanager
    def reading(self) -> Generator[None]:
        """Map pylance's errors to ours; VersionExpired if the version was collected meanwhile."""
        with ExitStack() as stack:
            if self.base is not None:
                objects, base, staged = self.base.objects, self.base.snapshot, self.pinned.snapshot
                stack.enter_context(version_in_use(objects, base, is_base=True, staged=lambda: staged))
            stack.enter_context(version_in_use(self.pinned.files.objects, self.pinned.snapshot))
            stack.enter_context(pylance_errors(self.pinned.root))
            yield

    # ------------------------------------------------------------------------ engines

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """The rows as a relation of DuckDB, which asks for the columns and rows that a query needs."""
        try:
            import duckdb
        except ImportError as error:
            raise missing_duckdb() from error
        at: Any = duckdb if connection is None else connection
        return at.from_arrow(duckdb_source(self))

    def to_polars_lazy(self) -> pl.LazyFrame:
        """The rows as a lazy frame of polars, which asks for the columns and rows that a query needs."""
        try:
            import polars
            from polars.io.plugins import register_io_source
        except ImportError as error:
            raise _old_polars("polars is not installed, or too old for lazy scans.") from error
        if "explain_name" not in inspect.signature(register_io_source).parameters:
            raise _old_polars(f"polars {polars.__version__} is too old for lazy scans.")
        schema = polars.DataFrame(pa.table(self._empty())).schema

        def frames(
            columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, batch_size: int | None
        ) -> Iterator[pl.DataFrame]:
            pushed = None if predicate is None else to_lance_filter(predicate, self.pinned.schema)
            needed = columns
            if columns is not None and predicate is not None:
                needed = list(dict.fromkeys([*columns, *predicate.meta.root_names()]))
            # pylance reads no rows without columns, and rows must be counted.
            needed = needed or self.pinned.schema.names[:1] if needed is not None else None
            left = limit
            for batch in self.reader(needed, pushed, batch_size=batch_size):
                frame = polars.DataFrame(batch)
                frame = frame if predicate is None else frame.filter(predicate)
                frame = frame if columns is None else frame.select(columns)
                if left is not None:
                    frame = frame.head(left)
                    left -= len(frame)
                yield frame
                if left == 0:
                    return

        return register_io_source(frames, schema=schema, is_pure=True, explain_name="conroi")

    def _empty(self) -> pa.Table:
        return self.reader(limit=0).read_all()


def duckdb_source(scan: Scan) -> Any:
    """A scan in the form in which DuckDB pushes columns and filters down: it takes what is a pyarrow dataset."""
    return _as_dataset()(_Source(scan))


@cache
def _as_dataset() -> Any:
    """A class of pyarrow datasets. They come with pandas, which takes longer to import than conroi."""
    import pyarrow.dataset as ds

    class ScannedDataset(ds.Dataset):
        def __init__(self, source: _Source) -> None:  # the base class has no state that DuckDB looks at
            self._source = source

        @property
        def schema(self) -> pa.Schema:
            return self._source.schema

        def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            return self._source.scanner(columns, filter)

    return ScannedDataset


class _Source:
    """What DuckDB asks a dataset for."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._schema = scan.reader(limit=0).schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def scanner(self, columns: Sequence[str] | None, filter: Any) -> Any:
        """A scan of these columns, of the rows for which the filter holds by pyarrow's rules, which DuckDB knows."""
        import pyarrow.dataset as ds

        if filter is None:
            return _Once(self._scan.reader(None if columns is None else list(columns)))
        named = _named(filter, self._schema)
        needed = None if columns is None else list(dict.fromkeys([*columns, *named]))
        pushed = filter if all(_is_exact(self._schema.field(name).type) for name in named) else None
        try:
            rows = self._scan.reader(needed, pushed)
        except ConroiError:
            if pushed is None:
                raise
            rows = self._scan.reader(needed)  # an expression that Lance does not know
        wanted = self._schema.names if columns is None else list(columns)
        return ds.Scanner.from_batches(rows, columns=wanted, filter=filter)


@dataclass(frozen=True)
class _Once:
    """What DuckDB uses of a scanner."""

    reader: pa.RecordBatchReader

    def to_reader(self) -> pa.RecordBatchReader:
        return self.reader

    @property
    def projected_schema(self) -> pa.Schema:
        return self.reader.schema


def _named(filter: Any, schema: pa.Schema) -> list[str]:
    """The columns that an expression may name. Its text is all that pyarrow tells: a name too many does no harm."""
    text = str(filter)
    words = set(re.findall(r"\w+", text))
    return [name for name in schema.names if name in words or (not re.fullmatch(r"\w+", name) and name in text)]


def _is_exact(type_: pa.DataType) -> bool:
    """Whether Lance and pyarrow agree about every comparison. For floats they differ about NaN and the two zeros."""
    return (
        pa.types.is_integer(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_date32(type_)
        or (pa.types.is_timestamp(type_) and type_.unit == "us")
    )


def _old_polars(message: str) -> UnsupportedError:
    return UnsupportedError(message, hint="Run: pip install -U polars. Or read with to_arrow() and polars.DataFrame.")


def missing_duckdb() -> UnsupportedError:
    """The error for a Python without DuckDB."""
    return UnsupportedError("This needs DuckDB, which is not installed.", hint='pip install "conroi[duckdb]"')


_COMPARISONS = {"Eq": "=", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_JOINS = {"And": "AND", "LogicalAnd": "AND", "Or": "OR", "LogicalOr": "OR"}


def to_lance_filter(predicate: pl.Expr, schema: pa.Schema) -> str | None:
    """A filter of Lance that holds for every row for which the predicate holds; None if there is none to push down."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the form is not stable, as is said above
            tree = parse_json(predicate.meta.serialize(format="json"), "The predicate of polars")
        return _weaker(tree, schema)
    except (ValueError, TypeError, KeyError, AttributeError, CorruptionError, InvalidInputError):
        return None


def _weaker(node: Any, schema: pa.Schema) -> str | None:
    """A condition that the expression implies."""
    kind, body = _single(node)
    if kind == "BinaryExpr":
        join = _JOINS.get(body["op"])
        if join is None:
            return _comparison(body, schema)
        sides = [_weaker(body[side], schema) for side in ("left", "right")]
        known = [side for side in sides if side is not None]
        if join == "OR":
            return f"({known[0]} OR {known[1]})" if len(known) == 2 else None
        return " AND ".join(f"({side})" for side in known) or None
    if kind == "Function":
        return _function(body, schema)
    return None


def _comparison(body: Mapping[str, Any], schema: pa.Schema) -> str | None:
    operator = _COMPARISONS.get(body["op"])
    left, right = _single(body["left"]), _single(body["right"])
    if left[0] == "Literal" and right[0] == "Column" and operator is not None:
        left, right, operator = right, left, _MIRRORED[operator]
    if operator is None or left[0] != "Column" or right[0] != "Literal":
        return None
    return _compared(left[1], operator, _value(right[1]), schema)


def _function(body: Mapping[str, Any], schema: pa.Schema) -> str | None:
    family, name = _single(body["function"])
    arguments = [_single(each) for each in body["input"]]
    if family != "Boolean" or arguments[0][0] != "Column":
        return None
    column = arguments[0][1]
    if name in ("IsNull", "IsNotNull"):
        return f"{_name(column, schema)} IS {'NOT ' if name == 'IsNotNull' else ''}NULL"
    if isinstance(name, dict) and "IsBetween" in name:
        # Open and closed ends alike: polars leaves the ends out where they do not count.
        low, high = (_value(each[1]) for each in arguments[1:3])
        bounds = [_compared(column, ">=", low, schema), _compared(column, "<=", high, schema)]
        return " AND ".join(bound for bound in bounds if bound is not None) or None
    return None


def _compared(column: str, operator: str, value: object, schema: pa.Schema) -> str | None:
    """The comparison, where Lance and polars agree about it; NaN, the greatest number of polars, is let through."""
    type_, name = schema.field(column).type, _name(column, schema)
    is_bool, is_int = isinstance(value, bool), isinstance(value, int) and not isinstance(value, bool)
    fits = (
        (pa.types.is_integer(type_) and is_int and -(2**63) <= cast("int", value) < 2**63 and _in_range(value, type_))
        or ((pa.types.is_string(type_) or pa.types.is_large_string(type_)) and isinstance(value, str))
        or (pa.types.is_boolean(type_) and is_bool and operator in ("=", "!="))
    )
    if fits:
        return f"{name} {operator} {literal(value)}"
    if pa.types.is_float64(type_) and isinstance(value, int | float) and not is_bool and operator != "!=":
        number = float(value)
        if number == value and math.isfinite(number) and number != 0:
            return f"({name} {operator} {literal(number)} OR isnan({name}))"
    return None


def _in_range(value: object, type_: pa.DataType) -> bool:
    try:
        pa.scalar(cast("int", value), type_)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


def _name(column: str, schema: pa.Schema) -> str:
    schema.field(column)  # KeyError if there is none
    if "." in column or "`" in column:
        raise InvalidInputError(f"{column!r} cannot stand in a filter.", hint="It is left to polars.")
    return quoted(column)


def _value(given: Any) -> object:
    """The Python value of a literal; TypeError for kinds that are not pushed down."""
    form, content = _single(given)
    kind, value = _single(content)
    if form not in ("Dyn", "Scalar") or kind not in _PLAIN or not isinstance(value, _PLAIN[kind]):
        raise TypeError(kind)
    return value


_PLAIN: dict[str, type | tuple[type, ...]] = {
    "Int": int,
    **{f"{sign}nt{bits}": int for sign in ("I", "UI") for bits in (8, 16, 32, 64)},
    "Float": (int, float),
    "Float64": (int, float),
    "String": str,
    "Boolean": bool,
}


def _single(node: Any) -> tuple[str, Any]:
    """The one entry of a mapping, which is how a variant is written."""
    if isinstance(node, str):
        return node, None
    ((kind, body),) = node.items()
    return kind, body
