"""Fragment lists: number new fragments, validate them, and put a changed list into the manifest.

Unchanged fragments stay the same objects as in the base manifest, so that "changed" is an `is not`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import pairwise
from operator import attrgetter

from conroi.errors import CorruptionError, InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import data_format_of, never_null_and_missing
from conroi.format.flags import Flag
from conroi.format.manifest import Manifest
from conroi.format.naming import check_relative_path
from conroi.operations.indices import covered_fragments, is_system

TOMBSTONE = -2
"""Stands in `DataFile.fields` for a column that is not read from that file any more."""

_LARGEST_ID = (1 << 32) - 1
_by_id = attrgetter("id")


def next_fragment_id(head: pb.ManifestHead) -> int:
    """The first id that no fragment of the table ever had."""
    return head.max_fragment_id + 1 if head.HasField("max_fragment_id") else 0


def numbered(fragments: Iterable[pb.DataFragment], first_id: int) -> list[pb.DataFragment]:
    """Copies of new fragments; those without an id get the next free ones, the others had theirs reserved."""
    copies: list[pb.DataFragment] = []
    for fragment in fragments:
        copies.append(deepcopy(fragment))
        if fragment.id == 0:
            copies[-1].id = first_id
            first_id += 1
    return copies


def check_new(
    fragments: Iterable[pb.DataFragment], head: pb.ManifestHead, schema: Sequence[pb.Field] | None = None
) -> None:
    """Refuse new fragments that other readers would drop or misread; `schema` if the table gets another one."""
    for fragment in fragments:
        if fragment.physical_rows == 0:
            raise InvalidInputError(
                f"A new fragment (file {_first_path(fragment)}) does not say how many rows it has.",
                hint="Set physical_rows; a fragment without rows must be left out.",
            )
        if fragment.id == 0 and fragment.HasField("deletion_file"):
            raise InvalidInputError(
                f"A new fragment (file {_first_path(fragment)}) has a deletion file but no id; the file's name has "
                "the id in it, so it would not be found again.",
                hint="Write only the rows that are to stay, or commit the deletions as a Delete.",
            )
        for file in fragment.files:
            check_new_file(file, head)
        missing = never_null_and_missing(fragment, head.fields if schema is None else schema)
        if missing:
            raise InvalidInputError(
                f"A new fragment (file {_first_path(fragment)}) has no values for columns that may not be null: "
                f"{', '.join(missing)}.",
                hint="Write them too, or make the columns nullable first.",
            )


def check_given_ids(new: Iterable[pb.DataFragment], base: Manifest, *, are_reserved: bool = False) -> None:
    """Refuse ids that new fragments may not bring: in use, known to an index, or (`are_reserved`) never set aside.

    An index that still covers a fragment which is gone would hide the rows of another one under that id.
    """
    given = set(map(_by_id, new)) - {0}
    if not given:
        return
    if are_reserved and max(given) >= next_fragment_id(base.head):
        raise InvalidInputError(
            f"A new fragment has id {max(given)}, which was not reserved: the highest so far is "
            f"{next_fragment_id(base.head) - 1}.",
            hint="Reserve ids first, with reserve_fragments(count), or leave them at 0.",
        )
    used = given & base.fragments_by_id.keys()
    for index in base.indices:
        if not is_system(index):
            used |= given.intersection(covered_fragments(index) or ())
    if used:
        raise InvalidInputError(
            f"New fragments have the ids {', '.join(map(str, sorted(used)))}, which are or were in use.",
            hint="Leave them at 0, so that they get free ones.",
        )


def check_new_file(file: pb.DataFile, head: pb.ManifestHead) -> None:
    """Refuse a data file that holds nothing, or whose file version is not that of the table."""
    if not file.fields:
        raise InvalidInputError(f"The data file {file.path!r} holds no columns.", hint="Leave it out of the fragment.")
    found, expected = data_format_of(file), head.data_format.version
    if found != expected and not head.reader_feature_flags & Flag.MIXED_FILE_VERSIONS:
        raise InvalidInputError(
            f"The data file {file.path!r} has file version {found}, but the table has {expected}; readers refuse a "
            "table that mixes them.",
            hint=f"Write the file again with data_storage_version={expected!r}.",
        )


def with_added(base: Manifest, head: pb.ManifestHead, added: Sequence[pb.DataFragment]) -> Manifest:
    """The manifest with new fragments and all old ones, which are not even decoded if the new ids are the highest."""
    added = sorted(added, key=_by_id)
    if added and added[0].id < next_fragment_id(base.head):
        return with_fragments(base, head, [*base.fragments, *added])
    _claim_ids(head, added)
    for fragment in added:
        for file in fragment.files:
            check_published_path(file.path)
        if fragment.HasField("deletion_file"):
            mark_deletions(head, True)
    return base.changed(head=head, added_fragments=added)


def with_fragments(
    base: Manifest,
    head: pb.ManifestHead,
    fragments: Iterable[pb.DataFragment],
    *,
    indices: Sequence[pb.IndexMetadata] | None = None,
) -> Manifest:
    """The manifest with exactly these fragments: sorted, without dead files, the high-water mark never lowered."""
    ordered = sorted(fragments, key=_by_id)
    _claim_ids(head, ordered)
    old = base.fragments_by_id
    known = set(map(_by_id, head.fields))
    kept: list[pb.DataFragment] = []
    has_deletions = False
    for fragment in ordered:
        is_new = old.get(fragment.id) is not fragment
        if not is_new or _has_live_rows(fragment):
            kept.append(_without_dead_files(fragment, known) if is_new else fragment)
            has_deletions |= fragment.HasField("deletion_file")
            for file in kept[-1].files if is_new else ():
                check_published_path(file.path)
    mark_deletions(head, has_deletions)
    return base.changed(head=head, fragments=kept, indices=indices)


def replaced(base: Manifest, *, removed: Iterable[int], updated: Iterable[pb.DataFragment]) -> list[pb.DataFragment]:
    """The fragments of the base without the removed ones, and with the post-images of the updated ones."""
    images = {fragment.id: fragment for fragment in updated}
    gone = set(removed)
    missing = (gone | images.keys()) - base.fragments_by_id.keys()
    if missing:
        raise missing_fragments(missing)
    return [images.get(fragment.id, fragment) for fragment in base.fragments if fragment.id not in gone]


def missing_fragments(ids: Iterable[int]) -> InvalidInputError:
    """The error for a change to fragments that the table does not have."""
    listed = ", ".join(str(fragment_id) for fragment_id in sorted(ids))
    return InvalidInputError(
        f"The operation changes fragments that the table does not have: {listed}.",
        hint="They were removed by another commit; compute the change again on the newest version.",
    )


def mark_deletions(head: pb.ManifestHead, has_deletions: bool) -> None:
    """Set or clear the flag that says that some fragment has a deletion file."""
    for word in ("reader_feature_flags", "writer_feature_flags"):
        flags: int = getattr(head, word)
        setattr(head, word, flags | Flag.DELETION_FILES if has_deletions else flags & ~Flag.DELETION_FILES)


def _claim_ids(head: pb.ManifestHead, ordered: Sequence[pb.DataFragment]) -> None:
    """Refuse ids that are too large, or there twice; else raise the high-water mark to the highest."""
    if ordered and ordered[-1].id > _LARGEST_ID:
        raise InvalidInputError(
            f"Fragment id {ordered[-1].id} does not fit into 32 bits.",
            hint="The ids of this table are used up; copy it into a new one.",
        )
    for one, other in pairwise(ordered):
        if one.id == other.id:
            raise CorruptionError(
                f"The commit would make two fragments with id {one.id}.",
                hint="Leave the id of new fragments at 0, so that they get free ones.",
            )
    if ordered and ordered[-1].id >= next_fragment_id(head):
        head.max_fragment_id = ordered[-1].id


def check_published_path(path: str) -> None:
    """Refuse to publish the name of a file that is not inside the table (or inside the base that it names)."""
    try:
        check_relative_path(path)
    except CorruptionError:
        raise InvalidInputError(
            f"The file {path!r} is not a plain path inside the table, so no version may name it.",
            hint="Give the path of a data file relative to the table's data folder, without '..'.",
        ) from None


def _has_live_rows(fragment: pb.DataFragment) -> bool:
    deleted = fragment.deletion_file.num_deleted_rows if fragment.HasField("deletion_file") else 0
    return fragment.physical_rows == 0 or deleted < fragment.physical_rows


def _without_dead_files(fragment: pb.DataFragment, known: set[int]) -> pb.DataFragment:
    """Without the files of which nothing is left in the schema: readers refuse to open one."""
    live = [
        file for file in fragment.files if not known.isdisjoint(file.fields) or min(file.fields, default=0) < TOMBSTONE
    ]
    return fragment if len(live) == len(fragment.files) else with_files(fragment, live)


def with_files(fragment: pb.DataFragment, files: Iterable[pb.DataFile]) -> pb.DataFragment:
    """A copy of the fragment with these data files."""
    copy = deepcopy(fragment)
    del copy.files[:]
    copy.files.extend(files)
    return copy


def _first_path(fragment: pb.DataFragment) -> str:
    return repr(fragment.files[0].path) if fragment.files else "none"
