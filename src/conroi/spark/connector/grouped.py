"""Joins and aggregates of a task: rows of one table, looked up in small tables in memory, aggregated by group.

Rows whose key is in no small table get a group of their own, which is left out at the end: so no row is filtered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from conroi.spark.expressions import Kind, column_kind

Ints: TypeAlias = "npt.NDArray[np.int64]"
Values: TypeAlias = "tuple[Any, npt.NDArray[np.bool_] | None]"
"""Numbers, and which of them are not null; None if all are."""

_LARGEST_INDEX = 1 << 20
"""Entries of an array that is indexed by key; keys with a wider range are hashed."""
_MOST_MATCHES = 1 << 20
"""Rows of the join that are in memory at once."""
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
"""The range of Spark's integers."""
_compute = cast("Any", pc)


def _numbers(column: Any) -> Values:
    """A column of integers, dates or floating-point numbers."""
    if column.type == pa.date32():
        column = column.cast(pa.int32())
    if not column.null_count:
        return column.to_numpy(zero_copy_only=False), None
    return column.fill_null(0).to_numpy(zero_copy_only=False), _valid(column)


def _valid(column: Any) -> npt.NDArray[np.bool_]:
    return column.is_valid().to_numpy(zero_copy_only=False)


def _hashable(column: Any) -> Any:
    """Keys that are equal in one type: 64-bit integers, texts with 64-bit offsets, dates."""
    types = {Kind.INTEGER: pa.int64(), Kind.TEXT: pa.large_string()}
    return column.cast(types.get(column_kind(column.type), column.type))


def _groups(columns: Sequence[Any], rows: int) -> tuple[Ints, Ints]:
    """For each row the number of its group, and for each group the number of a row in it."""
    codes, firsts = np.zeros(rows, np.int64), np.zeros(1, np.int64)
    for column in columns:
        found = column.dictionary_encode(null_encoding="encode")
        codes = codes * max(1, len(found.dictionary)) + found.indices.to_numpy(zero_copy_only=False)
        _, firsts, codes = np.unique(codes, return_index=True, return_inverse=True)
    return codes, firsts


