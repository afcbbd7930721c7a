"""Update and delete as Spark jobs: each task rewrites some fragments and returns the deleted rows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from conroi.data.finding import scan_rows
from conroi.data.keys import key_columns_of
from conroi.data.pinned import Pinned
from conroi.data.predicates import Predicate
from conroi.data.rows import Rows
from conroi.format import lance_pb2 as pb
from conroi.operations.base import copied
from conroi.spark.answers import Answer, all_leaving
from conroi.spark.fragment_jobs import FragmentJobs, groups_of
from conroi.spark.scanning import checked_filter
from conroi.verbs.keyed import KeysSeen
from conroi.verbs.update import Here, NewRows, changed_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Expressions = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class FindTask:
    """Looks for the rows for which a condition holds."""

    where: str | None

    @property
    def asked(self) -> Hashable:
        return self

    def do(self, pinned: Pinned, ids: Sequence[int]) -> Answer:
        return Answer(leaving=scan_rows(pinned, self.where, ids))


@dataclass(frozen=True)
class RowsTask:
    """Writes those rows anew, with new values."""

    expressions: Expressions
    where: str | None

    @property
    def asked(self) -> Hashable:
        return self

    def do(self, pinned: Pinned, ids: Sequence[int]) -> Answer:
        new = Here(ids).new_rows(pinned, dict(self.expressions), self.where)
        return Answer(fragments=new.fragments, leaving=new.leaving)


@dataclass(frozen=True)
class ColumnsTask:
    """Writes columns of whole fragments anew, with new values in those rows."""

    expressions: Expressions
    where: str | None

    @property
    def asked(self) -> Hashable:
        return self

    def do(self, pinned: Pinned, ids: Sequence[int]) -> Answer:
        rows = scan_rows(pinned, self.where, ids)
        return Answer(fragments=Here(ids).new_columns(pinned, dict(self.expressions), self.where, rows))


class OnExecutors:
    """Does the work of one update or delete; as `Rewriting` of conroi.verbs.update asks for it."""

    def __init__(self, spark: SparkSession) -> None:
        self._jobs = FragmentJobs(spark)

    def find(self, pinned: Pinned, where: Predicate | None) -> Rows:
        task = FindTask(checked_filter(where, pinned.root))
        return all_leaving(self._jobs.run(pinned, task, groups_of(pinned, pinned.schema)))

    def new_rows(self, pinned: Pinned, expressions: Mapping[str, str], where: Predicate | None) -> NewRows:
        task = RowsTask(tuple(expressions.items()), checked_filter(where, pinned.root))
        answers = self._jobs.run(pinned, task, groups_of(pinned, pinned.schema))
        seen = KeysSeen(changed_key(pinned, expressions))
        if seen.columns:
            tops = list(dict.fromkeys(path.partition(".")[0] for path in seen.columns))
            written = [part for answer in answers for part in answer.columns(pinned.files.objects, tops)]
            seen.add(key_columns_of(part, seen.columns) for part in written)
        fragments = [copied(fragment) for answer in answers for fragment in answer.fragments]
        return NewRows(fragments, all_leaving(answers), seen)

    def new_columns(
        self, pinned: Pinned, expressions: Mapping[str, str], where: Predicate | None, rows: Rows
    ) -> Sequence[pb.DataFragment]:
        task = ColumnsTask(tuple(expressions.items()), checked_filter(where, pinned.root))
        schema = pa.schema([pinned.schema.field(name) for name in expressions])
        groups = [[number for number in group if number in rows] for group in groups_of(pinned, schema)]
        answers = self._jobs.run(pinned, task, [group for group in groups if group])
        return [copied(fragment) for answer in answers for fragment in answer.fragments]
