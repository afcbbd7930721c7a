"""Manifest: the metadata of one version of a table.

A manifest repeats every fragment, so a table of 10,000 fragments has one of about a megabyte. This class keeps the
encoded message and decodes the fragments only on access; adding fragments concatenates bytes.

Consistency checks compare facts that are recorded twice, in it or beside it. The format has no checksum (see
`conroi.format.checksums` for ours), so these detect a damaged manifest of another writer. They decode every fragment:
for doctor and for registered tables, not for each commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import TypeVar

from google.protobuf.message import DecodeError

from conroi.errors import ConroiError, CorruptionError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import TOP_LEVEL, never_null_and_missing
from conroi.format.flags import Flag
from conroi.format.naming import ManifestName, check_relative_path, is_detached, parse_transaction_name
from conroi.format.roaring import decode_bitmap
from conroi.format.row_ids import decode_row_ids, decode_versions
from conroi.format.schema import schema_from_fields
from conroi.format.transaction import Transaction

MOST_ROWS = 1 << 32
"""A row of a fragment is addressed by 32 bits."""
_rows_of = attrgetter("physical_rows")


class Manifest:
    """One version of a table, as an immutable value.

    `head` and `fragments` are protobuf messages, because those carry fields that this version of conroi does not
    know. They are shared: never change one; use `changed`, which copies.
    """

    indices: tuple[pb.IndexMetadata, ...]

    # It has a message, or a head and a run of fragments: each is worked out from the other on first use.

    def __init__(self, message: bytes, indices: Sequence[pb.IndexMetadata] = ()) -> None:
        self.message = message
        self.indices = tuple(indices)

    @cached_property
    def message(self) -> bytes:
        """The whole, encoded."""
        before, after = _around_run(self.head)
        return b"".join((before, self._run, after))

    @cached_property
    def head(self) -> pb.ManifestHead:
        """Everything but the fragments. Read only."""
        head = _parse(pb.ManifestHead, self.message)
        head.ClearField("encoded_fragments")
        return head

    @cached_property
    def _run(self) -> bytes:
        """The fragments as they are encoded, one after the other."""
        # Encoders write fields in order: the columns, then the fragments, then the rest. Only a map with several keys
        # may be in another order than ours; then the run is taken out one by one.
        before, after = _around_run(self.head)
        if self.message.startswith(before) and self.message.endswith(after):
            return self.message[len(before) : len(self.message) - len(after)]
        run = _parse(pb.EncodedRun, self.message)
        run.DiscardUnknownFields()
        return run.SerializeToString(deterministic=True)

    @cached_property
    def fragments(self) -> tuple[pb.DataFragment, ...]:
        """The fragments, ascending by id. Read only."""
        fragments = tuple(_parse(pb.FragmentRun, self._run).fragments)
        if max(map(_rows_of, fragments), default=0) > MOST_ROWS:
            raise CorruptionError(
                f"The manifest has a fragment with more than {MOST_ROWS:,} rows.",
                hint="The manifest is damaged, or its writer is broken; open another version.",
            )
        return fragments

    @cached_property
    def fragments_by_id(self) -> dict[int, pb.DataFragment]:
        """The fragments by their id. Read only."""
        return {fragment.id: fragment for fragment in self.fragments}

    @property
    def version(self) -> int:
        return self.head.version

    @property
    def fields(self) -> Sequence[pb.Field]:
        """The schema, flat, parents before children. Read only."""
        return self.head.fields

    @property
    def has_stable_row_ids(self) -> bool:
        return bool(self.head.reader_feature_flags & 2)

    def editable_head(self) -> pb.ManifestHead:
        """A copy of the head that may be changed and given to `changed`."""
        head = pb.ManifestHead()
        head.CopyFrom(self.head)
        return head

    def changed(
        self,
        *,
        head: pb.ManifestHead | None = None,
        fragments: Iterable[pb.DataFragment] | None = None,
        added_fragments: Sequence[pb.DataFragment] = (),
        indices: Sequence[pb.IndexMetadata] | None = None,
    ) -> Manifest:
        """This manifest with a new head, with other fragments, or with fragments added at the end.

        Without `fragments` the old ones are neither decoded nor encoded again.
        """
        made = Manifest.__new__(Manifest)
        made.indices = self.indices if indices is None else tuple(indices)
        made.head = pb.ManifestHead()
        made.head.CopyFrom(self.head if head is None else head)
        new = pb.FragmentRun(fragments=added_fragments if fragments is None else [*fragments, *added_fragments])
        encoded = new.SerializeToString(deterministic=True)
        made._run = self._run + encoded if fragments is None else encoded  # noqa: SLF001 (a Manifest like ourselves)
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Manifest):
            return NotImplemented
        return self.full() == other.full() and self.indices == other.indices

    def __hash__(self) -> int:
        return hash(self.message)

    def __repr__(self) -> str:
        return f"Manifest(version={self.version}, {len(self.message)} bytes)"

    def full(self) -> pb.Manifest:
        """The whole message, decoded afresh."""
        return _parse(pb.Manifest, self.message)


def count_rows(fragments: Iterable[pb.DataFragment]) -> int:
    """Live rows, from metadata alone."""
    return sum(f.physical_rows - f.deletion_file.num_deleted_rows for f in fragments)


def _around_run(head: pb.ManifestHead) -> tuple[bytes, bytes]:
    """What stands before the fragments in an encoded manifest, and what after them."""
    before = pb.ManifestHead(fields=head.fields)
    after = pb.ManifestHead()
    after.CopyFrom(head)
    after.ClearField("fields")
    return before.SerializeToString(deterministic=True), after.SerializeToString(deterministic=True)


_Message = TypeVar("_Message", pb.ManifestHead, pb.FragmentRun, pb.EncodedRun, pb.Manifest)


def _parse(kind: type[_Message], data: bytes) -> _Message:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise CorruptionError(
            f"The manifest is not a valid message ({error}).",
            hint="The file is damaged; open an older version with at(version=…), or run doctor.",
        ) from error


_TOMBSTONE = -2
_SMALLEST_ROW_LINEAGE = -5  # hidden columns of row ids and row versions are numbered -3 to -5


def validate_manifest(manifest: Manifest) -> None:
    """CorruptionError with the first thing in this manifest that cannot be."""
    for problem in manifest_problems(manifest):
        raise CorruptionError(
            f"The manifest contradicts itself: {problem}.",
            version=manifest.version,
            hint="Open an older version of the table, or run doctor.",
        )


def manifest_problems(manifest: Manifest) -> Iterator[str]:
    """Everything in this manifest that cannot be, in words."""
    yield from _schema_problems(manifest)
    yield from _fragment_list_problems(manifest)
    base_ids = {base.id for base in manifest.head.base_paths}
    if len(base_ids) != len(manifest.head.base_paths):
        yield "two base paths have the same id"
    for fragment in manifest.fragments:
        for problem in _fragment_problems(fragment, base_ids, has_row_ids=manifest.has_stable_row_ids):
            yield f"fragment {fragment.id} {problem}"
        for column in never_null_and_missing(fragment, manifest.fields):
            yield f"fragment {fragment.id} has no values for column {column!r}, which may not be null"
    for index in manifest.indices:
        for problem in _index_problems(index, base_ids):
            yield f"index {index.name!r} {problem}"
    name = manifest.head.transaction_file
    if name and parse_transaction_name(name) is None:
        yield f"its transaction file is called {name!r}"


def check_name_fits(name: ManifestName, manifest: Manifest) -> None:
    """The number in a manifest's name must be the number in the manifest."""
    if name.version != manifest.version:
        raise CorruptionError(
            f"The manifest of version {name.version} says that it is version {manifest.version}.",
            version=name.version,
            hint="The file was renamed or damaged; restore it from a copy.",
        )


