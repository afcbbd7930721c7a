"""Spark jobs over fragments of one version: update and delete, new columns, compaction."""

from __future__ import annotations

import sys
from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from conroi.data.columns import BatchFunction, Columns, column_batches, write_column_file
from conroi.data.incoming import KeysSeen
from conroi.data.keys import key_columns_of
from conroi.data.predicates import Predicate, scan_rows
from conroi.data.rows import Rows, addresses_of
from conroi.data.table_version import TableVersion
from conroi.data.writer import Progress
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.json import parse_object
from conroi.operations.base import copied
from conroi.spark.packets import ANSWER_SCHEMA, Answer, all_leaving, answers_of
from conroi.spark.pins import PinnedVersion
from conroi.spark.scan import BYTES_PER_TASK, checked_filter, shared_out
from conroi.verbs.columns import with_new_fields
from conroi.verbs.compact import CompactOptions, Rewritten, compaction_tasks, rewrite_group
from conroi.verbs.update import Here, NewRows, changed_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def watched(progress: Progress | None, what: str, rows: int) -> Generator[Progress | None]:
    """The caller's own; or a bar on the terminal, if there is one and `rich` is installed."""
    if progress is not None or not sys.stderr.isatty() or find_spec("rich") is None:
        yield progress
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True)) as bars:
        bar = bars.add_task(what, total=rows)

        drawn = 0

        def draw(done: int) -> None:
            nonlocal drawn
            bars.advance(bar, done - drawn)
            drawn = done

        yield draw


def shown(pinned: TableVersion) -> str:
    """A short name of the table."""
    return pinned.root.rstrip("/").rpartition("/")[2]


STEPS = 20
"""Number of jobs that the tasks are split into if progress is shown, since Spark reports a job only at its end."""
JOBS_AT_A_TIME = 4

Groups = Sequence[Sequence[int]]
"""The ids of the fragments that each task works on."""


class FragmentTask(Protocol):
    """Work on some fragments. It travels, so it is made of plain facts."""

    @property
    def asked(self) -> Hashable:
        """All that its answer depends on, besides the fragments and the columns of the table."""
        ...

    def do(self, pinned: TableVersion, ids: Sequence[int]) -> Answer:
        """Do it; InvalidInputError goes to the user."""
        ...


def groups_of(pinned: TableVersion, columns: pa.Schema) -> list[list[int]]:
    """The fragments, shared out among tasks that read these columns."""
    return shared_out(pinned.manifest.fragments, columns, BYTES_PER_TASK)


