"""Tasks of the shuffle join of a merge: see merging_join."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from conroi.data.arrow_types import positions
from conroi.data.keys import key_columns_of, scan_keys
from conroi.data.rows import addresses_of, offsets_by_fragment
from conroi.data.table_version import TableVersion
from conroi.errors import InvalidInputError
from conroi.merge.change import keep_row_ids
from conroi.merge.matching import Addresses, Match, match_keys, refuse_doubled
from conroi.merge.outcome import Decision
from conroi.merge.request import Action, Request, RowKind
from conroi.merge.verb import inserted_rows, joined
from conroi.spark.packets import Received, buckets_of, portions, sent, sent_error
from conroi.spark.pins import PinnedVersion
from conroi.spark.results import Answer
from conroi.verbs.key_check import refuse_repeated

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
