"""Preconditions of a publication: what must not have changed, and keys that a prebuilt manifest must not duplicate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from conroi.catalog.names import shown
from conroi.catalog.rows import Row
from conroi.catalog.state import LakeState
from conroi.data.keys import in_common, sample, scan_keys, shown_keys
from conroi.data.table_version import TableVersion
from conroi.errors import (
    AlreadyExistsError,
    DuplicateKeyError,
    ExpectedVersionMismatch,
    IncompatibleConflict,
    InvalidInputError,
)
from conroi.format import lance_pb2 as pb
from conroi.format.fields import fields_by_path, key_columns
from conroi.format.manifest import Manifest
from conroi.snapshots.external_manifest import ExternalManifest
from conroi.snapshots.snapshot import Snapshot, TableStorage
from conroi.snapshots.tags import Tag, Tags
from conroi.verbs.key_check import named, refuse_repeated

MAINTENANCE = frozenset({"Rewrite", "CreateIndex", "ReserveFragments"})
"""Operations that leave the rows unchanged."""

VersionOf = Callable[[Row], int]
"""The version of a table at some state."""
OperationsBetween = Callable[[Row, int, int], Sequence[str]]
"""The names of the operations that led from one version of a table to another."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Precondition: a table must be at this version; 0 means that the table must not exist."""

    object_id: str
    version: int
    incarnation: str | None = None
    """The table id that was meant; None for any table of that name."""
    is_explicit: bool = True
    """Whether the user named the version; otherwise the isolation level requires it."""
    allows_maintenance: bool = False
    """Whether compactions and new indices count as no change."""
    is_presence: bool = False
    """Whether the table only has to exist, at any version."""
    seen: Row | None = None
    """Its row at the base: version numbers belong to one linear history, which a merge on a branch may replace."""

    def check(self, state: LakeState, version_of: VersionOf, between: OperationsBetween) -> None:
        """ExpectedVersionMismatch if the precondition does not hold."""
        row = state.table(self.object_id)
        is_same = row is None or self.incarnation is None or row.incarnation == self.incarnation
        is_same = is_same and (row is None or self.seen is None or self.is_presence or row.continues(self.seen))
        if self.is_presence and row is not None and is_same:
            return
        actual = 0 if row is None else version_of(row)
        if actual == self.version and is_same and not self.is_presence:
            return
        if row is not None and is_same and self.allows_maintenance and 0 < self.version < actual:
            is_same_rows = set(between(row, self.version, actual)) <= MAINTENANCE
            if is_same_rows:
                return
        raise self._mismatch(actual, is_same=is_same)

    def _mismatch(self, actual: int, *, is_same: bool) -> ExpectedVersionMismatch:
        name = shown(self.object_id)
        if not actual:
            what = f"Table {name!r} was expected at version {self.version}, but the lake has no such table."
        elif not is_same:
            what = (
                f"Table {name!r} was dropped and created again, or replaced by a merge, since this transaction began."
            )
        elif not self.version:
            what = f"Table {name!r} was expected not to be there, but it is, at version {actual}."
        else:
            what = f"Table {name!r} was expected at version {self.version}, but it is at version {actual}."
        return ExpectedVersionMismatch(
            what,
            table=name,
            expected=self.version,
            actual=actual,
            hint="Look at what changed, and run the work again in a new transaction."
            + ("" if self.is_explicit else " lake.run(function) does that for you."),
            is_retryable=not self.is_explicit,
        )


@dataclass(frozen=True, slots=True)
class TagsExpectation:
    """Precondition: the tags of a table are those that a transaction read.

    They are files of their own: unlike versions, they are compared before the put and not atomically with it.
    """

    name: str
    files: TableStorage
    seen: tuple[Tag, ...]

    def check(self) -> None:
        """ExpectedVersionMismatch if one was created, moved or deleted."""
        then = {tag.name: tag.version for tag in self.seen}
        now = {tag.name: tag.version for tag in Tags(self.files, 0)}
        for name in sorted(then.keys() | now.keys()):
            if then.get(name) != now.get(name):
                raise ExpectedVersionMismatch(
                    f"The tag {name!r} of table {self.name!r} was changed since this transaction looked at it.",
                    table=self.name,
                    expected=then.get(name, 0),
                    actual=now.get(name, 0),
                    hint="Run the work again in a new transaction; lake.run(function) does that for you.",
                    is_retryable=True,
                )


@dataclass(frozen=True, slots=True)
class ListingExpectation:
    """Precondition: the list of tables is the one that a transaction read."""

    names: frozenset[str]

    def check(self, state: LakeState) -> None:
        """ExpectedVersionMismatch if one was added, dropped or renamed."""
        now = {row.object_id for row in state.tables()}
        for object_id in sorted(now ^ self.names):
            is_there = object_id in now
            raise ExpectedVersionMismatch(
                f"Table {shown(object_id)!r} was {'made' if is_there else 'dropped'} since this transaction listed the "
                "lake.",
                table=shown(object_id),
                expected=0 if is_there else 1,
                actual=1 if is_there else 0,
                hint="Run the work again in a new transaction; lake.run(function) does that for you.",
                is_retryable=True,
            )