def check_transaction_fits(manifest: Manifest, transaction: Transaction) -> None:
    """The transaction beside or inside a manifest must be the one that the manifest names."""
    named = manifest.head.transaction_file
    if named and named != transaction.file_name:
        raise _other_transaction(manifest, f"names {named}, but the transaction is {transaction.file_name}")
    # A clone starts with the number that its source had, and the numbers of detached versions say nothing about time.
    is_counted = transaction.operation_name != "Clone" and not is_detached(transaction.read_version)
    if is_counted and transaction.read_version >= manifest.version:
        raise _other_transaction(manifest, f"was made on version {transaction.read_version}, which is not older")


def _other_transaction(manifest: Manifest, how: str) -> CorruptionError:
    return CorruptionError(
        f"The manifest of version {manifest.version} and its transaction do not belong together: it {how}.",
        version=manifest.version,
        hint="One of the two is damaged; restore it from a copy.",
    )


def _schema_problems(manifest: Manifest) -> Iterator[str]:
    seen = {TOP_LEVEL}
    for field in manifest.fields:
        if field.id in seen or field.id < 0:
            yield f"field {field.name!r} has the id {field.id}, which is taken"
        if field.parent_id not in seen:
            yield f"field {field.name!r} is inside field {field.parent_id}, which does not come before it"
        seen.add(field.id)
    columns = [field.name for field in manifest.fields if field.parent_id == TOP_LEVEL]
    if len(set(columns)) != len(columns):
        yield "two columns have the same name"
    yield from _raised(lambda: schema_from_fields(manifest.fields))