class Build:
    """A small table in memory, found by key. Keys have numbers; one that is not found has the number after the last."""

    def __init__(self, plan: Mapping[str, Any], table: pa.Table) -> None:
        self.plan = plan
        self._modulus: int | None = plan["modulus"]
        whole = table.filter(_compute.is_valid(table.column(plan["on"]))).combine_chunks()
        self._columns = {name: whole.column(name).combine_chunks() for name in whole.column_names}
        keys = _hashable(self._columns[plan["on"]]).dictionary_encode()
        self._keys = keys.dictionary
        key_of_row = keys.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        self._counts = np.append(np.bincount(key_of_row, minlength=len(self._keys)), 0)
        self._order = np.argsort(key_of_row, kind="stable")
        self._starts = np.cumsum(self._counts) - self._counts
        self.most = max(1, int(self._counts.max()))
        """Rows of the commonest key."""
        codes, self._firsts = _groups([self._columns[name] for name in plan["groups"]], whole.num_rows)
        self.groups = len(self._firsts)
        self._group_of_row = np.append(codes, self.groups)
        self._index = self._indexed()
        self._row_of_key = np.append(self._order, whole.num_rows) if self.most == 1 else self._starts
        self._group_of_key = self._group_of_row[self._row_of_key]
        self._group_index = None if self._index is None else self._group_of_key[self._index]

    # ------------------------------------------------------------------------ keys

    def _indexed(self) -> Ints | None:
        """The number of each key at its place; the first and the last place are for keys that are out of range."""
        if not len(self._keys) or column_kind(self._keys.type) is Kind.TEXT:
            return None
        keys = _numbers(self._keys)[0].astype(np.int64)
        if self._modulus is None:
            first, last = int(keys.min()), int(keys.max())
        else:
            first, last = 1 - self._modulus, self._modulus - 1
        if last - first > _LARGEST_INDEX or max(abs(first), abs(last)) > 1 << 62:
            return None
        self._first = first
        index = np.full(last - first + 3, len(self._keys), np.int64)
        inside = (keys >= first) & (keys <= last)
        index[keys[inside] - first + 1] = np.flatnonzero(inside)
        return index

    def _remainders(self, values: Any) -> Any:
        """The remainders of a division as in Java: with the sign of the dividend."""
        if self._modulus is None or not len(values):
            return values
        if self._modulus > np.iinfo(values.dtype).max:
            values = values.astype(np.int64)
        modulus = values.dtype.type(self._modulus)
        found = values - np.floor_divide(values, modulus) * modulus  # numpy's own remainder takes several times longer
        if int(values.min()) < 0:
            found[(values < 0) & (found != 0)] -= modulus
        return found

    def _found(self, column: Any, by_place: Ints | None, by_key: Ints) -> Ints:
        """What is known of these keys."""
        if by_place is None:
            if self._modulus is not None:
                values, valid = _numbers(column)
                column = pa.array(self._remainders(values), mask=None if valid is None else ~valid)
            found = _compute.index_in(_hashable(column), value_set=self._keys).fill_null(len(self._keys))
            return by_key[found.to_numpy(zero_copy_only=False)]
        values, valid = _numbers(column)
        places = self._remainders(values)
        if self._modulus is None:
            places = np.clip(places.astype(np.int64), self._first - 1, self._first + len(by_place) - 2)
        found = by_place[np.subtract(places, self._first - 1, dtype=np.int64)]
        if valid is not None:
            found[~valid] = by_key[-1]
        return found

    def group_codes(self, column: Any) -> Ints:
        """The group of each of these keys; only if no key has several rows."""
        return self._found(column, self._group_index, self._group_of_key)

    def pairs(self, column: Any) -> tuple[Ints | None, Ints]:
        """The rows of these keys, and for each the place of its key in the column; None if each key has one."""
        keys = self._found(column, self._index, np.arange(len(self._keys) + 1))
        if self.most == 1:
            return None, self._row_of_key[keys]
        counts = self._counts[keys]
        places = np.repeat(np.arange(len(keys)), counts)
        within = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
        return places, self._order[self._starts[keys[places]] + within]

    # ------------------------------------------------------------------------ rows

    def group_of(self, rows: Ints) -> Ints:
        """The groups of rows."""
        return self._group_of_row[rows]

    def values(self, name: str, rows: Ints) -> Values:
        """The values of a column in these rows; the one after the last has none."""
        values, valid = _countable(self._columns[name])
        valid = np.ones(len(values), np.bool_) if valid is None else valid
        return np.append(values, values.dtype.type(0))[rows], np.append(valid, False)[rows]

    def group_column(self, name: str, groups: Ints) -> Any:
        """The values of a column in these groups."""
        return self._columns[name].take(cast("Any", pa.array(self._firsts[groups])))


def _countable(column: Any) -> Values:
    """The numbers of a column; zeros for one of another type, which is only counted."""
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or column.type == pa.date32():
        return _numbers(column)
    return np.zeros(len(column), np.int64), _valid(column) if column.null_count else None


class _Matches:
    """Rows of the join: for each the code of its group, and where it comes from."""

    def __init__(self, batch: pa.RecordBatch, builds: Sequence[Build]) -> None:
        self._batch = batch
        self._builds = builds
        self._places: Ints | None = None
        self._rows: list[Ints | None] = []
        self.codes: Ints = np.zeros(batch.num_rows, np.int64)
        for number, build in enumerate(builds):
            codes = self._joined(build)
            self.codes = codes if number == 0 else self.codes * (build.groups + 1) + codes

    def _joined(self, build: Build) -> Ints:
        column = self._probed(build.plan["key"])
        if build.most == 1 and not build.plan["values"]:
            self._rows.append(None)
            return build.group_codes(column)
        places, rows = build.pairs(column)
        if places is not None:
            self._places = places if self._places is None else self._places[places]
            self._rows = [None if found is None else found[places] for found in self._rows]
            self.codes = self.codes[places]
        self._rows.append(rows)
        return build.group_of(rows)

    def _probed(self, name: str) -> Any:
        column = self._batch.column(name)
        return column if self._places is None else column.take(cast("Any", pa.array(self._places)))

    def values(self, build: int | None, name: str) -> Values:
        """The values of a column of one of the tables."""
        if build is None:
            return _countable(self._probed(name))
        rows = self._rows[build]
        assert rows is not None, "its plan has values"
        return self._builds[build].values(name, rows)


