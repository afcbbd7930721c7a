"""Cases of SQL conformance: statements on tables of a lake, and what plain Spark gives for the same rows.

The reference is Spark over Parquet files with the same rows. A query is run on both sides. INSERT runs on both sides,
too. For UPDATE, DELETE and MERGE, which Parquet does not have, a case has an equivalent query, written by hand.
`{t}` in a text is the table `t` of this module: in a lake, or as Parquet.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import conroi
from tests.spark.connector.conformance_rows import KEYS, TABLES
from tests.support.sampling import sampled

_numbers = itertools.count()


@dataclass(frozen=True)
class Case:
    """Statements, a query for the rows afterwards, and the reference."""

    name: str
    statements: Sequence[str]
    query: str
    expected: str | None = None
    """The query for the reference; by default the same one."""
    is_mirrored: bool = False
    """The statements run on Parquet tables, too."""
    error: str | None = None
    """The statements end with this error condition."""
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    checks: int = 1
    """Conditions that the case compares in one query."""

    def __str__(self) -> str:
        return self.name


def reads(name: str, query: str, **settings: str) -> Case:
    """A query that gives the same rows on both sides."""
    return Case(name, (), query, settings=_settings(settings))


def mirrored(name: str, *statements: str, query: str = "SELECT * FROM {t}", **settings: str) -> Case:
    """Statements that run on both sides."""
    return Case(name, statements, query, is_mirrored=True, settings=_settings(settings))


def changes(name: str, *statements: str, expected: str, query: str = "SELECT * FROM {t}", **settings: str) -> Case:
    """Statements that only a lake runs, and a query over Parquet for the rows afterwards."""
    return Case(name, statements, query, expected, settings=_settings(settings))


def refused(name: str, *statements: str, error: str, query: str = "SELECT * FROM {t}", **settings: str) -> Case:
    """The last statement fails with this error condition of Spark, or error type of conroi, and changes nothing."""
    return Case(name, statements, query, error=error, settings=_settings(settings))


def _settings(given: Mapping[str, str]) -> dict[str, str]:
    """`ansi_enabled="false"` is spark.sql.ansi.enabled."""
    return {f"spark.sql.{key.replace('_', '.')}": value for key, value in given.items()}


class Conformance:
    """Runs cases on one session. Each case that changes rows has tables of its own."""

    def __init__(self, session: SparkSession, lake: conroi.Lake, folder: Path) -> None:
        self._session = session
        self._lake = lake
        self._folder = folder
        self._references: dict[str, str] = {}
        self._shared: dict[str, str] = {}

    def check(self, case: Case) -> None:
        """Compare both sides."""
        with self._set(case.settings):
            ours, theirs = self._tables(case)
            if case.error is not None:
                self._check_refused(case.statements, case.error, ours)
            for statement in case.statements:
                if case.error is None:
                    self._session.sql(statement.format(**ours))
                if case.is_mirrored:
                    self._session.sql(statement.format(**theirs))
            found = self._rows(case.query.format(**ours))
            assert found == self._rows((case.expected or case.query).format(**theirs))

    def _check_refused(self, statements: Sequence[str], error: str, ours: Mapping[str, str]) -> None:
        *before, last = statements
        for statement in before:
            self._session.sql(statement.format(**ours))
        with pytest.raises((PySparkException, Py4JJavaError)) as caught:
            self._session.sql(last.format(**ours)).collect()
        assert error in str(caught.value), str(caught.value)

    def _rows(self, query: str) -> list[str]:
        """The rows in any order; NaN equals NaN, and 0.0 differs from -0.0."""
        return sorted(repr(tuple(row)) for row in self._session.sql(query).collect())

    # ------------------------------------------------------------------------ tables

    def _tables(self, case: Case) -> tuple[dict[str, str], dict[str, str]]:
        names = _named([*case.statements, case.query, case.expected or ""])
        theirs = {name: self._reference(name) for name in names}
        if not case.statements:
            return {name: self._kept(name) for name in names}, theirs
        if case.is_mirrored:
            theirs = {name: self._parquet_table(name) for name in names}
        return {name: self._new(name) for name in names}, theirs

    def _new(self, name: str) -> str:
        """A table of the lake, in two fragments."""
        rows, made = TABLES[name], f"{name}_{next(_numbers)}"
        key = KEYS.get(name)
        half = len(rows) // 2
        table = self._lake.create_table(made, _rows(rows, 0, half), key=key, stable_row_ids=key is not None)
        if len(rows):
            table.append(_rows(rows, half, len(rows)))
        return f"lake.{made}"

    def _kept(self, name: str) -> str:
        return self._shared.get(name) or self._shared.setdefault(name, self._new(name))

    def _reference(self, name: str) -> str:
        """A view of the same rows as Parquet."""
        if name not in self._references:
            path = self._folder / name
            path.mkdir(parents=True)
            pq.write_table(TABLES[name], path / "part.parquet")
            self._session.read.parquet(str(path)).createOrReplaceTempView(f"ref_{name}")
            self._references[name] = f"ref_{name}"
        return self._references[name]

    def _parquet_table(self, name: str) -> str:
        made = f"spark_catalog.default.{name}_{next(_numbers)}"
        self._session.sql(f"CREATE TABLE {made} USING parquet AS SELECT * FROM {self._reference(name)}")
        return made

    @contextmanager
    def _set(self, settings: Mapping[str, str]) -> Generator[None]:
        for key, value in settings.items():
            self._session.conf.set(key, value)
        try:
            yield
        finally:
            for key in settings:
                self._session.conf.unset(key)


def _rows(rows: pa.Table, start: int, end: int) -> pa.Table:
    """A copy: pylance 14.0.2 panics on a slice of structs that hold lists."""
    return rows.take(pa.array(range(start, end), pa.int64()))


def _named(texts: Sequence[str]) -> list[str]:
    found = {name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name is not None}
    return sorted(found)


def sample(group: str, cases: Sequence[Case], least: int) -> list[Any]:
    """The cases of a group as parameters: some in `make test`, others each day; all of them in `make soak`."""
    assert len({case.name for case in cases}) == len(cases), "two cases have one name"
    return sampled(f"conformance {group}", [(case,) for case in cases], least=least, covers=False)


def both_kinds(cases: Sequence[Case]) -> list[Case]:
    """Each case on a table without a key, and on one with a key and stable row ids."""
    return [*cases, *(_on_keyed(case) for case in cases)]


def _on_keyed(case: Case) -> Case:
    def moved(text: str) -> str:
        return text.replace("{t}", "{k}")

    values: dict[str, Any] = {**vars(case), "name": f"{case.name}, with a key"}
    values["statements"] = tuple(map(moved, case.statements))
    values["query"] = moved(case.query)
    values["expected"] = None if case.expected is None else moved(case.expected)
    return Case(**values)
