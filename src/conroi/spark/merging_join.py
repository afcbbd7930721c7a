"""Shuffle join of a merge in which source and table are both large.

The source and the table's keys, each with the address of its row, are hash-partitioned by key and compared in each
bucket. Where a clause needs values of the table, each pair then goes to the task of its fragment, so that no file is
read by more than one task. Rows travel serialized. The code that compares and evaluates clauses is that of the merge in
one process.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from conroi.data.pinned import Pinned
from conroi.data.rows import count_rows
from conroi.data.width import row_width
from conroi.merging.change import Columns, RowChange, planned
from conroi.merging.request import Request
from conroi.spark.answers import SCHEMA, Answer, all_leaving, answers_of, total
from conroi.spark.fragment_jobs import groups_of
from conroi.spark.gathering import Gathered
from conroi.spark.merging_tasks import Join, MatchBucket, MergeBucket, MergeGroup, ShareKeys, ShareSource
from conroi.spark.packets import SCHEMA as PACKETS
from conroi.spark.pins import PinnedVersion
from conroi.verbs.plan import Plan

BYTES_PER_BUCKET = 32 * 1024 * 1024
FEWEST_BUCKETS, MOST_BUCKETS = 2, 4096


class Joining:
    """The verb. Done again on a newer version, the source is not worked out again, but the table's keys are read."""

    def __init__(self, source: Gathered, request: Request) -> None:
        self._source = source
        self._request = request

    def __call__(self, pinned: Pinned) -> Plan | None:
        """The change; None if no clause finds a row."""
        answers = self._run(self._join(pinned))
        return planned(pinned, self._request, change_of(pinned, answers))

    def _join(self, pinned: Pinned) -> Join:
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
            return answers_of(met.mapInArrow(MergeBucket(join), SCHEMA).toArrow())
        pairs = met.mapInArrow(MatchBucket(join), PACKETS)
        shared = pairs.repartitionById(len(join.groups) + join.buckets, "place")
        return answers_of(shared.mapInArrow(MergeGroup(join), SCHEMA).toArrow())


def change_of(pinned: Pinned, answers: Sequence[Answer]) -> RowChange:
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
