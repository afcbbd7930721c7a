"""Staged changes of a transaction to one table, and the folding of several statements into one operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from conroi import operations
from conroi.commit.change import Guard, Plan, all_of
from conroi.conflicts import ConcurrentCommit, Staged
from conroi.data.pylance import PrivateSession, pylance_errors
from conroi.data.table_version import TableVersion
from conroi.errors import RetryableConflict
from conroi.format import lance_pb2 as pb
from conroi.format.fields import fields_by_path, key_columns
from conroi.format.keyfilter import incomparable_filter
from conroi.format.manifest import Manifest
from conroi.format.naming import ManifestNaming
from conroi.format.row_ids import decode_row_ids, encode_row_ids
from conroi.operations import Append, Delete, Operation, Overwrite, Step, Update, folded
from conroi.operations.update import REWRITE_ROWS
from conroi.snapshots.snapshot import Snapshot, TableStorage
from conroi.version import WRITER
from conroi.versions.folder import ManifestRef

_ROW_CHANGES = (Append, Delete, Update)


@dataclass(frozen=True)
class Statements:
    """The staged statements on one table, and the table after them."""

    files: TableStorage
    base: Snapshot | None
    """Their base version; None for a table that the transaction creates."""
    plans: tuple[Plan, ...] = ()
    before_last: Statements | None = None
    session: PrivateSession = field(default_factory=PrivateSession)
    """pylance's session of the table, shared by all statements."""

    def __post_init__(self) -> None:
        self.session.base = self.base

    @cached_property
    def current(self) -> Snapshot:
        """What the next statement sees; computed on first access."""
        unseen: list[Statements] = []
        at: Statements = self
        while at.before_last is not None and "current" not in at.__dict__:
            unseen.append(at)
            at = at.before_last
        snapshot: Snapshot | None = at.__dict__.get("current", at.base)
        for statements in reversed(unseen):  # in a loop, because there may be thousands
            snapshot = self._after(snapshot, statements.plans[-1])
            statements.__dict__["current"] = snapshot
        assert snapshot is not None, "a new table begins with its creation"
        return snapshot

    def then(self, plan: Plan) -> Statements:
        """With one more statement."""
        return replace(self, plans=(*self.plans, plan), before_last=self)

    @cached_property
    def has_fields_of_base(self) -> bool:
        """Whether the table exists and its columns are unchanged."""
        for plan in self.plans:
            if not isinstance(plan.staged.operation, _ROW_CHANGES):
                return False
        return self.base is not None

    @property
    def fields(self) -> Sequence[pb.Field]:
        """The columns after the statements so far."""
        snapshot = self.base if self.base is not None and self.has_fields_of_base else self.current
        return snapshot.manifest.fields

    def _after(self, base: Snapshot | None, plan: Plan) -> Snapshot:
        transaction = operations.transaction(
            plan.staged.operation,
            read_version=0 if base is None else base.version,
            uuid=str(self.files.environment.new_uuid()),
        )
        number = 0 if base is None else base.version
        manifest = operations.build(
            None if base is None else base.manifest,
            transaction,
            plan.staged.operation,
            Step(
                version=number + 1,
                restored=None if plan.restored is None else plan.restored.manifest,
                read=None if base is None else base.manifest,
            ),
            timestamp_ns=self.files.environment.now_ns(),
            writer_version=WRITER,
        )
        return self._private(manifest, number)

    def _private(self, manifest: Manifest, number: int) -> Snapshot:
        """The version after a statement. It keeps the number of the base: it is visible to this transaction only."""
        head = manifest.editable_head()
        head.version = number
        naming = self.base.naming if self.base is not None else ManifestNaming.V2
        located = ManifestRef(head.version, naming.path(head.version), naming)
        return Snapshot(manifest.changed(head=head), located, is_final=False, is_private=True)

    # ------------------------------------------------------------------------ at the end

    def folded(self) -> Plan | None:
        """One plan for all statements; None if there is nothing to do.

        Where Lance has an operation for it, that can be rebased over concurrent commits. Otherwise it is the result as
        it is, which fits only the base version of the statements.
        """
        if len(self.plans) < 2:
            return self.plans[0] if self.plans else None
        done = [plan.staged.operation for plan in self.plans]
        if self.base is None:
            is_filled = all(isinstance(operation, Append) for operation in done[1:])
            return _created_with_rows(self.plans) if is_filled else self._several(done)
        if all(isinstance(operation, Append) for operation in done):
            return self._plan(Append(fragments=_all_fragments(self.plans)), None)
        if all(map(_moves_rows, done)):
            return self._row_changes()
        return self._several(done)

    @property
    def is_one_operation(self) -> bool:
        """Whether Lance has one operation for all statements on an existing table."""
        done = [plan.staged.operation for plan in self.plans]
        return len(done) < 2 or all(map(_moves_rows, done))

    def _several(self, done: Sequence[Operation]) -> Plan:
        """The result as it is, with the nearest operation that Lance has in its transaction."""
        before = None if self.base is None else self.base.manifest
        restored = next((plan.restored for plan in reversed(self.plans) if plan.restored is not None), None)
        plan = replace(self._plan(folded(before, self.current.manifest, done), None), restored=restored)
        return plan if before is None else replace(plan, guard=_only_on(before))

    def _plan(self, operation: Operation, affected: dict[int, BitMap] | None) -> Plan:
        counts: dict[str, int] = {}
        for plan in self.plans:
            for key, value in plan.counts.items():
                counts[key] = counts.get(key, 0) + value
        bringing = [plan for plan in self.plans if not isinstance(plan.staged.operation, Delete)]
        checked = all(plan.staged.keys_checked_exactly for plan in bringing)
        return Plan(
            Staged(
                operation=operation,
                base=self.plans[0].staged.base if self.base is None else self.base.manifest,
                affected_rows=affected,
                keys_checked_exactly=checked,
            ),
            must_not_move=any(plan.must_not_move for plan in self.plans),
            guard=all_of([plan.guard for plan in self.plans if plan.guard is not None]),
            counts=counts,
        )

    def _row_changes(self) -> Plan:
        """All row changes as one: the changed fragments of the base, and the new fragments."""
        assert self.base is not None
        before = self.base.manifest.fragments_by_id
        after = self.current.manifest.fragments_by_id
        updated = tuple(after[i] for i in sorted(before.keys() & after.keys()) if after[i] != before[i])
        removed = tuple(sorted(before.keys() - after.keys()))
        new = self._new_fragments([after[i] for i in sorted(after.keys() - before.keys())])
        affected = self._affected()
        if not new and all(isinstance(plan.staged.operation, Delete) for plan in self.plans):
            return self._plan(Delete(updated, removed, self._predicates()), affected)
        fields = sorted({i for plan in self.plans for i in _changed_fields(plan.staged.operation)})
        operation = Update(
            removed_fragment_ids=removed,
            updated_fragments=updated,
            new_fragments=tuple(new),
            fields_for_preserving_frag_bitmap=tuple(fields),
            inserted_rows=self._filter(),
        )
        return self._plan(operation, affected)

    def _predicates(self) -> str:
        found = [plan.staged.operation.predicate for plan in self.plans if isinstance(plan.staged.operation, Delete)]
        return " OR ".join(f"({predicate})" for predicate in found)

    def _affected(self) -> dict[int, BitMap]:
        """The rows of the base that the statements removed."""
        assert self.base is not None
        rows: dict[int, BitMap] = {}
        for plan in self.plans:
            for fragment, offsets in (plan.staged.affected_rows or {}).items():
                if fragment in self.base.manifest.fragments_by_id:
                    rows[fragment] = rows.get(fragment, BitMap()) | offsets
        return rows

    def _filter(self) -> pb.KeyExistenceFilter | None:
        """The key filter for a later pylance merge; if no statement has all keys, one that conflicts with any."""
        inserting = [p for p in self.plans if not isinstance(p.staged.operation, Delete)]
        found = [p.staged.operation.inserted_rows for p in inserting if isinstance(p.staged.operation, Update)]
        filters = [each for each in found if each is not None]
        if len(inserting) == 1 or not key_columns(self.current.manifest.fields):
            return filters[0] if filters else None
        return incomparable_filter(self._key_field_ids())

    def _key_field_ids(self) -> list[int]:
        known = fields_by_path(self.current.manifest.fields)
        return [known[column].id for column in key_columns(self.current.manifest.fields)]

    def _columns(self) -> list[str]:
        """The names of the top-level columns."""
        return [field.name for field in self.current.manifest.fields if field.parent_id == -1]

    # ------------------------------------------------------------------------ fragments that are new

    def _new_fragments(self, fragments: Sequence[pb.DataFragment]) -> list[pb.DataFragment]:
        """The transaction's own fragments, without ids; those it changed again are written afresh.

        A deletion vector is named by its fragment's id, and a row's id may be given only when the commit happens, so
        neither can be carried over from what only this transaction saw.
        """
        assert self.base is not None
        first_new_id = self.base.manifest.head.next_row_id
        is_stable = self.base.manifest.has_stable_row_ids
        kept: list[pb.DataFragment] = []
        again: list[pb.DataFragment] = []
        for fragment in fragments:
            plain = None if fragment.HasField("deletion_file") else _unnumbered(fragment, first_new_id, is_stable)
            (again if plain is None else kept).append(fragment if plain is None else plain)
        return kept + (self._written_again(again, first_new_id, is_stable) if again else [])

    def _written_again(
        self, fragments: Sequence[pb.DataFragment], first_new_id: int, is_stable: bool
    ) -> list[pb.DataFragment]:
        pinned = TableVersion(self.files, self.current, private=self.session)
        with pylance_errors(self.files.root):
            handles = [pinned.dataset.get_fragment(fragment.id) for fragment in fragments]
            rows: pa.Table = pinned.dataset.scanner(
                fragments=[each for each in handles if each is not None], with_row_id=is_stable
            ).to_table()
        if not rows.num_rows:
            return []
        if not is_stable:
            return pinned.writer().write(rows.to_reader()).fragments
        ids = np.asarray(rows["_rowid"].combine_chunks(), dtype=np.uint64)
        # Rows that keep their id come first.
        order = np.argsort(ids >= first_new_id, kind="stable").astype(np.int64)
        keeping = ids[order][: int(np.count_nonzero(ids < first_new_id))]
        written = pinned.writer().write(rows.select(self._columns()).take(order).to_reader()).fragments
        start = 0
        for fragment in written:
            part = keeping[start : start + fragment.physical_rows]
            if len(part):
                fragment.inline_row_ids = encode_row_ids(part)
            start += fragment.physical_rows
        return written


