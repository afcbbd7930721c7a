"""Transactions of operations, and the manifest builder: applies an operation to the base, and does what every commit
has in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from conroi.errors import InvalidInputError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.flags import Flag, computed_flags
from conroi.format.manifest import Manifest
from conroi.format.transaction import Transaction
from conroi.operations.append import Append
from conroi.operations.base import Operation, Step
from conroi.operations.clone import Clone
from conroi.operations.create_index import CreateIndex
from conroi.operations.indices import following_reuse, reuse_details
from conroi.operations.mem_wal import with_catch_up
from conroi.operations.overwrite import Overwrite
from conroi.operations.reserve_fragments import ReserveFragments
from conroi.operations.restore import Restore
from conroi.operations.update_bases import UpdateBases
from conroi.operations.update_config import UpdateConfig

NOTHING = Manifest(b"")
"""What there is before a table is created."""

# These neither take fragments from an index nor ask which it has.
_LEAVE_COVERAGE_ALONE = (Append, CreateIndex, Overwrite, ReserveFragments, Restore, UpdateBases, UpdateConfig)

_NANOSECONDS = 1_000_000_000
_DETACHED = 1 << 63


def transaction(
    operation: Operation,
    *,
    read_version: int,
    uuid: str,
    properties: Mapping[str, str] | None = None,
    tag: str = "",
) -> Transaction:
    """A transaction that does this operation, computed on `read_version`."""
    wire = operation.to_wire()
    wire.read_version = read_version
    wire.uuid = uuid
    wire.tag = tag
    wire.transaction_properties.update(properties or {})
    return Transaction(wire)


def with_operation(original: Transaction, operation: Operation, *, read_version: int) -> Transaction:
    """The same transaction after a rebase: another operation on another version, everything else as it was."""
    wire = pb.Transaction()
    wire.CopyFrom(original.wire)
    field = wire.WhichOneof("operation")
    if field is not None:
        wire.ClearField(field)
        wire.MergeFrom(operation.to_wire())
    wire.read_version = read_version
    return Transaction(wire)


def build(
    base: Manifest | None,
    transaction: Transaction,
    operation: Operation,
    step: Step,
    *,
    timestamp_ns: int,
    writer_version: tuple[str, str],
) -> Manifest:
    """The manifest that this transaction makes of the base; None is a base that is not there yet.

    `operation` is the transaction's own, which may carry more than the wire does. The base's fragments are decoded
    only if the operation changes one of them.
    """
    if base is None and not isinstance(operation, (Overwrite, Clone)):
        raise InvalidInputError(f"{operation.name} needs a table, and there is none.", hint="Create the table first.")
    step = replace(step, timestamp_ns=timestamp_ns, transaction_uuid=transaction.uuid)
    base = NOTHING if base is None else base
    if base.indices:
        base = _with_true_coverage(base, operation, step)
    _check_version(base, operation, step)
    applied = operation.apply(base, step)
    indices = applied.indices
    if indices and not isinstance(operation, (Restore, Clone)):
        read = base if transaction.read_version == base.version else step.read
        indices = with_catch_up(base.indices, indices, read, step)
    head = applied.editable_head()
    head.version = step.version
    head.timestamp.seconds, head.timestamp.nanos = divmod(step.timestamp_ns, _NANOSECONDS)
    head.writer_version.Clear()
    head.writer_version.library, head.writer_version.version = writer_version
    head.transaction_file = transaction.file_name
    # The file codec sets the offsets of the sections it writes.
    for name in ("tag", "version_aux_data", "index_section", "transaction_section", "transaction_section_deprecated"):
        head.ClearField(name)
    if head.HasField("max_allocated_field_id"):  # the highest field id ever used, on a table that keeps count of it
        head.max_allocated_field_id = max(head.max_allocated_field_id, *(field.id for field in head.fields), 0)
    _set_flags(head, indices)
    return applied.changed(head=head, indices=indices)


def _with_true_coverage(base: Manifest, operation: Operation, step: Step) -> Manifest:
    """The base with indices that name today's fragments, where a compaction left that for later."""
    details = reuse_details(base.indices)
    if details is None or details.WhichOneof("content") is None:
        return base
    reuse = details.inline if details.HasField("inline") else step.reuse
    if reuse is not None:
        return base.changed(indices=following_reuse(base.indices, reuse))
    if isinstance(operation, _LEAVE_COVERAGE_ALONE):
        return base
    raise UnsupportedError(
        f"{operation.name} changes what indices cover, and the table keeps a part of that in a file of its fragment "
        "reuse index, which was not loaded.",
        hint="Hand it over as Step.reuse, or finish the deferred compaction first (pylance: optimize_indices).",
    )


def _check_version(base: Manifest, operation: Operation, step: Step) -> None:
    expected = base.head.version + 1
    if isinstance(operation, Clone):
        expected = operation.ref_version
    if step.version != expected and not step.version & _DETACHED:
        raise InvalidInputError(
            f"The commit after version {base.version} makes version {expected}, not {step.version}.",
            hint="Build the manifest on the newest version.",
        )


def _set_flags(head: pb.ManifestHead, indices: Sequence[pb.IndexMetadata]) -> None:
    flags = computed_flags(head, has_deletions=bool(head.reader_feature_flags & Flag.DELETION_FILES))
    covering = Flag.COVERING_INDICES if indices and any(index.covering_fields for index in indices) else 0
    head.reader_feature_flags = flags.reader | covering
    head.writer_feature_flags = flags.writer | covering
