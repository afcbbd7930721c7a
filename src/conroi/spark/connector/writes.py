"""Writes planned and staged on the driver: tasks write the files, one transaction makes them visible."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from conroi.commit.change import Plan
from conroi.data.incoming import KeysSeen
from conroi.data.rows import addresses_in, offsets_by_fragment, take_out
from conroi.data.table_version import TableVersion
from conroi.environment import Moment, moment
from conroi.errors import RetryableConflict, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.merge.verb import keep_row_ids
from conroi.operations import Delete, Update
from conroi.snapshots.deletions import load_deletions
from conroi.spark.connector.lake_session import LakeSession, RowCounts
from conroi.spark.connector.tables import Name, facts
from conroi.spark.connector.tasks import part_from_text, schema_to_text, struct_from_text, write_task_to_text
from conroi.spark.packets import Part
from conroi.spark.types import arrow_schema, is_exact_in_spark, table_schema
from conroi.spark.write_task import WriteTask, WrittenRows
from conroi.spark.writer import planned_task
from conroi.staged_table import TransactionTable
from conroi.verbs.key_check import checked_new_keys

Request = Mapping[str, Any]
Addresses = npt.NDArray[np.uint64]
BATCH_ROWS = 8192
"""Rows that a task collects before it sends them to its worker."""
_EVERYTHING = "TRUE"


@dataclass(frozen=True)
class PlannedWrite:
    """How the tasks of one write work."""

    task: WriteTask | None
    """None if no rows are written: a DELETE."""
    schema: pa.Schema
    begun_at: Moment
    written: list[Part] = field(default_factory=list[Part])
    """New rows, and updated ones where these need not keep their ids."""
    updated: list[Part] = field(default_factory=list[Part])
    """Updated rows that keep their ids."""
    updated_rows: list[Addresses] = field(default_factory=list[Addresses])
    deleted_rows: list[Addresses] = field(default_factory=list[Addresses])
    updates: list[int] = field(default_factory=list[int])
    """For each task, how many rows it updated."""

    def add(self, parts: Sequence[Mapping[str, Any]], addresses: bytes = b"") -> None:
        """Remember what some tasks wrote; raises the errors in their rows."""
        numbers = np.frombuffer(addresses, ">u8").astype(np.uint64)
        start = 0
        for part in parts:
            for found, text in ((self.written, part.get("written")), (self.updated, part.get("updated"))):
                if text is not None:
                    found.append(part_from_text(text))
            self.updates.append(part["updates"])
            for found, count in ((self.updated_rows, part["updatedRows"]), (self.deleted_rows, part["deletedRows"])):
                found.append(numbers[start : start + count])
                start += count

    def rows(self, parts: Sequence[Part]) -> WrittenRows:
        """What tasks wrote, as rows for a verb."""
        assert self.task is not None, "rows were written without a plan"
        return WrittenRows(self.task, self.schema, parts, self.begun_at)


def begin(session: LakeSession, request: Request) -> dict[str, Any]:
    """Begin a transaction."""
    session.begin(request["transaction"], request.get("message"))
    return {}


def commit(session: LakeSession, request: Request) -> dict[str, Any]:
    """Commit a transaction."""
    session.commit(request["transaction"])
    return {}


def rollback(session: LakeSession, request: Request) -> dict[str, Any]:
    """Roll back a transaction."""
    session.rollback(request["transaction"])
    return {}


def _target(session: LakeSession, request: Request) -> TransactionTable:
    target = request["target"]
    return session.transaction(request["transaction"]).on(target["branch"])[target["name"]]


def reload(session: LakeSession, request: Request) -> dict[str, Any]:
    """The table at the version of the transaction; its columns must be those that the statement was analyzed with."""
    target = request["target"]
    answer = facts(session, Name(target["name"], target["branch"]), _target(session, request), is_writable=True)
    if struct_from_text(answer["schema"]) != struct_from_text(request["schema"]):
        raise RetryableConflict(
            "The columns of the table changed while the statement was planned.",
            table=target["name"],
            hint="Run the statement again.",
        )
    return answer


def plan_write(session: LakeSession, request: Request) -> dict[str, Any]:
    """How the tasks write the rows of a statement."""
    table = _target(session, request)
    pinned = table.pinned
    replaces = request["mode"] in ("overwrite", "dynamic")
    if replaces and str(pinned.version) != request["version"]:
        raise RetryableConflict(
            f"The table changed to version {pinned.version} while the statement was planned.",
            table=table.name,
            version=pinned.version,
            base_version=int(request["version"]),
            hint="Run the statement again.",
        )
    if request["mode"] == "update":
        _refuse_inexact(table)
    struct = struct_from_text(request["schema"])
    schema, arrow = table_schema(struct), arrow_schema(struct)
    task = planned_task(cast("Any", table), schema, replaces_all=False) if schema.names else None
    planned = PlannedWrite(task, schema, moment(pinned.files.environment))
    session.transaction(request["transaction"]).writes[request["write"]] = planned
    return {**task_facts(task, arrow), "separate": pinned.manifest.has_stable_row_ids}


def task_facts(task: WriteTask | None, arrow: pa.Schema) -> dict[str, Any]:
    """What the JVM hands to its tasks."""
    return {
        "task": "" if task is None else write_task_to_text(task),
        "arrow": schema_to_text(arrow),
        "batchRows": BATCH_ROWS,
    }


@dataclass(frozen=True)
class FragmentWrite:
    """The files of a DataFrame for a verb of this process, which commits them."""

    task: WriteTask
    written: list[str] = field(default_factory=list[str])
    """What the tasks wrote, as they say it: the verb raises the errors in it."""


def plan_fragments(write: FragmentWrite, request: Request) -> dict[str, Any]:
    """How the tasks write the rows of a DataFrame."""
    return task_facts(write.task, arrow_schema(struct_from_text(request["schema"])))


def add_fragments(write: FragmentWrite, request: Request) -> dict[str, Any]:
    """What some tasks wrote; those without rows wrote nothing."""
    write.written.extend(part["written"] for part in request["parts"] if "written" in part)
    return {}


def _refuse_inexact(table: TransactionTable) -> None:
    """UnsupportedError if rows that Spark writes again would lose a part of values that the statement leaves alone."""
    found = [field.name for field in table.schema if not is_exact_in_spark(field.type)]
    if found:
        raise UnsupportedError(
            f"Spark has no nanoseconds, so an update would cut those of {', '.join(found)}.",
            table=table.name,
            hint="Use table.update(…) or table.merge(…), which keep them; or retype the columns to microseconds.",
        )


def add_parts(session: LakeSession, request: Request, data: bytes) -> dict[str, Any]:
    """What some tasks wrote. The addresses of updated rows are in the order in which these were written."""
    planned: PlannedWrite = session.transaction(request["transaction"]).writes[request["write"]]
    planned.add(request["parts"], data)
    return {}


def stage_write(session: LakeSession, request: Request) -> dict[str, Any]:
    """Stage what the tasks wrote, as one statement of the transaction."""
    opened = session.transaction(request["transaction"])
    planned: PlannedWrite = opened.writes.pop(request["write"])
    table, mode = _target(session, request), request["mode"]
    if sum(planned.updates):
        _refuse_inexact(table)
    with _counted(opened.changed, table, planned):
        if mode == "append":
            if planned.written:
                table.append(cast("Any", planned.rows(planned.written)))
        elif mode in ("overwrite", "dynamic"):
            table.overwrite(cast("Any", planned.rows(planned.written)), _where(request["filters"]))
        else:
            table.do(RowChange(planned))
    return {}


def delete(session: LakeSession, request: Request) -> dict[str, Any]:
    """DELETE by a filter of Lance: no job."""
    with _counted(session.transaction(request["transaction"]).changed, _target(session, request)):
        _target(session, request).delete(_where(request["filters"]) or _EVERYTHING)
    return {}


@contextmanager
def _counted(counts: RowCounts, table: TransactionTable, planned: PlannedWrite | None = None) -> Generator[None]:
    """Count what a statement does: rows that it wrote were inserted or updated; others that are gone were deleted."""
    before = table.count_rows()
    yield
    updated = 0 if planned is None else sum(planned.updates)
    inserted = 0 if planned is None else sum(part.rows for part in [*planned.written, *planned.updated]) - updated
    counts.inserted += inserted
    counts.updated += updated
    counts.deleted += before + inserted - table.count_rows()


def _where(filters: Sequence[str]) -> str | None:
    """All filters together; None if they exclude nothing."""
    given = [text for text in filters if text != _EVERYTHING]
    return " AND ".join(given) or None


def _joined(parts: Sequence[Addresses]) -> Addresses:
    return np.concatenate([np.empty(0, np.uint64), *parts])


@dataclass(frozen=True)
class RowChange:
    """The verb of DELETE, UPDATE and MERGE: rows leave by their addresses, others come in as files, in one version."""

    planned: PlannedWrite

    def __call__(self, pinned: TableVersion) -> Plan | None:
        updated, deleted = _joined(self.planned.updated_rows), _joined(self.planned.deleted_rows)
        leaving = offsets_by_fragment(np.concatenate([updated, deleted]))
        if not leaving and not self.planned.written:
            return None
        if self.planned.written or self.planned.updated:
            _refuse_gone(pinned, leaving)
        seen = KeysSeen(pinned.key)
        kept = self._files(pinned, self.planned.updated, seen)
        keep_row_ids(pinned, kept, updated)
        fragments = [*kept, *self._files(pinned, self.planned.written, seen)]
        guard = checked_new_keys(pinned, seen, leaving=addresses_in(leaving))
        left = take_out(pinned.files, pinned.manifest, pinned.version, leaving)
        counts = {"rows_deleted": len(updated) + len(deleted), "rows_added": _rows(fragments)}
        if not fragments:
            gone = Delete(updated_fragments=left.updated, deleted_fragment_ids=left.removed, predicate="Spark SQL")
            return Plan(pinned.staged(gone, leaving), counts=counts)
        operation = Update(
            removed_fragment_ids=left.removed,
            updated_fragments=left.updated,
            new_fragments=tuple(fragments),
            fields_for_preserving_frag_bitmap=tuple(sorted(field.id for field in pinned.manifest.fields)),
        )
        return Plan(pinned.staged(operation, leaving, keys_checked=True), guard=guard, counts=counts)

    def _files(self, pinned: TableVersion, parts: Sequence[Part], seen: KeysSeen) -> list[pb.DataFragment]:
        if not parts:
            return []
        written = self.planned.rows(parts).write(pinned.writer(), pinned.schema, pinned.key)
        seen.add(written.keys)
        return list(written.files.fragments)


def _refuse_gone(pinned: TableVersion, leaving: Mapping[int, BitMap]) -> None:
    """RetryableConflict if another statement of the transaction deleted rows while Spark computed their new values."""
    for number, offsets in leaving.items():
        fragment = pinned.manifest.fragments_by_id.get(number)
        if fragment is None or load_deletions(pinned.files.objects, pinned.manifest, fragment) & offsets:
            raise RetryableConflict(
                "Another statement of this transaction changed the same rows at the same time.",
                table=pinned.root,
                version=pinned.version,
                base_version=pinned.version,
                hint="Run the statements of a transaction that change the same rows one after the other.",
            )


def _rows(fragments: Sequence[pb.DataFragment]) -> int:
    return sum(fragment.physical_rows for fragment in fragments)
