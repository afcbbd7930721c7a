"""Table versions as a Lance namespace lists, describes, creates and deletes them; commits of many tables at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from lance_namespace import (
    CommitTableResult,
    CreateTableVersionResponse,
    DeclareTableResponse,
    DeregisterTableResponse,
    TableVersion,
)

from conroi.catalog.adoption import adoption
from conroi.catalog.external_participant import current_version, make_final, refuse_taken
from conroi.catalog.folders import releasing
from conroi.catalog.names import shown
from conroi.catalog.participant import PublishResult, TableChange
from conroi.catalog.publication import Publishing
from conroi.catalog.rows import Row
from conroi.catalog.state import LakeState
from conroi.catalog.store import Published
from conroi.errors import ExpectedVersionMismatch, InvalidInputError, NotFoundError, RetryableConflict, UnsupportedError
from conroi.format.on_disk import COMMIT_MESSAGE_PROPERTY, OWN_PREFIX
from conroi.namespace.requests import Request
from conroi.namespace.tables import declared, declared_row, deregistered, reserve
from conroi.namespace.view import View, located, published_before
from conroi.snapshots.external_manifest import ExternalManifest, delete_manifests, key_in_store, read_staged
from conroi.snapshots.tags import Tags
from conroi.versions.folder import ManifestRef


def table_version(view: View, row: Row, found: ManifestRef) -> TableVersion:
    """What is told of a version."""
    objects = view.catalog.objects_of(row)
    return TableVersion(version=found.version, manifest_path=key_in_store(objects, found.path))


def list_versions(view: View, request: Request) -> tuple[list[TableVersion], str | None]:
    """The versions, newest first; and the token of the next page if there are more."""
    request.refuse_branch()
    row = view.row(request.object_id(), view.state())
    before, limit = request.number("page_token"), request.number("limit")
    current = current_version(view.catalog, row)
    if not current or limit == 0:
        return [], None
    if limit == 1 and before is None:  # every opening sends this request; it needs no listing
        newest = located(view, row, None)
        return [table_version(view, row, newest)], str(newest.version) if current > 1 else None
    folder = view.catalog.folder_of(row).all()
    found = [located(view, row, None), *(each for each in reversed(folder) if each.version < current)]
    left = [each for each in found if before is None or each.version < before]
    page = left if limit is None else left[:limit]
    token = str(page[-1].version) if len(page) < len(left) else None
    return [table_version(view, row, each) for each in page], token


def describe_version(view: View, request: Request) -> TableVersion:
    request.refuse_branch()
    row = view.row(request.object_id(), view.state())
    return table_version(view, row, located(view, row, request.number("version")))


def delete_versions(view: View, request: Request) -> int:
    """Delete manifests that no version of the lake and no tag needs; all or none. Returns how many there were."""
    request.refuse_branch()
    base = view.newest()
    row = view.row(request.object_id(), base)
    folder = view.catalog.folder_of(row).all()
    ranges = [(each.number("start_version") or 0, each.number("end_version")) for each in request.many("ranges")]
    chosen = [each for each in folder if any(_is_in(each.version, start, end) for start, end in ranges)]
    oldest = _oldest_needed(view, row, base)
    tagged = {tag.version for tag in Tags(view.files(row), oldest)}
    needed = [each.version for each in chosen if each.version >= oldest or each.version in tagged]
    if needed:
        raise InvalidInputError(
            f"Versions {needed[:5]} of table {shown(row.object_id)!r} belong to versions of the lake, or have a tag; "
            "nothing was deleted.",
            table=shown(row.object_id),
            hint=f"Only versions before {oldest} can be deleted here.",
        )
    delete_manifests(view.catalog.objects_of(row), chosen)
    return len(chosen)


def _is_in(version: int, start: int, end: int | None) -> bool:
    return start <= version and (end is None or end < 0 or version < end)


def _oldest_needed(view: View, row: Row, state: LakeState) -> int:
    """The oldest version of the table that some version of the lake pins."""
    oldest = current_version(view.catalog, row)
    for published in view.catalog.heads.history(state.version, None):
        known = published.changes
        for change in (view.catalog.heads.at(published.version).rows if known is None else known).values():
            if change is not None and change.location == row.location and change.pin is not None:
                oldest = min(oldest, change.pin.version)
    return oldest


@dataclass(frozen=True)
class Entry:
    """A version that a client requests."""

    object_id: str
    version: int
    key: str

    @classmethod
    def of(cls, request: Request) -> Entry:
        request.refuse_branch()
        version, key = request.number("version"), request.text("manifest_path")
        if version is None or not key:
            raise InvalidInputError(
                "A new version needs a number and a staged manifest.", hint="Give version and manifest_path."
            )
        return cls(request.object_id(), version, key)

    def wanted(self, view: View, row: Row, *, is_new: bool = False) -> TableChange:
        """Its change in a publication."""
        if not is_new:
            refuse_taken(view.catalog, row, self.version)
        objects = view.catalog.objects_of(row)
        foreign = read_staged(objects, self.version, self.key)
        return TableChange(self.object_id, None if is_new else self.object_id, view.files(row), None, row, foreign)


def create_versions(view: View, entries: Sequence[Entry]) -> list[TableVersion]:
    """Publish the versions, all or none; each is finalized when this returns."""
    refuse_twice([entry.object_id for entry in entries])
    with view.in_next_place([entry.object_id for entry in entries]):
        return _create_versions(view, entries)


def _create_versions(view: View, entries: Sequence[Entry]) -> list[TableVersion]:
    base = view.newest()
    earlier = published_before(view, base, entries)
    if earlier is not None:
        return [version_in(view, earlier, entry) for entry in entries]
    rows = [view.row(entry.object_id, base) for entry in entries]
    for entry, row in zip(entries, rows, strict=True):
        if entry.version > current_version(view.catalog, row) + 1:
            adopt_out_of_band(view, entry.object_id, entry.version - 1)
    base = view.newest()
    rows = [view.row(entry.object_id, base) for entry in entries]
    tables = [entry.wanted(view, row) for entry, row in zip(entries, rows, strict=True)]
    publish_versions(view, base, tables)
    return [published_version(view, wanted) for wanted in tables]


def refuse_twice(object_ids: Sequence[str]) -> None:
    """A table may be in a batch once."""
    for object_id in object_ids:
        if object_ids.count(object_id) > 1:
            raise InvalidInputError(
                f"Table {shown(object_id)!r} is in the batch more than once; nothing was published.",
                table=shown(object_id),
                hint="Give one version of each table.",
            )


def version_in(view: View, earlier: Published, entry: Entry) -> TableVersion:
    """The version that an earlier request published; it is finalized now if it was not."""
    row = row_in(earlier, entry)
    now = view.state().table(entry.object_id)
    is_newest = now is not None and now.pin == row.pin
    found = make_final(view.catalog, row) if is_newest or row.pin is None else row.pin.final
    return table_version(view, row, found)


def row_in(earlier: Published, entry: Entry) -> Row:
    """The row of the table in a publication that has this version."""
    rows = [row for row in (earlier.changes or {}).values() if row is not None]
    return next(
        row for row in rows if row.pin is not None and entry.key.endswith(f"/{row.location}/{row.pin.manifest}")
    )


def publish_versions(
    view: View, base: LakeState, tables: Sequence[TableChange], rows: dict[str, Row | None] | None = None
) -> PublishResult:
    """One publication of versions that others built, with what else belongs to it."""
    foreign = [wanted.foreign for wanted in tables if wanted.foreign is not None]
    try:
        return view.publish(base, _message(tables), rows=rows, tables=tables, properties=_properties(foreign))
    except RetryableConflict:  # a name is taken by an out-of-band version: the writer needs to see it
        for wanted in tables:
            if wanted.was is not None:
                adopt_out_of_band(view, wanted.was)
        raise


def _message(tables: Sequence[TableChange]) -> str:
    said: list[str] = []
    for wanted in tables:
        assert wanted.foreign is not None
        made_by = f"{wanted.foreign.transaction.operation_name} by {wanted.foreign.snapshot.writer}"
        said.append(wanted.foreign.transaction.message or f"{made_by} on {shown(wanted.object_id)}")
    return "; ".join(said)


def _properties(foreign: Sequence[ExternalManifest]) -> dict[str, str]:
    """The properties given by the writers; a batch has none of its own."""
    if len(foreign) != 1:
        return {}
    given = foreign[0].transaction.properties
    return {k: v for k, v in given.items() if not k.startswith(OWN_PREFIX) and k != COMMIT_MESSAGE_PROPERTY}


def published_version(view: View, wanted: TableChange) -> TableVersion:
    """The published version; InvalidTableState if it could not be finalized."""
    assert wanted.foreign is not None
    row = wanted.row.pinned_at(wanted.foreign.pin)
    return table_version(view, row, make_final(view.catalog, row))


def adopt_out_of_band(view: View, object_id: str, up_to: int | None = None) -> None:
    """Publish versions that were written by the table's path, so that all writers rebase over them."""
    while True:
        state = view.newest()
        row = state.table(object_id)
        if row is None or row.pin is None or (up_to is not None and row.pin.version >= up_to):
            return
        naming = make_final(view.catalog, row).naming
        found = adoption(state, row, view.files(row), row.pin.version + 1, naming)
        if found is None:
            return
        with suppress(ExpectedVersionMismatch):  # concurrent publication: look again
            Publishing(view.catalog, found).run()


# ---------------------------------------------------------------------------- many tables in one commit

KINDS = ("declare_table", "create_table_version", "delete_table_versions", "deregister_table")


@dataclass
class Batch:
    """The operations of a batch."""

    view: View
    base: LakeState
    declared: dict[str, Row] = field(default_factory=dict[str, Row])
    leaving: dict[str, Row] = field(default_factory=dict[str, Row])
    versions: dict[str, TableChange] = field(default_factory=dict[str, TableChange])

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
            adopt_out_of_band(view, entry.object_id, entry.version - 1)
