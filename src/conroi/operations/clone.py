"""Clone: a new table, or a branch, that starts as a copy of another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.flags import require_writable
from conroi.format.manifest import Manifest
from conroi.operations.base import Step, copied, unknown_fields
from conroi.operations.update_bases import unused_base_id


@dataclass(frozen=True, slots=True)
class Clone:
    """Start from a version of another table; a shallow clone reads that table's files where they are, a deep one
    has them copied into its own folder before it is committed.

    `ref_path` is the absolute place of the source. A clone keeps the source's version number.
    """

    name: ClassVar[str] = "Clone"

    is_shallow: bool
    ref_version: int
    ref_path: str
    ref_name: str | None = None
    branch_name: str | None = None
    unknown: bytes = b""

    def to_wire(self) -> pb.Transaction:
        message = pb.Transaction.Clone(
            is_shallow=self.is_shallow,
            ref_name=self.ref_name,
            ref_version=self.ref_version,
            ref_path=self.ref_path,
            branch_name=self.branch_name,
        )
        message.MergeFromString(self.unknown)
        return pb.Transaction(clone=message)

    @classmethod
    def from_wire(cls, message: pb.Transaction.Clone) -> Clone:
        return cls(
            is_shallow=message.is_shallow,
            ref_version=message.ref_version,
            ref_path=message.ref_path,
            ref_name=message.ref_name if message.HasField("ref_name") else None,
            branch_name=message.branch_name if message.HasField("branch_name") else None,
            unknown=unknown_fields(message),
        )

    def apply(self, base: Manifest, step: Step) -> Manifest:
        if base.version != 0:
            raise InvalidInputError(
                "A clone can only be created where there is no table.", hint="Choose another place."
            )
        source = self._source(step)
        require_writable(source.head)
        head = source.editable_head()
        head.ClearField("branch")
        if self.branch_name is not None:
            head.branch = self.branch_name
        base_id = self._add_base(head) if self.is_shallow else None
        if base_id is None:
            del head.base_paths[:]
        return source.changed(
            head=head,
            fragments=[_based(fragment, base_id) for fragment in source.fragments],
            indices=[_based_index(index, base_id) for index in source.indices],
        )

    def _source(self, step: Step) -> Manifest:
        if step.source is None or step.source.version != self.ref_version:
            raise InvalidInputError(
                f"The manifest of version {self.ref_version} of the source is needed to clone it.",
                hint="Load it and hand it over as Step.source.",
            )
        return step.source

    def _add_base(self, head: pb.ManifestHead) -> int:
        base_id = unused_base_id(head, first=0)
        head.base_paths.add(id=base_id, name=self.ref_name, is_dataset_root=True, path=self.ref_path)
        return base_id


def _based(fragment: pb.DataFragment, base_id: int | None) -> pb.DataFragment:
    """The fragment as the clone finds it: the source's own files at the new base, or all copied into its folder."""
    copy = copied(fragment)
    for file in copy.files:
        _set_base(file, base_id)
    if copy.HasField("deletion_file"):
        _set_base(copy.deletion_file, base_id)
    return copy


def _based_index(index: pb.IndexMetadata, base_id: int | None) -> pb.IndexMetadata:
    copy = copied(index)
    _set_base(copy, base_id)
    return copy


def _set_base(entry: pb.DataFile | pb.DeletionFile | pb.IndexMetadata, base_id: int | None) -> None:
    if base_id is None:
        entry.ClearField("base_id")
    elif not entry.HasField("base_id"):
        entry.base_id = base_id
