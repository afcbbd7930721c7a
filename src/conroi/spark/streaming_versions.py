"""Change classification for streams: whether a version added rows, changed nothing, or changed existing rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from conroi import operations
from conroi.errors import NotFoundError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.transaction import FOLDED_PROPERTY, Transaction
from conroi.history import find
from conroi.snapshots.snapshot import Snapshot, load_transaction
from conroi.spark.options import SKIP_CHANGES, START
from conroi.table import Table

_QUIET = frozenset(
    {"CreateIndex", "Project", "ReserveFragments", "Rewrite", "UpdateBases", "UpdateConfig", "UpdateMemWalState"}
)
"""What leaves all rows as they were."""
_HARMLESS = (_QUIET - {"Rewrite"}) | {"Append", "Merge"}
"""What may be together in one version, of which the fragments that were not there before have new rows."""


@dataclass(frozen=True)
class Arrivals:
    """The fragments that a version brought in, whole."""

    snapshot: Snapshot
    fragments: tuple[pb.DataFragment, ...]

    @property
    def rows(self) -> int:
        """How many rows they have room for; deleted ones count, so that a position stays what it is."""
        return sum(fragment.physical_rows for fragment in self.fragments)


class FollowedVersions:
    """The versions of one table, each read once."""

    def __init__(self, table: Table, *, skip_changes: bool) -> None:
        self._table = table
        self._skip_changes = skip_changes
        self._known: dict[int, Arrivals] = {}
        self._whole: Arrivals | None = None

    def newest(self) -> int:
        """The number of the newest version."""
        self._table = self._table.latest()
        return self._table.version

    def whole(self, version: int) -> Arrivals:
        """All rows that the table had at a version."""
        if self._whole is None or self._whole.snapshot.version != version:
            snapshot = self._snapshot(version)
            self._whole = Arrivals(snapshot, snapshot.manifest.fragments)
        return self._whole

    def arrivals(self, version: int) -> Arrivals:
        """The rows that this version added; UnsupportedError if it changed others, unless those are skipped."""
        if version not in self._known:
            self._known[version] = self._looked_up(version)
        return self._known[version]

    def forget_before(self, version: int) -> None:
        """These are not asked for again."""
        self._whole = None if self._whole is None or self._whole.snapshot.version < version else self._whole
        self._known = {known: arrivals for known, arrivals in self._known.items() if known >= version}

    def _looked_up(self, version: int) -> Arrivals:
        snapshot = self._snapshot(version)
        transaction = load_transaction(self._table.pinned.files.objects, snapshot)
        added = None if transaction is None else added_fragments(snapshot, transaction, self._snapshot)
        if added is not None:
            return Arrivals(snapshot, tuple(added))
        if self._skip_changes:
            return Arrivals(snapshot, ())
        name = "an operation that is not known" if transaction is None else transaction.operation_name
        raise UnsupportedError(
            f"Version {version} changed rows that were there before ({name}). A stream hands on new rows only.",
            table=self._table.uri,
            version=version,
            hint=f'option("{SKIP_CHANGES}", "true") leaves such versions out, with all they did; or begin a new query '
            "with a new checkpoint, which starts with all rows as they are now.",
        )

    def _snapshot(self, version: int) -> Snapshot:
        if version == self._table.version:
            return self._table.pinned.snapshot
        try:
            return find(self._table.pinned.files, version)
        except NotFoundError:
            raise NotFoundError(
                f"The stream must continue at version {version}, which expired and was collected before it was "
                "read: rows would be missing.",
                table=self._table.uri,
                version=version,
                hint="Begin a new query with a new checkpoint, which starts with all rows as they are now; or choose "
                f'the version with option("{START}", …). Keep versions for longer than a query may stand still.',
            ) from None


def added_fragments(
    snapshot: Snapshot, transaction: Transaction, load: Callable[[int], Snapshot]
) -> Sequence[pb.DataFragment] | None:
    """The fragments with new rows, if this version did nothing else to rows; None if it did."""
    fragments = snapshot.manifest.fragments
    operation = operations.of(transaction)
    if operation.name in _QUIET:
        return ()
    if snapshot.version == 1 or operation.name == "Clone":
        return fragments
    if isinstance(operation, operations.Append):
        return _last(fragments, len(operation.fragments))
    if isinstance(operation, operations.Update):  # a merge that only inserted
        is_insert = not (operation.removed_fragment_ids or operation.updated_fragments)
        return _last(fragments, len(operation.new_fragments)) if is_insert else None
    if isinstance(operation, operations.Merge):  # columns came in, and maybe rows with them
        names = transaction.properties.get(FOLDED_PROPERTY, "").split(",")
        if not _HARMLESS.issuperset(name.strip() for name in names if name):
            return None
        before = load(snapshot.version - 1).manifest.fragments_by_id
        return [fragment for fragment in fragments if fragment.id not in before]
    return None


def _last(fragments: Sequence[pb.DataFragment], count: int) -> Sequence[pb.DataFragment]:
    """New fragments get the highest ids, and stand last."""
    return fragments[len(fragments) - count :]
