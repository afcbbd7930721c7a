"""Update: changes rows, by moving them into new fragments or by giving columns new data; merges are updates too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.format.roaring import decode_bitmap
from conroi.operations.base import Step, copied, unknown_fields
from conroi.operations.fragments import (
    check_given_ids,
    check_new,
    next_fragment_id,
    numbered,
    replaced,
    with_fragments,
)
from conroi.operations.indices import retained, without_changed_fields
from conroi.operations.lineage import assign_row_ids, stamp_changed_rows, stamp_moved
from conroi.operations.mem_wal import with_compacted

REWRITE_ROWS = pb.Transaction.Update.REWRITE_ROWS
REWRITE_COLUMNS = pb.Transaction.Update.REWRITE_COLUMNS


@dataclass(frozen=True, slots=True)
class Update:
    """Drop fragments, replace others by post-images, and add new ones with moved and inserted rows.

    `fields_modified` got new values inside `updated_fragments`. `fields_for_preserving_frag_bitmap` are the fields
    whose values may differ in moved rows. With stable row ids an index on other fields can still answer for them, and
    pylance 14 adds the new fragments to the coverage of indices that name rows by id. We extend none: a scan looks at
    those fragments until the index is made anew.
    """

    name: ClassVar[str] = "Update"

    removed_fragment_ids: tuple[int, ...] = ()
    updated_fragments: tuple[pb.DataFragment, ...] = ()
    new_fragments: tuple[pb.DataFragment, ...] = ()
    fields_modified: tuple[int, ...] = ()
    compacted_sstables: tuple[pb.CompactedSsTable, ...] = ()
    fields_for_preserving_frag_bitmap: tuple[int, ...] = ()
    update_mode: pb.Transaction.Update.Mode = REWRITE_ROWS
    inserted_rows: pb.KeyExistenceFilter | None = None
    updated_fragment_offsets: Mapping[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    updated_fragment_offset_bitmaps: Mapping[int, bytes] = field(default_factory=dict[int, bytes])
    unknown: bytes = b""

    def to_wire(self) -> pb.Transaction:
        message = pb.Transaction.Update(
            removed_fragment_ids=self.removed_fragment_ids,
            updated_fragments=self.updated_fragments,
            new_fragments=self.new_fragments,
            fields_modified=self.fields_modified,
            compacted_sstables=self.compacted_sstables,
            fields_for_preserving_frag_bitmap=self.fields_for_preserving_frag_bitmap,
            update_mode=self.update_mode,
            inserted_rows=self.inserted_rows,
            updated_fragment_offset_bitmaps=self.updated_fragment_offset_bitmaps,
        )
        for fragment_id, offsets in self.updated_fragment_offsets.items():
            message.updated_fragment_offsets[fragment_id].offsets.extend(offsets)
        message.MergeFromString(self.unknown)
        return pb.Transaction(update=message)

    @classmethod
    def from_wire(cls, message: pb.Transaction.Update) -> Update:
        offsets = {key: tuple(value.offsets) for key, value in message.updated_fragment_offsets.items()}
        return cls(
            removed_fragment_ids=tuple(message.removed_fragment_ids),
            updated_fragments=tuple(message.updated_fragments),
            new_fragments=tuple(message.new_fragments),
            fields_modified=tuple(message.fields_modified),
            compacted_sstables=tuple(message.compacted_sstables),
            fields_for_preserving_frag_bitmap=tuple(message.fields_for_preserving_frag_bitmap),
            update_mode=message.update_mode,
            inserted_rows=message.inserted_rows if message.HasField("inserted_rows") else None,
            updated_fragment_offsets=offsets,
            updated_fragment_offset_bitmaps=dict(message.updated_fragment_offset_bitmaps),
            unknown=unknown_fields(message),
        )

    def apply(self, base: Manifest, step: Step) -> Manifest:
        head = base.editable_head()
        check_new(self.new_fragments, head)
        check_given_ids(self.new_fragments, base)
        updated = [self._post_image(fragment, base, step) for fragment in self.updated_fragments]
        kept = replaced(base, removed=self.removed_fragment_ids, updated=updated)
        new = numbered(self.new_fragments, next_fragment_id(head))
        if base.has_stable_row_ids:
            first_new_id = head.next_row_id
            head.next_row_id = assign_row_ids(new, first_new_id)
            stamp_moved(new, base.fragments, version=step.version, first_new_id=first_new_id)
        fragments = [*kept, *new]
        if self.updated_fragment_offsets or self.updated_fragment_offset_bitmaps:
            self._check_offsets()
        indices: Sequence[pb.IndexMetadata] = base.indices
        if indices:
            changed = {fragment.id: self.fields_modified for fragment in self.updated_fragments}
            indices = retained(
                without_changed_fields(indices, changed),
                field_ids=[field.id for field in base.fields],
                fragment_ids=[fragment.id for fragment in fragments],
            )
        if self.compacted_sstables:
            indices = with_compacted(indices, self.compacted_sstables, step)
        return with_fragments(base, head, fragments, indices=indices)

    def _post_image(self, fragment: pb.DataFragment, base: Manifest, step: Step) -> pb.DataFragment:
        fragment = copied(fragment)
        before = base.fragments_by_id.get(fragment.id)
        if before is not None and before.overlays:
            # Overlays may have come after this update was computed; it does not know them and must not lose them.
            del fragment.overlays[:]
            fragment.overlays.extend(before.overlays)
        if base.has_stable_row_ids and self.update_mode == REWRITE_COLUMNS:
            stamp_changed_rows(fragment, self._changed_offsets(fragment.id), step.version)
        return fragment

    def _changed_offsets(self, fragment_id: int) -> list[int]:
        bitmap = self.updated_fragment_offset_bitmaps.get(fragment_id)
        if bitmap is not None:
            return list(decode_bitmap(bitmap, what=f"bitmap of changed rows of fragment {fragment_id}"))
        return list(self.updated_fragment_offsets.get(fragment_id, ()))

    def _check_offsets(self) -> None:
        named = self.updated_fragment_offsets.keys() | self.updated_fragment_offset_bitmaps.keys()
        stray = named - {fragment.id for fragment in self.updated_fragments}
        if stray and self.update_mode == REWRITE_COLUMNS:
            raise InvalidInputError(
                f"The update names changed rows in fragments that it does not rewrite: {sorted(stray)}.",
                hint="Name changed rows only for updated fragments.",
            )
