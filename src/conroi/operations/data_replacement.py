"""DataReplacement: replaces the data files of some columns of some fragments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations.base import Step, copied, unknown_fields
from conroi.operations.fragments import TOMBSTONE, check_new_file, missing_fragments, replaced, with_fragments
from conroi.operations.indices import without_changed_fields
from conroi.operations.lineage import stamp_changed
from conroi.operations.schemas import with_ancestors

Group = pb.Transaction.DataReplacement.Group


@dataclass(frozen=True, slots=True)
class DataReplacement:
    """Let a new data file answer for its columns in a fragment; row counts and row ids stay."""

    name: ClassVar[str] = "DataReplacement"

    replacements: tuple[Group, ...]
    unknown: bytes = b""

    def to_wire(self) -> pb.Transaction:
        message = pb.Transaction.DataReplacement(replacements=self.replacements)
        message.MergeFromString(self.unknown)
        return pb.Transaction(data_replacement=message)

    @classmethod
    def from_wire(cls, message: pb.Transaction.DataReplacement) -> DataReplacement:
        return cls(replacements=tuple(message.replacements), unknown=unknown_fields(message))

    def apply(self, base: Manifest, step: Step) -> Manifest:
        self._check(base)
        by_id = {group.fragment_id: group.new_file for group in self.replacements}
        updated = [
            _with_file(base.fragments_by_id[fragment_id], file, base.fields) for fragment_id, file in by_id.items()
        ]
        if base.has_stable_row_ids:
            for fragment in updated:
                stamp_changed(fragment, step.version)
        fragments = replaced(base, removed=(), updated=updated)
        changed = {key: with_ancestors(file.fields, base.fields) for key, file in by_id.items()}
        indices = without_changed_fields(base.indices, changed)
        return with_fragments(base, base.editable_head(), fragments, indices=indices)

    def _check(self, base: Manifest) -> None:
        if len({tuple(group.new_file.fields) for group in self.replacements}) > 1:
            raise InvalidInputError(
                "The replacement files do not all hold the same columns.",
                hint="Commit one replacement for each set of columns.",
            )
        if len({group.fragment_id for group in self.replacements}) < len(self.replacements):
            raise InvalidInputError("Two files replace data of one fragment.", hint="Write them as one file.")
        missing = {group.fragment_id for group in self.replacements} - base.fragments_by_id.keys()
        if missing:
            raise missing_fragments(missing)
        for group in self.replacements:
            check_new_file(group.new_file, base.head)


def _with_file(fragment: pb.DataFragment, file: pb.DataFile, fields: Sequence[pb.Field]) -> pb.DataFragment:
    """A copy of the fragment in which the file answers for its columns."""
    copy = copied(fragment)
    swapped = [old for old in copy.files if _is_same_layout(old, file)]
    for old in swapped:
        _swap(old, file)
    wanted = with_ancestors(file.fields, fields)
    present: set[int] = set()
    for old in copy.files:
        present |= with_ancestors(old.fields, fields)
    if wanted.isdisjoint(present):  # the columns were all null until now
        copy.files.append(file)
    elif not swapped and wanted <= present and not _legacy_holds(copy, wanted):
        _entomb(copy, wanted, {field.id for field in fields})
        copy.files.append(file)
    if copy == fragment:
        raise InvalidInputError(
            f"The file {file.path!r} replaces nothing in fragment {fragment.id}.",
            hint="It must hold columns that the fragment has, all of them or none, in the table's file version.",
        )
    return copy


def _is_same_layout(old: pb.DataFile, new: pb.DataFile) -> bool:
    return (
        list(old.fields) == list(new.fields)
        and list(old.column_indices) == list(new.column_indices)
        and old.file_major_version == new.file_major_version
        and old.file_minor_version == new.file_minor_version
    )


def _swap(old: pb.DataFile, new: pb.DataFile) -> None:
    old.path = new.path
    old.file_size_bytes = new.file_size_bytes
    old.ClearField("base_id")
    if new.HasField("base_id"):
        old.base_id = new.base_id


def _legacy_holds(fragment: pb.DataFragment, wanted: set[int]) -> bool:
    """Whether one of the columns is in a file of the first format, whose reader cannot skip a column."""
    return any(
        (file.file_major_version, file.file_minor_version) < (0, 3) and not wanted.isdisjoint(file.fields)
        for file in fragment.files
    )


def _entomb(fragment: pb.DataFragment, wanted: set[int], live: set[int]) -> None:
    """Mark the columns as gone where they are, and drop files that have no live column left."""
    for file in fragment.files:
        file.fields[:] = [TOMBSTONE if field_id in wanted else field_id for field_id in file.fields]
    kept = [file for file in fragment.files if not live.isdisjoint(file.fields)]
    del fragment.files[:]
    fragment.files.extend(kept)
