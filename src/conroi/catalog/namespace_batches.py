"""Atomic batch requests of a namespace: many changes to many tables, all of them or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lance_namespace import (
    CommitTableResult,
    CreateTableVersionResponse,
    DeclareTableResponse,
    DeregisterTableResponse,
)

from conroi.catalog.heads import Published
from conroi.catalog.namespace_changes import declared, declared_row, deregistered, reserve
from conroi.catalog.namespace_publishing import (
    Entry,
    adopt,
    publish_versions,
    published_version,
    refuse_twice,
    version_in,
)
from conroi.catalog.namespace_repeats import published_before
from conroi.catalog.namespace_requests import Request
from conroi.catalog.namespace_view import View
from conroi.catalog.ownership import releasing
from conroi.catalog.part import Wanted
from conroi.catalog.prebuilt import current_version
from conroi.catalog.rows import Row
from conroi.catalog.state import LakeState
from conroi.errors import InvalidInputError, NotFoundError, UnsupportedError

KINDS = ("declare_table", "create_table_version", "delete_table_versions", "deregister_table")


@dataclass
class Batch:
    """The operations of a batch."""

    view: View
    base: LakeState
    declared: dict[str, Row] = field(default_factory=dict[str, Row])
    leaving: dict[str, Row] = field(default_factory=dict[str, Row])
    versions: dict[str, Wanted] = field(default_factory=dict[str, Wanted])

    def add(self, kind: str, request: Request) -> None:
        if kind == "delete_table_versions":
            raise UnsupportedError(
                "Versions cannot be deleted as part of a batch.", hint="Use batch_delete_table_versions() for that."
            )
        if kind == "declare_table":
            row = declared_row(self.view, request, self.base)
            refuse_twice([row.object_id, *self.declared, *self.versions, *self.leaving])
            self.declared[row.object_id] = row
        elif kind == "deregister_table":
            row = self.view.row(request.object_id(), self.base)
            refuse_twice([row.object_id, *self.declared, *self.versions, *self.leaving])
            self.leaving[row.object_id] = row
        else:
            self._add_version(Entry.of(request))

    def _add_version(self, entry: Entry) -> None:
        refuse_twice([entry.object_id, *self.versions, *self.leaving])
        new = self.declared.get(entry.object_id)
        row = self.view.row(entry.object_id, self.base) if new is None else new
        self.versions[entry.object_id] = entry.wanted(self.view, row, is_new=new is not None)

    def publish(self) -> None:
        """All of it, in one commit."""
        rows: dict[str, Row | None] = dict.fromkeys(self.leaving)
        rows |= {key: row for key, row in self.declared.items() if key not in self.versions}
        for row in self.declared.values():
            reserve(self.view, row)
        with releasing(self.view.catalog, list(self.leaving.values())):
            publish_versions(self.view, self.base, list(self.versions.values()), rows)

    def result(self, kind: str, request: Request) -> CommitTableResult:
        """What became of one operation."""
        key = request.object_id()
        if kind == "declare_table":
            return CommitTableResult(declare_table=declared(self.view, self.declared[key]))
        if kind == "deregister_table":
            return CommitTableResult(deregister_table=deregistered(self.view, self.leaving[key]))
        version = published_version(self.view, self.versions[key])
        return CommitTableResult(create_table_version=CreateTableVersionResponse(version=version))


def commit_tables(view: View, request: Request) -> list[CommitTableResult]:
    """Execute all operations of the request in one commit; returns their results, in its order."""
    operations = [_kind_and_request(each) for each in request.many("operations")]
    if not operations:
        raise InvalidInputError("The batch is empty.", hint="Give at least one operation.")
    entries = [Entry.of(each) for kind, each in operations if kind == "create_table_version"]
    earlier = published_before(view, view.newest(), entries)
    if earlier is not None:
        return [_result_in(view, earlier, kind, each) for kind, each in operations]
    with view.in_next_place([entry.object_id for entry in entries]):
        return _commit(view, operations, entries)


def _commit(view: View, operations: Sequence[tuple[str, Request]], entries: list[Entry]) -> list[CommitTableResult]:
    _adopt_first(view, entries)
    batch = Batch(view, view.newest())
    for kind, each in operations:
        batch.add(kind, each)
    batch.publish()
    return [batch.result(kind, each) for kind, each in operations]


def _result_in(view: View, earlier: Published, kind: str, request: Request) -> CommitTableResult:
    """What became of one operation of a batch that an earlier request committed."""
    if kind == "create_table_version":
        version = version_in(view, earlier, Entry.of(request))
        return CommitTableResult(create_table_version=CreateTableVersionResponse(version=version))
    key = request.object_id()
    if kind == "declare_table":
        row = (earlier.changes or {}).get(key)
        return CommitTableResult(declare_table=DeclareTableResponse() if row is None else declared(view, row))
    try:
        row = view.catalog.heads.at(earlier.version - 1).table(key)
    except NotFoundError:  # that version of the lake was collected
        row = None
    answer = DeregisterTableResponse(id=request.parts()) if row is None else deregistered(view, row)
    return CommitTableResult(deregister_table=answer)


def _kind_and_request(operation: Request) -> tuple[str, Request]:
    given = [(kind, Request(operation.get(kind))) for kind in KINDS if operation.get(kind) is not None]
    if len(given) != 1:
        raise InvalidInputError(
            f"An operation of a batch is one of {', '.join(KINDS)}; this one is {len(given)} of them.",
            hint="Give each operation by itself.",
        )
    return given[0]


def _adopt_first(view: View, entries: list[Entry]) -> None:
    """Adopt the out-of-band versions on which these are built."""
    state = view.newest()
    for entry in entries:
        row = state.table(entry.object_id)
        if row is not None and entry.version > current_version(view.catalog, row) + 1:
            adopt(view, entry.object_id, entry.version - 1)
