"""MERGE with Spark: a broadcast of the source, or a shuffle join where both sides are big."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from conroi.commit.change import Plan
from conroi.data.arrow_types import positions, row_width
from conroi.data.keys import key_columns_of, scan_keys
from conroi.data.rows import addresses_in, addresses_of, offsets_by_fragment
from conroi.data.table_version import TableVersion
from conroi.errors import InvalidInputError
from conroi.format.manifest import count_rows
from conroi.merge.matching import Addresses, Match, match, match_keys, others, refuse_doubled
from conroi.merge.outcome import Decision, try_out
from conroi.merge.plan_choice import MergePlan, SourceSize, Way, choose
from conroi.merge.request import Action, Request, RowKind
from conroi.merge.verb import Columns, Merging, RowChange, inserted_rows, joined, keep_row_ids, planned
from conroi.spark.fragment_jobs import FragmentJobs, groups_of
from conroi.spark.packets import (
    ANSWER_SCHEMA,
    PACKET_SCHEMA,
    Answer,
    Received,
    all_leaving,
    answers_of,
    buckets_of,
    packed,
    portions,
    sent,
    sent_error,
    total,
    unpacked,
)
from conroi.spark.pins import PinnedVersion
from conroi.spark.write_task import Gathered, SparkRows
from conroi.verbs.key_check import refuse_repeated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SOURCE, KEYS, PAIRS, ALONE = range(4)
"""What is in a packet: rows of the source; keys of the table; rows of the source, each with the address of its partner;
addresses of rows of the table that have no partner."""
ADDRESS = "\0address"
_ADDRESSES = pa.schema({ADDRESS: pa.uint64()})


@dataclass(frozen=True)
class Join:
    """What every task knows."""

    version: PinnedVersion
    request: Request
    schema: bytes
    """Of the source."""
    buckets: int
    groups: tuple[tuple[int, ...], ...]
    """The fragments of each task that reads the table."""

    @property
    def pinned(self) -> TableVersion:
        return self.version.opened()

    @cached_property
    def source_schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self.schema))

    @cached_property
    def _group_of(self) -> dict[int, int]:
        return {fragment: number for number, group in enumerate(self.groups) for fragment in group}

    def groups_of(self, addresses: Addresses) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """The group of each row of the table."""
        fragments, places = np.unique(addresses >> np.uint64(32), return_inverse=True)
        return np.array([self._group_of[int(fragment)] for fragment in fragments], np.int32)[places]

    @property
    def needs_table(self) -> bool:
        """Whether a clause looks at rows of the table, beyond their keys."""
        has_all = set(self.pinned.schema.names) <= set(self.source_schema.names)
        return not all(
            clause.rows is RowKind.SOURCE_ONLY
            or (clause.condition is None and clause.values is None and (clause.action is Action.DELETE or has_all))
            for clause in self.request.clauses
        )


@dataclass(frozen=True)
class ShareSource:
    """For `mapInArrow` over packets of the source: its rows go to the buckets of their keys."""

    join: Join

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for portion in portions(batches):
            rows = portion.cast(self.join.source_schema)
            try:
                keys = self.join.request.keys(self.join.pinned, rows)
            except InvalidInputError as error:
                yield sent_error(error)
                return
            yield from sent(rows, buckets_of(keys, self.join.buckets), SOURCE)


@dataclass(frozen=True)
class ShareKeys:
    """For `mapInArrow` over the numbers of groups of fragments: the table's keys go to their buckets."""

    join: Join

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in addresses_of(batch.column(0)):
                for fragment in self.join.groups[int(number)]:
                    keys = scan_keys(self.join.pinned, self.join.request.on, fragment_ids=[fragment])
                    places = buckets_of(keys.select(keys.column_names[:-1]), self.join.buckets)
                    yield from sent(keys, places, KEYS)


@dataclass(frozen=True)
class Bucket:
    """Rows of the source, and the rows of the table that may have their keys."""

    join: Join

    def matched(self, received: Received) -> tuple[pa.Table, pa.Table, Match]:
        """The source, the same in the table's types, and which row has which partner."""
        join, request = self.join, self.join.request
        source = received.rows(SOURCE, join.source_schema)
        fitted = request.fitted(join.pinned, source)
        keys = key_columns_of(fitted, request.on)
        refuse_repeated(keys, request.on, join.pinned.root)
        target = received.rows(KEYS, keys.schema.append(pa.field("_rowaddr", pa.uint64())))
        found = match_keys(target, keys, needs_target_only=request.has(RowKind.TARGET_ONLY))
        if request.is_on_key(join.pinned):
            refuse_doubled(join.pinned, found, keys, request.on)
        return source, fitted, found