def _unnumbered(fragment: pb.DataFragment, first_new_id: int, is_stable: bool) -> pb.DataFragment | None:
    """The fragment as a statement made it, before it got ids; None if its rows' ids cannot be told apart so."""
    plain = pb.DataFragment()
    plain.CopyFrom(fragment)
    plain.id = 0
    for group in ("created_at_version_sequence", "last_updated_at_version_sequence", "row_id_sequence"):
        chosen = plain.WhichOneof(group)
        if chosen is not None:
            plain.ClearField(chosen)
    if not is_stable:
        return plain
    ids = decode_row_ids(fragment.inline_row_ids, rows=fragment.physical_rows)
    is_new = ids >= first_new_id
    moved = int(np.count_nonzero(~is_new))
    if np.any(is_new[:moved]):
        return None
    if moved:
        plain.inline_row_ids = encode_row_ids(ids[:moved])
    return plain


def _moves_rows(operation: Operation) -> bool:
    """Whether the change only deletes rows and adds fragments."""
    if not isinstance(operation, Update):
        return isinstance(operation, Append | Delete)
    return operation.update_mode == REWRITE_ROWS and not operation.compacted_sstables and not operation.fields_modified


def _changed_fields(operation: Operation) -> Sequence[int]:
    return operation.fields_for_preserving_frag_bitmap if isinstance(operation, Update) else ()


def _all_fragments(plans: Sequence[Plan]) -> tuple[pb.DataFragment, ...]:
    found: list[pb.DataFragment] = []
    for plan in plans:
        operation = plan.staged.operation
        if isinstance(operation, Append | Overwrite):
            found.extend(operation.fragments)
    return tuple(found)


def _created_with_rows(plans: Sequence[Plan]) -> Plan:
    """A creation and appends: a creation with all their rows."""
    first = plans[0].staged.operation
    assert isinstance(first, Overwrite)
    operation = replace(first, fragments=_all_fragments(plans))
    return replace(plans[0], staged=replace(plans[0].staged, operation=operation))


def _only_on(base: Manifest) -> Guard:
    """The precondition of a result that fits only this version; it also makes every newer commit be checked."""

    def check(head: Snapshot, winners: Sequence[ConcurrentCommit]) -> None:  # noqa: ARG001
        if head.version != base.version:
            raise RetryableConflict(
                f"Several changes are based on version {base.version}, and the table is at version {head.version} now.",
                version=head.version,
                base_version=base.version,
                hint="Run the work again in a new transaction; lake.run(function) does that for you.",
            )

    return check


Verb = Callable[[TableVersion], Plan | None]
