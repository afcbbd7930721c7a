"""Restore: makes an old version the newest one again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.flags import computed_flags, require_writable
from conroi.format.manifest import Manifest
from conroi.operations.base import Step, unknown_fields


@dataclass(frozen=True, slots=True)
class Restore:
    """Take over everything from an older version, except that ids handed out since never come back."""

    name: ClassVar[str] = "Restore"

    version: int
    unknown: bytes = b""

    def to_wire(self) -> pb.Transaction:
        wire = pb.Transaction(restore=pb.Transaction.Restore(version=self.version))
        wire.restore.MergeFromString(self.unknown)
        return wire

    @classmethod
    def from_wire(cls, message: pb.Transaction.Restore) -> Restore:
        return cls(version=message.version, unknown=unknown_fields(message))

    def apply(self, base: Manifest, step: Step) -> Manifest:
        target = self._target(step)
        require_writable(target.head)
        if base.has_stable_row_ids and not target.has_stable_row_ids:
            raise InvalidInputError(
                f"Version {self.version} is from before the table had stable row ids; going back to it would let "
                "new rows get ids that other rows had.",
                hint="Copy the rows of that version into the table with an overwrite instead.",
            )
        head = target.editable_head()
        _keep_high_water_marks(head, base.head)
        _keep_flags(head, base.head)
        if base.head.HasField("branch"):
            head.branch = base.head.branch
        return target.changed(head=head)

    def _target(self, step: Step) -> Manifest:
        if step.restored is None or step.restored.version != self.version:
            raise InvalidInputError(
                f"The manifest of version {self.version} is needed to restore it.",
                hint="Load it and hand it over as Step.restored.",
            )
        return step.restored


def _keep_high_water_marks(head: pb.ManifestHead, now: pb.ManifestHead) -> None:
    head.next_row_id = max(head.next_row_id, now.next_row_id)
    for mark in ("max_fragment_id", "max_allocated_field_id", "max_clustering_id"):
        if now.HasField(mark) and (not head.HasField(mark) or getattr(now, mark) > getattr(head, mark)):
            setattr(head, mark, getattr(now, mark))


def _keep_flags(head: pb.ManifestHead, now: pb.ManifestHead) -> None:
    """Flags that stay once set, stay; `build` drops those of the others that do not fit the restored version."""
    flags = computed_flags(now, has_deletions=False)
    head.reader_feature_flags |= flags.reader
    head.writer_feature_flags |= flags.writer