SAME_ROWS = frozenset({"Rewrite", "CreateIndex", "ReserveFragments", "UpdateMemWalState", "UpdateBases"})
"""Operations that leave the rows, and so the keys, unchanged."""


def refuse_duplicate_keys(files: TableStorage, base: Snapshot | None, foreign: ExternalManifest) -> None:
    """DuplicateKeyError if a row that the version adds has the key of another row."""
    after = foreign.snapshot.manifest
    columns = key_columns(after.fields)
    if not columns or foreign.transaction.operation_name in SAME_ROWS:
        return
    new = _with_new_keys(None if base is None else base.manifest, after)
    if not new:
        return
    pinned = TableVersion(files, replace(foreign.snapshot, is_private=True))
    arriving = scan_keys(pinned, columns, fragment_ids=new)
    keys = arriving.select([name for name in arriving.column_names if name != "_rowaddr"])
    refuse_repeated(keys, columns, files.root)
    others = [fragment.id for fragment in after.fragments if fragment.id not in set(new)]
    there = in_common(keys, scan_keys(pinned, columns, fragment_ids=others, among=keys)) if others else None
    if there is not None and there.num_rows:
        raise DuplicateKeyError(
            f"The table has rows with the same {named(columns)} already: {shown_keys(there)}.",
            table=files.root,
            version=foreign.version,
            keys=sample(there, columns),
            hint="Use a merge to update rows that are there and insert the others.",
        )


def _with_new_keys(base: Manifest | None, after: Manifest) -> list[int]:
    """The fragments whose keys were not in the table before; all, if it had another key."""
    ids = _key_ids(after)
    known: set[tuple[str | bytes, ...]] = set()
    if base is not None and _key_ids(base) == ids:
        known = {_key_files(fragment, ids) for fragment in base.fragments}
    return [fragment.id for fragment in after.fragments if _key_files(fragment, ids) not in known]


def _key_ids(manifest: Manifest) -> frozenset[int]:
    fields = fields_by_path(manifest.fields)
    return frozenset(fields[column].id for column in key_columns(manifest.fields))


def _key_files(fragment: pb.DataFragment, ids: frozenset[int]) -> tuple[str | bytes, ...]:
    """The files that hold the key: file names are never reused, so equal names mean equal keys."""
    return (*(file.path for file in fragment.files if not ids.isdisjoint(file.fields)), *fragment.overlays)


# ------------------------------------------------------------------------------ names


def check_arriving(arriving: Set[str], leaving: Set[str], rows: Mapping[str, Row | None], state: LakeState) -> None:
    """Names that are added must be free, and so must their folders."""
    for object_id in sorted(arriving - leaving):
        if object_id in state.rows:
            raise AlreadyExistsError(
                f"There is a {state.rows[object_id].object_type} {shown(object_id)!r} in the lake already.",
                table=shown(object_id),
                hint="Open it with lake[name], or choose another name.",
            )
    wanted = [rows.get(object_id) for object_id in arriving]
    folders = {row.location for row in wanted if row is not None and row.is_table}
    if folders:
        _check_folders(folders, leaving, state)


def _check_folders(arriving: Set[str | None], leaving: Set[str], state: LakeState) -> None:
    """A folder holds one table of the lake, not two."""
    for object_id, row in state.rows.items():
        if row.location in arriving and row.is_table and object_id not in leaving:
            raise AlreadyExistsError(
                f"The folder {row.location!r} is the table {shown(object_id)!r} of the lake already.",
                table=shown(object_id),
                hint="Rename that table with lake.rename_table(), or leave it.",
            )


def check_leaving(leaving: Set[str], base: LakeState, state: LakeState) -> None:
    """Names that are removed must exist."""
    for object_id in sorted(leaving):
        now, then = state.rows.get(object_id), base.rows.get(object_id)
        if then is None:
            continue
        if now is None or (then.is_table and now.incarnation != then.incarnation):
            raise IncompatibleConflict(
                f"{shown(object_id)!r} was dropped, renamed or created again concurrently.",
                table=shown(object_id),
                hint="Nothing was committed. Look at lake.history() for who did it.",
            )
        if not now.is_table and any(
            shown(key).startswith(f"{shown(object_id)}.") and key not in leaving for key in state.rows
        ):
            raise InvalidInputError(f"The namespace {shown(object_id)!r} is not empty.", hint="Drop its tables first.")


def refuse_table(parent: str, row: Row | None) -> None:
    """A namespace must not have the name of a table."""
    if row is not None and row.is_table:
        raise AlreadyExistsError(
            f"{shown(parent)!r} is a table, so nothing can be inside it.",
            table=shown(parent),
            hint="Choose another name, or rename the table first.",
        )
