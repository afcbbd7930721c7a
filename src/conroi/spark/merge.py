"""MERGE with Spark: a broadcast of the source, or a shuffle join where both sides are big."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa

from conroi.data.arrow_types import row_width
from conroi.data.rows import addresses_in, addresses_of, count_rows, offsets_by_fragment
from conroi.data.table_version import TableVersion
from conroi.merge.change import Columns, RowChange, planned
from conroi.merge.matching import Match, MergePlan, SourceSize, Way, choose, match, others
from conroi.merge.outcome import try_out
from conroi.merge.request import Request
from conroi.merge.verb import Merging
from conroi.spark.fragment_jobs import FragmentJobs, groups_of
from conroi.spark.frames import Gathered, SparkRows
from conroi.spark.merge_tasks import Join, MatchBucket, MergeBucket, MergeGroup, ShareKeys, ShareSource
from conroi.spark.packets import SCHEMA as PACKETS
from conroi.spark.pins import PinnedVersion
from conroi.spark.results import ANSWER_SCHEMA, Answer, all_leaving, answers_of, packed, total, unpacked
from conroi.verbs.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkMerging:
    """The verb; inside `with`, since executors keep the source until it is over."""

    def __init__(
        self, source: SparkRows | pa.Table, request: Request, way: Way | None, spark: SparkSession | None
    ) -> None:
        self._source = Gathered(source.frame) if isinstance(source, SparkRows) else source
        self._request = request
        self._way: Way | None = way
        self._spark = self._source.session if isinstance(self._source, Gathered) else spark
        self._chosen: Merging | Joining | None = None

    def __enter__(self) -> SparkMerging:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(self._source, Gathered):
            self._source.release()

    def plan(self, pinned: TableVersion) -> MergePlan:
        """How it will be done."""
        try_out(pinned, self._request, self._source.schema)
        is_frame = isinstance(self._source, Gathered)
        size = (
            SourceSize(self._source.rows, self._source.bytes)
            if isinstance(self._source, Gathered)
            else (SourceSize(self._source.num_rows, self._source.nbytes))
        )
        has_spark = self._spark is not None
        return choose(self._request, pinned, size, has_spark=has_spark, is_frame=is_frame, way=self._way)

    def __call__(self, pinned: TableVersion) -> Plan | None:
        """The change; None if no clause finds a row."""
        if self._chosen is None:
            self._chosen = self._as(self.plan(pinned).way)
        return self._chosen(pinned)

    def _as(self, way: Way) -> Merging | Joining:
        if way == "join":
            assert isinstance(self._source, Gathered), "only DataFrames are joined"
            return Joining(self._source, self._request)
        rows = self._source.to_table() if isinstance(self._source, Gathered) else self._source
        if way == "process":
            return Merging(rows, self._request)
        assert self._spark is not None, "checked when the way was chosen"
        return Merging(rows, self._request, Probing(FragmentJobs(self._spark)))


BYTES_PER_BUCKET = 32 * 1024 * 1024
FEWEST_BUCKETS, MOST_BUCKETS = 2, 4096


class Joining:
    """The verb. Done again on a newer version, the source is not worked out again, but the table's keys are read."""

    def __init__(self, source: Gathered, request: Request) -> None:
        self._source = source
        self._request = request

    def __call__(self, pinned: TableVersion) -> Plan | None:
        """The change; None if no clause finds a row."""
        answers = self._run(self._join(pinned))
        return planned(pinned, self._request, change_of(pinned, answers))

    def _join(self, pinned: TableVersion) -> Join:
        columns = pa.schema([pinned.schema.field(column) for column in self._request.on])
        key_bytes = count_rows(pinned.manifest.fragments) * (row_width(columns) + 8)
        buckets = (self._source.bytes + key_bytes) // BYTES_PER_BUCKET
        return Join(
            version=PinnedVersion.of(pinned),
            request=self._request,
            schema=self._source.schema.serialize().to_pybytes(),
            buckets=min(MOST_BUCKETS, max(FEWEST_BUCKETS, buckets)),
            groups=tuple(tuple(group) for group in groups_of(pinned, pinned.schema)),
        )

    def _run(self, join: Join) -> list[Answer]:
        met = self._source.shared_out().mapInArrow(ShareSource(join), PACKETS)
        if join.groups:
            tasks = self._source.session.range(0, len(join.groups), 1, len(join.groups))
            met = met.unionAll(tasks.mapInArrow(ShareKeys(join), PACKETS))
        met = met.repartitionById(join.buckets, "place")
        if not join.needs_table:
            return answers_of(met.mapInArrow(MergeBucket(join), ANSWER_SCHEMA).toArrow())
        pairs = met.mapInArrow(MatchBucket(join), PACKETS)
        shared = pairs.repartitionById(len(join.groups) + join.buckets, "place")
        return answers_of(shared.mapInArrow(MergeGroup(join), ANSWER_SCHEMA).toArrow())


def change_of(pinned: TableVersion, answers: Sequence[Answer]) -> RowChange:
    """The combined result of all tasks. Columns of the new rows are read from their files on access."""

    def columns(of_inserted: bool) -> Columns:
        def read(names: Sequence[str]) -> pa.Table:
            schema = pa.schema([pinned.schema.field(name) for name in names])
            parts: list[pa.Table] = []
            for answer in answers:
                start = answer.counts["updated"] if of_inserted else 0
                parts += answer.columns(pinned.files.objects, names, start)
            return pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts)])

        return read

    return RowChange(
        leaving=all_leaving(answers),
        updated=total(answers, "updated"),
        inserted=total(answers, "inserted"),
        deleted=total(answers, "deleted"),
        inserted_rows=columns(True),
        coming_rows=columns(False),
        write=lambda: [fragment for answer in answers for fragment in answer.fragments],
    )


@dataclass(frozen=True)
class ProbeTask:
    """Looks for keys in some fragments."""

    keys: bytes
    on: tuple[str, ...]
    needs_target_only: bool

    @property
    def asked(self) -> Hashable:
        return self

    @cached_property
    def _source_keys(self) -> pa.Table:
        return unpacked(self.keys)

    def do(self, pinned: TableVersion, ids: Sequence[int]) -> Answer:
        found = match(pinned, self._source_keys, self.on, needs_target_only=self.needs_target_only, fragment_ids=ids)
        pairs = pa.table({"address": pa.array(found.addresses), "source": pa.array(found.source_rows)})
        return Answer(leaving=offsets_by_fragment(found.unmatched_target), more=packed(pairs))


@dataclass(frozen=True)
class Probing:
    """A `Matching` by tasks; the rest of the merge is done here, since the source is here anyway."""

    jobs: FragmentJobs

    def __call__(
        self, pinned: TableVersion, source_keys: pa.Table, on: Sequence[str], *, needs_target_only: bool
    ) -> Match:
        columns = pa.schema([pinned.schema.field(column) for column in on])
        task = ProbeTask(packed(source_keys), tuple(on), needs_target_only)
        answers = self.jobs.run(pinned, task, groups_of(pinned, columns))
        empty = pa.table({"address": pa.array([], pa.uint64()), "source": pa.array([], pa.int64())})
        pairs = pa.concat_tables([empty, *(unpacked(answer.more or b"") for answer in answers)])
        source_rows = pairs["source"].to_numpy()
        return Match(
            addresses=addresses_of(pairs["address"]),
            source_rows=source_rows,
            unmatched_source=others(source_rows, source_keys.num_rows),
            unmatched_target=addresses_of(addresses_in(all_leaving(answers))),
        )
