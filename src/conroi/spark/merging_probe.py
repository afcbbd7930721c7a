"""Broadcast join of a merge with a small source: its keys are sent to every task, which searches its fragments."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from conroi.data.pinned import Pinned
from conroi.data.rows import addresses_in, addresses_of, offsets_by_fragment
from conroi.merging.matching import Match, match, others
from conroi.spark.answers import Answer, all_leaving
from conroi.spark.blobs import packed, unpacked
from conroi.spark.fragment_jobs import FragmentJobs, groups_of


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

    def do(self, pinned: Pinned, ids: Sequence[int]) -> Answer:
        found = match(pinned, self._source_keys, self.on, needs_target_only=self.needs_target_only, fragment_ids=ids)
        pairs = pa.table({"address": pa.array(found.addresses), "source": pa.array(found.source_rows)})
        return Answer(leaving=offsets_by_fragment(found.unmatched_target), more=packed(pairs))


@dataclass(frozen=True)
class Probing:
    """A `Matching` by tasks; the rest of the merge is done here, since the source is here anyway."""

    jobs: FragmentJobs

    def __call__(self, pinned: Pinned, source_keys: pa.Table, on: Sequence[str], *, needs_target_only: bool) -> Match:
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