class GroupedAggregates:
    """count, sum, min and max of the rows of a join, by group."""

    def __init__(self, plan: Mapping[str, Any], builds: Sequence[Build]) -> None:
        self._builds = builds
        self._groups: list[tuple[int, str]] = [(build, name) for build, name in plan["groups"]]
        self._shape = [build.groups + 1 for build in builds]
        size = int(np.prod(self._shape))
        self._present = np.zeros(size, np.int64)
        self._steps: list[tuple[_Function, int | None, str | None]] = [
            (_FUNCTIONS[name](size), build, column) for name, build, column in plan["steps"]
        ]
        keys = [build.plan["key"] for build in builds]
        values = [column for _, build, column in self._steps if build is None and column is not None]
        self.columns: list[str] = list(dict.fromkeys([*keys, *values]))
        """Those of the table that is shared out to tasks."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Include the rows of a batch."""
        most = int(np.prod([build.most for build in self._builds]))
        step = batch.num_rows if most == 1 else max(1, _MOST_MATCHES // most)
        for start in range(0, batch.num_rows, max(1, step)):
            self._add(_Matches(batch.slice(start, step), self._builds))

    def _add(self, matches: _Matches) -> None:
        counts = np.bincount(matches.codes, minlength=len(self._present))
        self._present += counts
        for function, build, column in self._steps:
            if column is None:
                function.add(matches.codes, counts, None)
                continue
            values, valid = matches.values(build, column)
            if valid is None:
                function.add(matches.codes, counts, values)
            else:
                codes = matches.codes[valid]
                function.add(codes, np.bincount(codes, minlength=len(self._present)), values[valid])

    def rows(self, names: Sequence[str]) -> pa.RecordBatch:
        """One row for each group, and one for each 64 bits more that a sum needs: Spark adds them as it adds rows."""
        codes = np.flatnonzero(self._present) if self._groups else np.arange(len(self._present))
        parts = np.unravel_index(codes, self._shape)
        is_found = np.logical_and.reduce([part < size - 1 for part, size in zip(parts, self._shape, strict=True)])
        codes, parts = codes[is_found], [part[is_found] for part in parts]
        found = [function.result(codes) for function, _, _ in self._steps]
        places = [*range(len(codes)), *(place for _, more in found for place, _ in more)]
        arrays = [self._builds[build].group_column(name, parts[build][places]) for build, name in self._groups]
        for number, (array, _) in enumerate(found):
            extra = [part if other == number else None for other, (_, more) in enumerate(found) for _, part in more]
            nothing = pa.array(extra, array.type)
            is_count = isinstance(self._steps[number][0], _Count)
            arrays.append(pa.concat_arrays([array, cast("Any", nothing).fill_null(0) if is_count else nothing]))
        return pa.RecordBatch.from_arrays(arrays, names=list(names))


class _Function(ABC):
    """An aggregate function, for all groups at once."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._seen = np.zeros(size, np.int64)

    def add(self, codes: Ints, counts: Ints, values: Any) -> None:
        """Include the values of rows that are not null, by group; and how many each group has."""
        self._seen += counts
        if len(codes) and values is not None:
            self._include(codes, values)

    @abstractmethod
    def _include(self, codes: Ints, values: Any) -> None: ...

    @abstractmethod
    def result(self, codes: Ints) -> tuple[Any, list[tuple[int, int]]]:
        """The values of these groups, and what belongs to them besides, by their places."""


class _Count(_Function):
    def _include(self, codes: Ints, values: Any) -> None:
        """They have been counted."""

    def result(self, codes: Ints) -> tuple[Any, list[tuple[int, int]]]:
        return pa.array(self._seen[codes]), []


class _Sum(_Function):
    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._sums: Any = None
        self._bound = 0
        """No sum is larger."""
        self._exact: dict[int, int] = {}
        """What was taken out of sums that 64 bits may not hold."""

    def _include(self, codes: Ints, values: Any) -> None:
        if self._sums is None:
            self._sums = np.zeros(self._size, np.float64 if values.dtype.kind == "f" else np.int64)
        if (
            values.dtype.kind == "f"
        ):  # one after the other, as Spark adds the rows of a task: the sums have the same bits
            with np.errstate(all="ignore"):  # infinities and NaN are sums, too
                np.add.at(self._sums, codes, values.astype(np.float64, copy=False))
        else:
            self._add_integers(codes, values.astype(np.int64, copy=False))

    def _add_integers(self, codes: Ints, values: Ints) -> None:
        more = max(abs(int(values.min())), abs(int(values.max()))) * len(values)
        if self._bound + more > _MOST:
            self._take_out(self._sums, 1)
            self._sums[:] = 0
            self._bound = 0
        if more <= _MOST:
            np.add.at(self._sums, codes, values)
            self._bound += more
            return
        for part, factor in ((values >> 32, 1 << 32), (values & 0xFFFFFFFF, 1)):
            sums = np.zeros(self._size, np.int64)
            np.add.at(sums, codes, part)
            self._take_out(sums, factor)

    def _take_out(self, sums: Ints, factor: int) -> None:
        for code in np.flatnonzero(sums).tolist():
            self._exact[code] = self._exact.get(code, 0) + int(sums[code]) * factor

    def result(self, codes: Ints) -> tuple[Any, list[tuple[int, int]]]:
        if self._sums is None:
            return pa.nulls(len(codes), pa.int64()), []
        sums = self._sums[codes]
        more: list[tuple[int, int]] = []
        if self._exact:
            for place, code in enumerate(codes.tolist()):
                value = self._exact.get(code, 0) + int(sums[place])
                while not _LEAST <= value <= _MOST:
                    part = _MOST if value > 0 else _LEAST
                    more.append((place, part))
                    value -= part
                sums[place] = value
        return pa.array(sums, mask=self._seen[codes] == 0), more


class _Least(_Function):
    _chosen: Any = np.minimum

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._values: Any = None

    @staticmethod
    def _worst(limits: Any) -> int:
        return limits.max

    def _include(self, codes: Ints, values: Any) -> None:
        if self._values is None:
            self._values = np.full(self._size, self._worst(np.iinfo(values.dtype)), values.dtype)
        self._chosen.at(self._values, codes, values)

    def result(self, codes: Ints) -> tuple[Any, list[tuple[int, int]]]:
        if self._values is None:
            return pa.nulls(len(codes), pa.int32()), []
        return pa.array(self._values[codes], mask=self._seen[codes] == 0), []


class _Most(_Least):
    _chosen: Any = np.maximum

    @staticmethod
    def _worst(limits: Any) -> int:
        return limits.min


_FUNCTIONS: dict[str, type[_Function]] = {"count": _Count, "sum": _Sum, "min": _Least, "max": _Most}


def is_computed(function: str, type_: pa.DataType, *, is_held: bool) -> bool:
    """Whether a function of a column is what Spark computes; `is_held` for a column of a table in memory."""
    if function == "count":
        return True
    if function == "sum" and pa.types.is_floating(type_):
        return not is_held  # rows of one key may come in another order than Spark's
    return pa.types.is_integer(type_) or type_ == pa.date32()
