"""Merge: adds columns, or new data for columns, beside the existing data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations.base import Step, copied, unknown_fields
from conroi.operations.fragments import (
    check_given_ids,
    check_new,
    check_new_file,
    next_fragment_id,
    numbered,
    with_fragments,
)
from conroi.operations.indices import retained, without_changed_fields
from conroi.operations.lineage import assign_row_ids, stamp_changed, stamp_new
from conroi.operations.schemas import check_ids_kept, set_schema


@dataclass(frozen=True, slots=True)
class Merge:
    """Replace the schema and the whole list of fragments; the old ones keep their ids and rows, new ones come last."""

    name: ClassVar[str] = "Merge"

    fragments: tuple[pb.DataFragment, ...]
    schema: tuple[pb.Field, ...]
    schema_metadata: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    preserves_nullability: bool = False
    unknown: bytes = b""
    is_folded: bool = False
    """Whether it stands for several changes (`conroi.operations.folded`); the wire has that beside the operation."""

    def to_wire(self) -> pb.Transaction:
        message = pb.Transaction.Merge(
            fragments=self.fragments,
            schema=self.schema,
            schema_metadata=self.schema_metadata,
            preserves_nullability=self.preserves_nullability,
        )
        message.MergeFromString(self.unknown)
        return pb.Transaction(merge=message)

    @classmethod
    def from_wire(cls, message: pb.Transaction.Merge) -> Merge:
        return cls(
            fragments=tuple(message.fragments),
            schema=tuple(message.schema),
            schema_metadata=dict(message.schema_metadata),
            preserves_nullability=message.preserves_nullability,
            unknown=unknown_fields(message),
        )

    def apply(self, base: Manifest, step: Step) -> Manifest:
        check_ids_kept(base, self.schema)
        head = base.editable_head()
        merged, new = self._split(base)
        check_new(new, head, self.schema)
        check_given_ids(new, base)
        new = numbered(new, next_fragment_id(head))
        if base.has_stable_row_ids:
            merged = [_stamped(fragment, base, step.version) for fragment in merged]
            head.next_row_id = assign_row_ids(new, head.next_row_id)
            for fragment in new:
                stamp_new(fragment, step.version)
        # pylance sends no metadata, and means what is there.
        set_schema(head, self.schema, self.schema_metadata or None)
        indices = without_changed_fields(
            base.indices,
            {fragment.id: _moved_fields(base.fragments_by_id[fragment.id], fragment) for fragment in merged},
        )
        indices = retained(
            indices,
            field_ids=[field.id for field in self.schema],
            fragment_ids=[fragment.id for fragment in (*merged, *new)],
        )
        return with_fragments(base, head, [*merged, *new], indices=indices)

    def _split(self, base: Manifest) -> tuple[list[pb.DataFragment], list[pb.DataFragment]]:
        """The merged old fragments, and the new ones; id 0 is also "no id yet", so the order tells them apart."""
        old = base.fragments_by_id
        count = len(old)
        merged, new = list(self.fragments[:count]), list(self.fragments[count:])
        if {fragment.id for fragment in merged} != old.keys():
            raise InvalidInputError(
                "A merge must list every fragment of the table exactly once, and new fragments after them; "
                f"the table has {sorted(old)}, the merge {[fragment.id for fragment in self.fragments]}.",
                hint="Start from the fragments of the newest version.",
            )
        for fragment in merged:
            _check_merged(fragment, old[fragment.id], base)
        return merged, new


def _check_merged(fragment: pb.DataFragment, before: pb.DataFragment, base: Manifest) -> None:
    if fragment.physical_rows != before.physical_rows:
        raise InvalidInputError(
            f"The merge would turn the {before.physical_rows} rows of fragment {before.id} into "
            f"{fragment.physical_rows}.",
            hint="A merge adds columns; to add or remove rows, use append, delete or update.",
        )
    if base.has_stable_row_ids and fragment.WhichOneof("row_id_sequence") is None:
        raise InvalidInputError(
            f"The merge would drop the row ids of fragment {before.id}.", hint="Keep the row ids of old fragments."
        )
    known = {(file.path, file.base_id) for file in before.files}
    for file in fragment.files:
        if (file.path, file.base_id) not in known:
            check_new_file(file, base.head)


def _stamped(fragment: pb.DataFragment, base: Manifest, version: int) -> pb.DataFragment:
    """Rows that got new column data count as changed; deletions alone change no row that is left."""
    if _identities(fragment.files) == _identities(base.fragments_by_id[fragment.id].files):
        return fragment
    fragment = copied(fragment)
    stamp_changed(fragment, version)
    return fragment


def _identities(files: Sequence[pb.DataFile]) -> list[pb.DataFile]:
    """The files without their sizes, which a concurrent commit may have filled in."""
    copies = [copied(file) for file in files]
    for file in copies:
        file.file_size_bytes = 0
    return copies


def _moved_fields(before: pb.DataFragment, after: pb.DataFragment) -> set[int]:
    """The fields that are still there but come from another file now."""
    old, new = _paths(before), _paths(after)
    return {field_id for field_id, path in old.items() if new.get(field_id, path) != path}


def _paths(fragment: pb.DataFragment) -> dict[int, str]:
    return {field_id: file.path for file in fragment.files for field_id in file.fields if field_id >= 0}