class MergeBucket(Bucket):
    """For `mapInArrow` over a bucket: merges it, where the source says all there is to know."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        received = Received(batches)
        if not received:
            return
        try:
            answer = merged(self.join, received.place, *self.matched(received))
        except InvalidInputError as error:
            answer = Answer(error=error)
        yield answer.to_batch()


class MatchBucket(Bucket):
    """For `mapInArrow` over a bucket: sends each pair to the task of its fragment, and other rows of the source on."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        received = Received(batches)
        if not received:
            return
        try:
            source, _, found = self.matched(received)
        except InvalidInputError as error:
            yield sent_error(error)
            return
        if self.join.request.has(RowKind.MATCHED):
            pairs = source.take(positions(found.source_rows)).append_column(ADDRESS, pa.array(found.addresses))
            yield from sent(pairs, self.join.groups_of(found.addresses), PAIRS)
        if self.join.request.has(RowKind.SOURCE_ONLY):
            place = len(self.join.groups) + received.place
            alone = source.take(positions(found.unmatched_source))
            yield from sent(alone, np.full(alone.num_rows, place, np.int32), SOURCE)
        addresses = pa.table([pa.array(found.unmatched_target)], schema=_ADDRESSES)
        yield from sent(addresses, self.join.groups_of(found.unmatched_target), ALONE)


@dataclass(frozen=True)
class MergeGroup:
    """For `mapInArrow` over what was sent to a group of fragments."""

    join: Join

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        received = Received(batches)
        if received:
            yield self._answer(received).to_batch()

    def _answer(self, received: Received) -> Answer:
        schema = self.join.source_schema
        try:
            pairs = received.rows(PAIRS, schema.append(pa.field(ADDRESS, pa.uint64())))
            source = pa.concat_tables([pairs.select(schema.names), received.rows(SOURCE, schema)])
            found = Match(
                addresses=addresses_of(pairs[ADDRESS]),
                source_rows=np.arange(pairs.num_rows),
                unmatched_source=np.arange(pairs.num_rows, source.num_rows),
                unmatched_target=addresses_of(received.rows(ALONE, _ADDRESSES)[ADDRESS]),
            )
            fitted = self.join.request.fitted(self.join.pinned, source)
            return merged(self.join, received.place, source, fitted, found)
        except InvalidInputError as error:
            return Answer(error=error)


def merged(join: Join, place: int, source: pa.Table, fitted: pa.Table, found: Match) -> Answer:
    """Decide, and write the rows that come in."""
    pinned = join.pinned
    decided = Decision(pinned, source, fitted, found).by_clause(join.request.clauses)
    updated, deleted = joined(decided.updated), joined(decided.deleted)
    inserted = inserted_rows(pinned, decided)
    new = pa.concat_tables([*decided.updated_rows, inserted])
    fragments = pinned.writer().write(new.to_reader()).fragments
    keep_row_ids(pinned, fragments, updated)
    counts = {"updated": len(updated), "inserted": inserted.num_rows, "deleted": len(deleted)}
    return Answer(place, fragments, offsets_by_fragment(np.concatenate([updated, deleted])), counts)


class SparkMerging:
    """The verb; inside `with`, since executors keep the source until it is over."""

    def __init__(
        self, source: SparkRows | pa.Table, request: Request, way: Way | None, spark: SparkSession | None
    ) -> None:
        self._source = Gathered.of(source.frame) if isinstance(source, SparkRows) else source
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
        met = self._source.shared_out().mapInArrow(ShareSource(join), PACKET_SCHEMA)
        if join.groups:
            tasks = self._source.session.range(0, len(join.groups), 1, len(join.groups))
            met = met.unionAll(tasks.mapInArrow(ShareKeys(join), PACKET_SCHEMA))
        met = met.repartitionById(join.buckets, "place")
        if not join.needs_table:
            return answers_of(met.mapInArrow(MergeBucket(join), ANSWER_SCHEMA).toArrow())
        pairs = met.mapInArrow(MatchBucket(join), PACKET_SCHEMA)
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
