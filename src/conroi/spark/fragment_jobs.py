"""Spark jobs over the fragments of one version, some fragments per task."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from conroi.data.pinned import Pinned
from conroi.data.rows import addresses_of
from conroi.data.writing import Progress
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.spark.answers import SCHEMA, Answer, answers_of
from conroi.spark.pins import PinnedVersion
from conroi.spark.sizes import BYTES_PER_TASK, shared_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

    def do(self, pinned: Pinned, ids: Sequence[int]) -> Answer:
        """Do it; InvalidInputError goes to the user."""
        ...


def groups_of(pinned: Pinned, columns: pa.Schema) -> list[list[int]]:
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

    def _answer(self, pinned: Pinned, number: int) -> Answer:
        try:
            return self.task.do(pinned, self.groups[number])
        except InvalidInputError as error:
            return Answer(error=error)


class FragmentJobs:
    """Runs tasks for one verb. Done again on a newer version, only fragments that changed are worked on again."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._kept: dict[tuple[Hashable, ...], Answer] = {}

    def run(self, pinned: Pinned, task: FragmentTask, groups: Groups, progress: Progress | None = None) -> list[Answer]:
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
        self, pinned: Pinned, task: FragmentTask, groups: Groups, missing: Sequence[int], at_most: int
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
        answers = answers_of(tasks.mapInArrow(chosen, SCHEMA).toArrow())
        return [replace(answer, task=numbers[answer.task]) for answer in answers]

    @staticmethod
    def _rows(pinned: Pinned, groups: Groups, numbers: set[int]) -> int:
        known = pinned.manifest.fragments_by_id
        return sum(known[fragment].physical_rows for number in numbers for fragment in groups[number])


def _key(pinned: Pinned, task: FragmentTask, group: Sequence[int]) -> tuple[Hashable, ...]:
    """What an answer is the answer to; files are never written twice under one name."""
    fragments = [pinned.manifest.fragments_by_id[number] for number in group]
    columns = pb.ManifestHead(fields=pinned.manifest.fields).SerializeToString(deterministic=True)
    return (
        type(task).__name__,
        task.asked,
        columns,
        pb.Transaction.Append(fragments=fragments).SerializeToString(deterministic=True),
    )
