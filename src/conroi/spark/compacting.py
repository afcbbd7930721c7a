"""Compaction as a Spark job: planned and committed by the driver, each group of fragments rewritten by a task."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conroi.data.pinned import Pinned
from conroi.data.writing import Progress
from conroi.format.documents import parse_object
from conroi.spark.answers import Answer
from conroi.spark.fragment_jobs import FragmentJobs
from conroi.spark.progress import shown, watched
from conroi.verbs.compact import CompactOptions, Rewritten, compaction_tasks, rewrite_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class CompactTask:
    """Rewrites fragments that were planned to be rewritten together."""

    tasks: dict[tuple[int, ...], str]

    @property
    def asked(self) -> Hashable:
        return None  # the same fragments, rewritten in whatever plan, hold the same rows

    def do(self, pinned: Pinned, ids: Sequence[int]) -> Answer:
        return Answer(fragments=rewrite_group(pinned, self.tasks[tuple(ids)]).new)


class CompactOnExecutors:
    """As `RewriteGroups` of conroi.verbs.compact asks for it."""

    def __init__(self, spark: SparkSession) -> None:
        self._jobs = FragmentJobs(spark)

    def __call__(self, pinned: Pinned, options: CompactOptions, progress: Progress | None) -> Sequence[Rewritten]:
        planned = {_ids(task): task for task in compaction_tasks(pinned, options)}
        known = pinned.manifest.fragments_by_id
        rows = sum(known[number].physical_rows for group in planned for number in group)
        with watched(progress, f"compact {shown(pinned)}", rows) as told:
            answers = self._jobs.run(pinned, CompactTask(planned), list(planned), told)
        return [Rewritten(ids, answer.fragments) for ids, answer in zip(planned, answers, strict=True)]


def _ids(task: str) -> tuple[int, ...]:
    return tuple(fragment["id"] for fragment in parse_object(task, "The plan of a compaction")["task"]["fragments"])