def _fragment_list_problems(manifest: Manifest) -> Iterator[str]:
    ids = [fragment.id for fragment in manifest.fragments]
    if any(later <= earlier for earlier, later in pairwise(ids)):
        yield "its fragments are not in the order of their ids, or one is there twice"
    head = manifest.head
    if ids and head.HasField("max_fragment_id") and max(ids) > head.max_fragment_id:
        yield f"it has a fragment {max(ids)}, above the largest id it says was ever used"
    has_deletions = any(fragment.HasField("deletion_file") for fragment in manifest.fragments)
    if has_deletions and not head.reader_feature_flags & Flag.DELETION_FILES:
        yield "it has deletion files, but its flags say that it has none"


def _fragment_problems(fragment: pb.DataFragment, base_ids: set[int], *, has_row_ids: bool) -> Iterator[str]:
    if not fragment.files:
        yield "has no data files"
    for file in fragment.files:
        yield from _data_file_problems(file, base_ids)
    if fragment.HasField("deletion_file"):
        yield from _deletion_problems(fragment, base_ids)
    yield from _row_problems(fragment, has_row_ids=has_row_ids)


def _data_file_problems(file: pb.DataFile, base_ids: set[int]) -> Iterator[str]:
    yield from _raised(lambda: check_relative_path(file.path))
    if file.file_major_version >= 2 and len(file.fields) != len(file.column_indices):
        yield f"has a file with {len(file.fields)} fields in {len(file.column_indices)} columns"
    numbers = [number for number in file.fields if number != _TOMBSTONE]
    if len(set(numbers)) != len(numbers) or any(number < _SMALLEST_ROW_LINEAGE or number == -1 for number in numbers):
        yield f"has a file with the fields {list(file.fields)}"
    if file.HasField("base_id") and file.base_id not in base_ids:
        yield f"has a file at the base path {file.base_id}, which is not listed"


def _deletion_problems(fragment: pb.DataFragment, base_ids: set[int]) -> Iterator[str]:
    file = fragment.deletion_file
    if file.file_type not in pb.DeletionFile.FileType.values():
        yield f"has a deletion file of kind {file.file_type}"
    if file.num_deleted_rows > fragment.physical_rows:
        yield f"has lost {file.num_deleted_rows} of {fragment.physical_rows} rows"
    if file.HasField("base_id") and file.base_id not in base_ids:
        yield f"has a deletion file at the base path {file.base_id}, which is not listed"


def _row_problems(fragment: pb.DataFragment, *, has_row_ids: bool) -> Iterator[str]:
    if has_row_ids and fragment.WhichOneof("row_id_sequence") is None:
        yield "has no row ids, in a table with stable row ids"
    rows = fragment.physical_rows
    if fragment.HasField("inline_row_ids"):
        yield from _raised(lambda: decode_row_ids(fragment.inline_row_ids, rows=rows))
    if fragment.HasField("inline_created_at_versions"):
        yield from _raised(lambda: decode_versions(fragment.inline_created_at_versions, rows=rows))
    if fragment.HasField("inline_last_updated_at_versions"):
        yield from _raised(lambda: decode_versions(fragment.inline_last_updated_at_versions, rows=rows))


def _index_problems(index: pb.IndexMetadata, base_ids: set[int]) -> Iterator[str]:
    if index.HasField("base_id") and index.base_id not in base_ids:
        yield f"is at the base path {index.base_id}, which is not listed"
    if index.fragment_bitmap:
        yield from _raised(lambda: decode_bitmap(index.fragment_bitmap, what="list of its fragments"))
    for file in index.files:
        yield from _raised(lambda path=file.path: check_relative_path(path))


def _raised(check: Callable[[], object]) -> Iterator[str]:
    """The message of the error that a check raises, if it raises one."""
    try:
        check()
    except ConroiError as error:
        yield f"is wrong here: {error.message.rstrip('.')}"