@dataclass(frozen=True)
class Each:
    """For `mapInArrow` over the numbers of groups: does the task for each."""

    task: FragmentTask
    version: PinnedVersion
    groups: tuple[tuple[int, ...], ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pinned = self.version.opened()
        for batch in batches:
            for number in map(int, addresses_of(batch.column(0))):
                yield replace(self._answer(pinned, number), task=number).to_batch()

    def _answer(self, pinned: TableVersion, number: int) -> Answer:
        try:
            return self.task.do(pinned, self.groups[number])
        except InvalidInputError as error:
            return Answer(error=error)


class FragmentJobs:
    """Runs tasks for one verb. Done again on a newer version, only fragments that changed are worked on again."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._kept: dict[tuple[Hashable, ...], Answer] = {}

    def run(
        self, pinned: TableVersion, task: FragmentTask, groups: Groups, progress: Progress | None = None
    ) -> list[Answer]:
        """What the tasks answer, group by group; `progress` is told how many rows are done."""
        keys = [_key(pinned, task, group) for group in groups]
        missing = [number for number, key in enumerate(keys) if key not in self._kept]
        done = self._rows(pinned, groups, set(range(len(groups))) - set(missing))
        steps = 1 if progress is None else STEPS
        for step in self._steps(pinned, task, groups, missing, steps):
            for answer in step:
                self._kept[keys[answer.task]] = answer
            done += self._rows(pinned, groups, {answer.task for answer in step})
            if progress is not None:
                progress(done)
        return [self._kept[key] for key in keys]

    def _steps(
        self, pinned: TableVersion, task: FragmentTask, groups: Groups, missing: Sequence[int], at_most: int
    ) -> Iterator[list[Answer]]:
        each = Each(task, PinnedVersion.of(pinned), tuple(tuple(group) for group in groups))
        count = max(1, -(-len(missing) // at_most))
        steps = [missing[start : start + count] for start in range(0, len(missing), count)]
        if len(steps) < 2:
            yield from (self._job(each, step) for step in steps)
            return
        with ThreadPoolExecutor(JOBS_AT_A_TIME) as pool:
            for future in as_completed([pool.submit(self._job, each, step) for step in steps]):
                yield future.result()

    def _job(self, each: Each, numbers: Sequence[int]) -> list[Answer]:
        chosen = Each(each.task, each.version, tuple(each.groups[number] for number in numbers))
        tasks = self._spark.range(0, len(numbers), 1, len(numbers))
        # One action and no other: every further one would do the work again.
        answers = answers_of(tasks.mapInArrow(chosen, ANSWER_SCHEMA).toArrow())
        return [replace(answer, task=numbers[answer.task]) for answer in answers]

    @staticmethod
    def _rows(pinned: TableVersion, groups: Groups, numbers: set[int]) -> int:
        known = pinned.manifest.fragments_by_id
        return sum(known[fragment].physical_rows for number in numbers for fragment in groups[number])


def _key(pinned: TableVersion, task: FragmentTask, group: Sequence[int]) -> tuple[Hashable, ...]:
    """What an answer is the answer to; files are never written twice under one name."""
    fragments = [pinned.manifest.fragments_by_id[number] for number in group]
    columns = pb.ManifestHead(fields=pinned.manifest.fields).SerializeToString(deterministic=True)
    return (
        type(task).__name__,
        task.asked,
        columns,
        pb.Transaction.Append(fragments=fragments).SerializeToString(deterministic=True),
    )


@dataclass(frozen=True)
class CompactTask:
    """Rewrites fragments that were planned to be rewritten together."""

    tasks: dict[tuple[int, ...], str]

    @property
    def asked(self) -> Hashable:
        return None  # the same fragments, rewritten in whatever plan, hold the same rows

    def do(self, pinned: TableVersion, ids: Sequence[int]) -> Answer:
        return Answer(fragments=rewrite_group(pinned, self.tasks[tuple(ids)]).new)


class CompactOnExecutors:
    """As `RewriteGroups` of conroi.verbs.compact asks for it."""

    def __init__(self, spark: SparkSession) -> None:
        self._jobs = FragmentJobs(spark)

    def __call__(self, pinned: TableVersion, options: CompactOptions, progress: Progress | None) -> Sequence[Rewritten]:
        planned = {_ids(task): task for task in compaction_tasks(pinned, options)}
        known = pinned.manifest.fragments_by_id
        rows = sum(known[number].physical_rows for group in planned for number in group)
        with watched(progress, f"compact {shown(pinned)}", rows) as told:
            answers = self._jobs.run(pinned, CompactTask(planned), list(planned), told)
        return [Rewritten(ids, answer.fragments) for ids, answer in zip(planned, answers, strict=True)]


def _ids(task: str) -> tuple[int, ...]:
    return tuple(fragment["id"] for fragment in parse_object(task, "The plan of a compaction")["task"]["fragments"])


Expressions = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class FindTask:
    """Looks for the rows for which a condition holds."""

    where: str | None

    @property
    def asked(self) -> Hashable:
        return self

    def do(self, pinned: TableVersion, ids: Sequence[int]) -> Answer:
        return Answer(leaving=scan_rows(pinned, self.where, ids))


@dataclass(frozen=True)
class RowsTask:
    """Writes those rows anew, with new values."""

    expressions: Expressions
    where: str | None

    @property
    def asked(self) -> Hashable:
        return self

    def do(self, pinned: TableVersion, ids: Sequence[int]) -> Answer:
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

    def do(self, pinned: TableVersion, ids: Sequence[int]) -> Answer:
        rows = scan_rows(pinned, self.where, ids)
        return Answer(fragments=Here(ids).new_columns(pinned, dict(self.expressions), self.where, rows))


class OnExecutors:
    """Does the work of one update or delete; as `Rewriting` of conroi.verbs.update asks for it."""

    def __init__(self, spark: SparkSession) -> None:
        self._jobs = FragmentJobs(spark)

    def find(self, pinned: TableVersion, where: Predicate | None) -> Rows:
        task = FindTask(checked_filter(where, pinned.root))
        return all_leaving(self._jobs.run(pinned, task, groups_of(pinned, pinned.schema)))

    def new_rows(self, pinned: TableVersion, expressions: Mapping[str, str], where: Predicate | None) -> NewRows:
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
        self, pinned: TableVersion, expressions: Mapping[str, str], where: Predicate | None, rows: Rows
    ) -> Sequence[pb.DataFragment]:
        task = ColumnsTask(tuple(expressions.items()), checked_filter(where, pinned.root))
        schema = pa.schema([pinned.schema.field(name) for name in expressions])
        groups = [[number for number in group if number in rows] for group in groups_of(pinned, schema)]
        answers = self._jobs.run(pinned, task, [group for group in groups if group])
        return [copied(fragment) for answer in answers for fragment in answer.fragments]


@dataclass(frozen=True)
class Computing:
    """How the new columns are computed."""

    columns: BatchFunction | tuple[tuple[str, str], ...]
    read_columns: tuple[str, ...] | None

    @staticmethod
    def of(columns: Columns, read_columns: Sequence[str] | None) -> Computing:
        made_of = tuple(columns.items()) if isinstance(columns, Mapping) else columns
        return Computing(made_of, None if read_columns is None else tuple(read_columns))

    def batches(self, pinned: TableVersion, fragment_id: int) -> pa.RecordBatchReader:
        """The new columns of one fragment."""
        columns = self.columns if callable(self.columns) else dict(self.columns)
        return column_batches(pinned, fragment_id, columns, self.read_columns)


@dataclass(frozen=True)
class SchemaTask:
    """Says what types the new columns have, from the first rows of a fragment."""

    computing: Computing

    @property
    def asked(self) -> Hashable:
        return self

    def do(self, pinned: TableVersion, ids: Sequence[int]) -> Answer:
        schema = self.computing.batches(pinned, ids[0]).schema
        return Answer(more=schema.serialize().to_pybytes())


@dataclass(frozen=True)
class AddTask:
    """Writes a file with the new columns for each of its fragments."""

    computing: Computing
    schema: bytes
    fields: tuple[bytes, ...]

    @property
    def asked(self) -> Hashable:
        return self

    def do(self, pinned: TableVersion, ids: Sequence[int]) -> Answer:
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        writer = pinned.writer([pb.Field.FromString(field) for field in self.fields])
        written: list[pb.DataFragment] = []
        for number in ids:
            rows = pinned.manifest.fragments_by_id[number].physical_rows
            file = write_column_file(pinned, writer, self.computing.batches(pinned, number), schema, rows)
            written.append(pb.DataFragment(id=number, files=[file], physical_rows=rows))
        return Answer(fragments=written)


class AddOnExecutors:
    """As `ComputeColumns` of conroi.verbs.columns asks for it."""

    def __init__(self, spark: SparkSession) -> None:
        self._jobs = FragmentJobs(spark)

    def __call__(
        self, pinned: TableVersion, columns: Columns, read_columns: Sequence[str] | None, progress: Progress | None
    ) -> tuple[Sequence[pb.Field], Sequence[pb.DataFile]]:
        computing = Computing.of(columns, read_columns)
        fragments = pinned.manifest.fragments
        # The types must be known, and the same, before any task writes: the first fragment says them.
        found = self._jobs.run(pinned, SchemaTask(computing), [[fragments[0].id]])[0].more
        schema = pa.ipc.read_schema(pa.py_buffer(found or b""))
        fields = with_new_fields(pinned, list(schema))
        encoded = tuple(field.SerializeToString(deterministic=True) for field in fields)
        task = AddTask(computing, schema.serialize().to_pybytes(), encoded)
        rows = sum(fragment.physical_rows for fragment in fragments)
        with watched(progress, f"add columns to {shown(pinned)}", rows) as told:
            answers = self._jobs.run(pinned, task, groups_of(pinned, pinned.schema), told)
        files = {fragment.id: fragment.files[0] for answer in answers for fragment in answer.fragments}
        return fields, [files[fragment.id] for fragment in fragments]
