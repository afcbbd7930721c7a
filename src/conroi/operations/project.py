"""Project: drops, renames or reorders columns, without changing data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations.base import Step, unknown_fields
from conroi.operations.fragments import with_files, with_fragments
from conroi.operations.indices import retained
from conroi.operations.schemas import check_ids_kept, set_schema


@dataclass(frozen=True, slots=True)
class Project:
    """Replace the schema; data files that hold none of its columns are dropped from the fragments."""

    name: ClassVar[str] = "Project"

    schema: tuple[pb.Field, ...]
    preserves_nullability: bool = False
    unknown: bytes = b""

    def to_wire(self) -> pb.Transaction:
        message = pb.Transaction.Project(schema=self.schema, preserves_nullability=self.preserves_nullability)
        message.MergeFromString(self.unknown)
        return pb.Transaction(project=message)

    @classmethod
    def from_wire(cls, message: pb.Transaction.Project) -> Project:
        return cls(
            schema=tuple(message.schema),
            preserves_nullability=message.preserves_nullability,
            unknown=unknown_fields(message),
        )

    def apply(self, base: Manifest, _step: Step) -> Manifest:
        check_ids_kept(base, self.schema)
        head = base.editable_head()
        set_schema(head, self.schema)
        field_ids = {field.id for field in self.schema}
        indices = retained(base.indices, field_ids=field_ids, fragment_ids=[fragment.id for fragment in base.fragments])
        fragments = [_projected(fragment, field_ids) for fragment in base.fragments]
        return with_fragments(base, head, fragments, indices=indices)


def _projected(fragment: pb.DataFragment, field_ids: set[int]) -> pb.DataFragment:
    files = [file for file in fragment.files if not field_ids.isdisjoint(file.fields)]
    return fragment if len(files) == len(fragment.files) else with_files(fragment, files)
