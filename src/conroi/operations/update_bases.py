"""UpdateBases: adds storage locations in which files of the table may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from conroi.errors import AlreadyExistsError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations.base import Step, copied, unknown_fields


@dataclass(frozen=True, slots=True)
class UpdateBases:
    """Add base paths; one without an id gets the smallest free one."""

    name: ClassVar[str] = "UpdateBases"

    new_bases: tuple[pb.BasePath, ...]
    unknown: bytes = b""

    def to_wire(self) -> pb.Transaction:
        message = pb.Transaction.UpdateBases(new_bases=self.new_bases)
        message.MergeFromString(self.unknown)
        return pb.Transaction(update_bases=message)

    @classmethod
    def from_wire(cls, message: pb.Transaction.UpdateBases) -> UpdateBases:
        return cls(new_bases=tuple(message.new_bases), unknown=unknown_fields(message))

    def apply(self, base: Manifest, _step: Step) -> Manifest:
        head = base.editable_head()
        for new_base in self.new_bases:
            _check(new_base, head)
            added = copied(new_base)
            # Id 0 means "give me one", so the ids we give begin at 1; a clone's own base may well be 0.
            added.id = added.id or unused_base_id(head, first=1)
            head.base_paths.append(added)
        return base.changed(head=head)


def unused_base_id(head: pb.ManifestHead, *, first: int) -> int:
    """The smallest free id that is not below `first`."""
    used = {known.id for known in head.base_paths}
    return next(base_id for base_id in range(first, first + len(used) + 1) if base_id not in used)


def _check(new: pb.BasePath, head: pb.ManifestHead) -> None:
    for known in head.base_paths:
        is_same_name = new.HasField("name") == known.HasField("name") and new.name == known.name
        if is_same_name or known.path == new.path or (new.id and new.id == known.id):
            raise AlreadyExistsError(
                f"The base path {_label(new)} clashes with {_label(known)}, which the table already has: id, name and "
                "path of a base must each be new.",
                hint="Give it another name, or use the existing base.",
            )


def _label(base: pb.BasePath) -> str:
    return f"{base.name or '(no name)'!r} (id {base.id})"
