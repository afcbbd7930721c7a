"""Overwrite: replaces all rows, and optionally the schema; also creates a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from conroi.errors import InvalidInputError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import data_format_of
from conroi.format.flags import Flag
from conroi.format.manifest import Manifest
from conroi.operations.base import Step, copied, unknown_fields
from conroi.operations.fragments import check_new, next_fragment_id, with_fragments
from conroi.operations.lineage import assign_row_ids, stamp_new
from conroi.operations.schemas import check_schema, set_schema

DEFAULT_DATA_FORMAT = "2.2"


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Replace all rows, the schema and its metadata; config, bases and ids handed out stay.

    `stable_row_ids` and `data_format` are wishes for a table being created; the wire does not carry them. A table that
    is there keeps its row ids as they are, and its data format unless another is wished.
    """

    name: ClassVar[str] = "Overwrite"

    fragments: tuple[pb.DataFragment, ...] = ()
    schema: tuple[pb.Field, ...] = ()
    schema_metadata: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    config_upsert_values: Mapping[str, str] = field(default_factory=dict[str, str])
    initial_bases: tuple[pb.BasePath, ...] = ()
    stable_row_ids: bool | None = None
    data_format: str | None = None
    unknown: bytes = b""

    def to_wire(self) -> pb.Transaction:
        message = pb.Transaction.Overwrite(
            fragments=self.fragments,
            schema=self.schema,
            schema_metadata=self.schema_metadata,
            config_upsert_values=self.config_upsert_values,
            initial_bases=self.initial_bases,
        )
        message.MergeFromString(self.unknown)
        return pb.Transaction(overwrite=message)

    @classmethod
    def from_wire(cls, message: pb.Transaction.Overwrite) -> Overwrite:
        return cls(
            fragments=tuple(message.fragments),
            schema=tuple(message.schema),
            schema_metadata=dict(message.schema_metadata),
            config_upsert_values=dict(message.config_upsert_values),
            initial_bases=tuple(message.initial_bases),
            unknown=unknown_fields(message),
        )

    def apply(self, base: Manifest, step: Step) -> Manifest:
        is_new = base.version == 0
        head = base.editable_head()
        self._set_format(head, is_new=is_new)
        self._check(base, head, is_new=is_new)
        set_schema(head, self.schema, self.schema_metadata)
        head.config.update(self.config_upsert_values)
        head.base_paths.extend(self.initial_bases)
        fragments = self._numbered(head)
        if head.reader_feature_flags & Flag.STABLE_ROW_IDS:
            head.next_row_id = assign_row_ids(fragments, head.next_row_id)
            for fragment in fragments:
                stamp_new(fragment, step.version)
        return with_fragments(base, head, fragments, indices=())

    def _set_format(self, head: pb.ManifestHead, *, is_new: bool) -> None:
        if is_new or self.data_format is not None:
            head.data_format.file_format = "lance"
            head.data_format.version = self.data_format or _format_of(self.fragments)
        if is_new and self.stable_row_ids:
            head.reader_feature_flags |= Flag.STABLE_ROW_IDS
            head.writer_feature_flags |= Flag.STABLE_ROW_IDS

    def _check(self, base: Manifest, head: pb.ManifestHead, *, is_new: bool) -> None:
        if not is_new and self.stable_row_ids not in (None, base.has_stable_row_ids):
            raise UnsupportedError(
                f"The table was created {'with' if base.has_stable_row_ids else 'without'} stable row ids, and that "
                "cannot be changed by an overwrite.",
                hint="Create a new table, or leave stable_row_ids out.",
            )
        if not is_new and self.initial_bases:
            raise InvalidInputError(
                "Base paths can be given only when a table is created.", hint="Add them with UpdateBases."
            )
        if len({known.id for known in self.initial_bases}) < len(self.initial_bases):
            raise InvalidInputError("Two base paths have the same id.", hint="Give each its own.")
        check_schema(self.schema)
        check_new(self.fragments, head, self.schema)
        for fragment in self.fragments:
            if fragment.HasField("deletion_file"):
                raise InvalidInputError(
                    f"Fragment {fragment.id} of the overwrite has a deletion file; an overwrite gives every fragment a "
                    "new id, and the file would not be found again.",
                    hint="Write only the rows that are to stay.",
                )

    def _numbered(self, head: pb.ManifestHead) -> list[pb.DataFragment]:
        """All fragments are newly written, so all get new ids, whatever they say."""
        fragments = [copied(fragment) for fragment in self.fragments]
        for fragment_id, fragment in enumerate(fragments, next_fragment_id(head)):
            fragment.id = fragment_id
        return fragments


def _format_of(fragments: tuple[pb.DataFragment, ...]) -> str:
    """The data format that the files of a new table have."""
    files = (file for fragment in fragments for file in fragment.files)
    return next((data_format_of(file) for file in files), DEFAULT_DATA_FORMAT)
