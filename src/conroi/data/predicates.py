"""Predicates of filters: which fragments and rows can match, from statistics, indices and exact comparison."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from conroi.data.columns import stored_columns, wanted
from conroi.data.pylance import pylance_errors
from conroi.data.rows import addresses_of, offsets_by_fragment
from conroi.data.sql import enclosed
from conroi.data.table_version import TableVersion
from conroi.errors import InvalidInputError
from conroi.snapshots.deletions import load_deletions

Predicate: TypeAlias = str | pc.Expression


def checked_predicate(where: object, *, table: str) -> Predicate:
    """The predicate, if it is one; a blank string is refused, since it would mean every row."""
    if isinstance(where, pc.Expression):
        return where
    if isinstance(where, str) and where.strip():
        return enclosed(where, table)
    raise InvalidInputError(
        f"{where!r} is not a condition.",
        table=table,
        hint="Write one as a string, such as \"amount < 0 AND region = 'EU'\", or as a pyarrow expression; "
        'for every row write "true".',
    )


def predicate_text(where: Predicate) -> str:
    """The predicate as the transaction records it."""
    return where if isinstance(where, str) else str(where)


def find_rows(pinned: TableVersion, where: Predicate | None) -> dict[int, BitMap]:
    """The offsets of the rows that match the condition, by fragment."""
    simple = comparisons(where) if isinstance(where, str) else None
    found = None if simple is None else _among_kept(pinned, simple)
    return scan_rows(pinned, where) if found is None else found


def scan_rows(
    pinned: TableVersion, where: Predicate | None, fragment_ids: Sequence[int] | None = None
) -> dict[int, BitMap]:
    """The same by a scan, of the whole table or of some fragments."""
    with pylance_errors(pinned.root):
        chosen = None if fragment_ids is None else [pinned.dataset.get_fragment(number) for number in fragment_ids]
        found = pinned.dataset.scanner(columns=[], filter=where, with_row_address=True, fragments=chosen).to_table()
    return offsets_by_fragment(addresses_of(found["_rowaddr"]))


def _among_kept(pinned: TableVersion, simple: list[Comparison]) -> dict[int, BitMap] | None:
    """From cached columns, or columns small enough to be cached; None if that is impossible."""
    names = list(dict.fromkeys(comparison.column for comparison in simple))  # one may be compared twice
    what = wanted(pinned, names)
    fragments = pinned.manifest.fragments
    if what is None or not what.fits(fragments) or _has_index(pinned, what.ids):
        return None
    types = dict(zip(names, what.types, strict=True))
    if not all(comparison.fits(types[comparison.column]) for comparison in simple):
        return None
    stored = stored_columns(pinned, fragments, what)
    if not stored:
        return None
    whole = [pa.chunked_array(list(parts)) for parts in zip(*stored, strict=True)]
    columns = dict(zip(names, whole, strict=True))
    found = where_all_hold(simple, [columns[comparison.column] for comparison in simple]).astype(np.int64)
    starts = np.cumsum([0, *(fragment.physical_rows for fragment in fragments)])
    rows: dict[int, BitMap] = {}
    for number in np.unique(np.searchsorted(starts, found, "right") - 1):
        fragment = fragments[number]
        here = found[np.searchsorted(found, starts[number]) : np.searchsorted(found, starts[number + 1])]
        alive = BitMap((here - starts[number]).astype(np.uint32))
        alive -= load_deletions(pinned.files.objects, pinned.manifest, fragment)
        if alive:
            rows[fragment.id] = alive
    return rows


def _has_index(pinned: TableVersion, field_ids: tuple[int, ...]) -> bool:
    """Whether pylance need not look at every row."""
    return any(not set(field_ids).isdisjoint(index.fields) for index in pinned.manifest.indices)


Value: TypeAlias = int | str

_VALUE = r"(?:-?\d{1,18}(?![\w.])|'(?:[^'\\]|'')*')"
_COMPARISON = re.compile(
    rf"""(?P<column>[a-z_][a-z0-9_]*)
    (?: \s*(?P<operator><=|>=|<>|!=|=|<|>)\s*(?P<value>{_VALUE})
      | \s+(?i:IN)\s*\(\s*(?P<several>{_VALUE}(?:\s*,\s*{_VALUE})*)\s*\)
      | \s+(?i:BETWEEN)\s+(?P<least>{_VALUE})\s+(?i:AND)\s+(?P<most>{_VALUE}) )""",
    re.VERBOSE,
)
_AND = re.compile(r"\s+AND\s+", re.IGNORECASE)
# Names that are more than names in SQL; a column that is called so is left to pylance.
_RESERVED = re.compile(
    "all|and|any|array|between|case|cast|current_date|current_time|current_timestamp|date|distinct|else|end|exists|"
    "false|from|in|interval|is|like|localtime|localtimestamp|not|now|null|or|select|some|struct|then|time|timestamp|"
    "true|values|when|where"
)
_FUNCTIONS = {
    "=": "equal",
    "<>": "not_equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One column against one value, or (`IN`) against several."""

    column: str
    operator: str
    values: tuple[Value, ...]

    def fits(self, type_: pa.DataType) -> bool:
        """Whether it can be evaluated for a column of this type without conversions."""
        if pa.types.is_string(type_) or pa.types.is_large_string(type_):
            return self.operator in ("=", "IN") and all(isinstance(value, str) for value in self.values)
        if not pa.types.is_integer(type_) or pa.types.is_uint64(type_):
            return False
        is_signed = pa.types.is_signed_integer(type_)
        span = 1 << (type_.bit_width - is_signed)
        return all(isinstance(value, int) and -span * is_signed <= value < span for value in self.values)

    def holds(self, column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
        """For which rows it is true; null (or false) where the column is null."""
        if self.operator == "IN":
            return cast("Any", pc.is_in(column, value_set=pa.array(self.values, column.type)))
        return cast("Any", pc).call_function(
            _FUNCTIONS[self.operator], [column, pa.scalar(self.values[0], column.type)]
        )


def where_all_hold(conditions: Sequence[Comparison], columns: Sequence[pa.ChunkedArray[Any]]) -> npt.NDArray[np.uint64]:
    """The positions of the rows for which all comparisons are true; each is about the column beside it."""
    holds: Any = None
    for condition, column in zip(conditions, columns, strict=True):
        this = condition.holds(column)
        holds = this if holds is None else pc.and_(holds, this)
    return cast("Any", pc).indices_nonzero(holds).to_numpy()  # null does not hold


def comparisons(text: str) -> list[Comparison] | None:
    """The comparisons that must all hold; None if the condition is anything else.

    >>> comparisons("(id >= 10 AND id < 20)")[1]
    Comparison(column='id', operator='<', values=(20,))
    >>> comparisons("id % 2 = 0") is None
    True
    """
    text = text.strip()
    while text.startswith("(") and text.endswith(")"):
        text = text[1:-1].strip()
    found: list[Comparison] = []
    at = 0
    while (match := _COMPARISON.match(text, at)) is not None and not _RESERVED.fullmatch(match["column"]):
        found += _of(match)
        if match.end() == len(text):
            return found
        joint = _AND.match(text, match.end())
        if joint is None:
            return None
        at = joint.end()
    return None


def _of(match: re.Match[str]) -> list[Comparison]:
    column = match["column"]
    if match["several"] is not None:
        values = tuple(_value(text) for text in re.findall(_VALUE, match["several"]))
        return [Comparison(column, "IN", values)]
    if match["value"] is not None:
        return [Comparison(column, match["operator"], (_value(match["value"]),))]
    return [Comparison(column, ">=", (_value(match["least"]),)), Comparison(column, "<=", (_value(match["most"]),))]


def _value(text: str) -> Value:
    return text[1:-1].replace("''", "'") if text.startswith("'") else int(text)
