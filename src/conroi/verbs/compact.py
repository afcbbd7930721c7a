"""Compaction: small fragments and deleted rows become full fragments; the fragment-reuse index follows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.any_pb2 import Any as AnyMessage
from pyroaring import BitMap, BitMap64

from conroi.commit.change import Plan
from conroi.conflicts import Staged
from conroi.data.arrow_types import fragment_from_json
from conroi.data.pylance import execute_compaction, has_sections, plan_compaction, pylance_errors
from conroi.data.table_version import TableVersion
from conroi.data.writer import ROWS_PER_FILE, Progress
from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.json import parse_object
from conroi.format.manifest import Manifest
from conroi.format.naming import data_path
from conroi.format.row_ids import (
    concat_row_ids,
    concat_versions,
    constant_versions,
    drop_row_ids,
    drop_versions,
    take_row_ids,
    take_versions,
)
from conroi.operations import Rewrite
from conroi.operations.base import copied
from conroi.operations.indices import covered_fragments, finds_addresses, follows_reuse, is_system, unindexed
from conroi.snapshots.deletions import load_deletions
from conroi.verbs.update import MovedRows

ReserveIds = Callable[[int], range]
"""Commits a reservation of this many fragment ids and returns them."""


@dataclass(frozen=True)
class CompactOptions:
    """Which fragments to rewrite."""

    rows_per_fragment: int = ROWS_PER_FILE
    deleted_share: float = 0.1
    """Fragments with a larger share of deleted rows are rewritten even if they are large enough."""
    spares_indices: bool = False
    """Skip fragments whose rows an index would lose because it cannot follow them to another fragment."""


@dataclass(frozen=True)
class Rewritten:
    """Source fragments of a rewrite, and the new ones with their rows."""

    old_ids: Sequence[int]
    new: Sequence[pb.DataFragment]


RewriteGroups = Callable[[TableVersion, CompactOptions, "Progress | None"], Sequence[Rewritten]]
"""Does the part of a compaction that reads and writes rows."""


def rewrite_here(pinned: TableVersion, options: CompactOptions, progress: Progress | None) -> Sequence[Rewritten]:
    """In this process, one group after the other."""
    done: list[Rewritten] = []
    for task in compaction_tasks(pinned, options):
        done.append(rewrite_group(pinned, task))
        if progress is not None:
            progress(sum(fragment.physical_rows for group in done for fragment in group.new))
    return done


def compact(
    pinned: TableVersion,
    options: CompactOptions,
    reserve_ids: ReserveIds,
    *,
    progress: Progress | None = None,
    rewrite: RewriteGroups = rewrite_here,
) -> Plan | None:
    """Rewrite what is worth it, preserving the order of rows; None if nothing is."""
    if options.rows_per_fragment < 1:
        raise InvalidInputError(
            f"{options.rows_per_fragment} rows per fragment cannot be.", table=pinned.root, hint="Give 1 or more."
        )
    groups: list[pb.Transaction.Rewrite.Group] = []
    for rewritten in rewrite(pinned, options, progress):
        old = [pinned.manifest.fragments_by_id[number] for number in rewritten.old_ids]
        new = [copied(fragment) for fragment in rewritten.new]
        if pinned.manifest.has_stable_row_ids:
            _carry_lineage(pinned, old, new)
        groups.append(pb.Transaction.Rewrite.Group(old_fragments=old, new_fragments=new))
    return _plan(pinned, groups, reserve_ids, keeps_order=True) if groups else None


def compaction_tasks(pinned: TableVersion, options: CompactOptions) -> list[str]:
    """Which fragments are worth rewriting together: pylance's own plan, each task as JSON, as it travels."""
    with pylance_errors(pinned.root):
        tasks = plan_compaction(
            pinned.files.objects,
            pinned.dataset,
            {
                "target_rows_per_fragment": options.rows_per_fragment,
                "materialize_deletions_threshold": options.deleted_share,
            },
        )
    if not options.spares_indices:
        return tasks
    spared = _covered_for_good(pinned.manifest)
    return [task for task in tasks if spared.isdisjoint(_fragments_of(task))]


def _fragments_of(task: str) -> BitMap:
    return BitMap([each["id"] for each in parse_object(task, "The plan of a compaction")["task"]["fragments"]])


def _covered_for_good(manifest: Manifest) -> BitMap:
    """The fragments that some index covers which cannot follow their rows through a rewrite."""
    is_left = finds_addresses if manifest.has_stable_row_ids else _cannot_follow_reuse
    left_behind = [index for index in manifest.indices if not is_system(index) and is_left(index)]
    return BitMap.union(BitMap(), *(covered_fragments(index) or BitMap() for index in left_behind))


def _cannot_follow_reuse(index: pb.IndexMetadata) -> bool:
    return not follows_reuse(index)


def lost_by(plan: Plan, after: Manifest) -> list[str]:
    """The indices that no longer have all rows which this rewrite moved, by name."""
    operation = plan.staged.operation
    assert isinstance(operation, Rewrite)
    moved = {fragment.id for group in operation.groups for fragment in group.old_fragments}
    lacking = unindexed(after)
    had = {i.name for i in plan.staged.base.indices if not moved.isdisjoint(covered_fragments(i) or ())}
    return sorted(name for name in had if lacking.get(name))


def rewrite_group(pinned: TableVersion, planned: str) -> Rewritten:
    """Do one task: the rows of some fragments, in their order, in new ones."""
    with pylance_errors(pinned.root):
        result = execute_compaction(pinned.files.objects, pinned.dataset, planned)
        facts = parse_object(result, "The result of a compaction")
    new = [fragment_from_json(each) for each in facts["new_fragments"]]
    pinned.files.objects.sync([data_path(file.path) for fragment in new for file in fragment.files])
    return Rewritten([each["id"] for each in facts["original_fragments"]], new)


def sort(
    pinned: TableVersion, columns: Sequence[str], reserve_ids: ReserveIds, *, progress: Progress | None = None
) -> Plan | None:
    """Rewrite all rows in the order of these columns."""
    from lance.dataset import ColumnOrdering

    for column in columns:
        pinned.field(column)
    old = list(pinned.manifest.fragments)
    if not old:
        return None
    with pylance_errors(pinned.root):
        scanned = pinned.dataset.scanner(
            order_by=[ColumnOrdering(column) for column in columns],
            with_row_address=True,
            with_row_id=True,
            blob_handling="all_binary",
        ).to_reader()
    moved = MovedRows(pinned, scanned)
    new = moved.with_row_ids(pinned.writer().write(moved.reader(), progress).fragments)
    if pinned.manifest.has_stable_row_ids:
        _carry_versions(pinned, new, moved.addresses)
    group = pb.Transaction.Rewrite.Group(old_fragments=old, new_fragments=new)
    return _plan(pinned, [group], reserve_ids, keeps_order=False)


def _plan(
    pinned: TableVersion, groups: list[pb.Transaction.Rewrite.Group], reserve_ids: ReserveIds, *, keeps_order: bool
) -> Plan:
    reuse: pb.IndexMetadata | None = None
    if keeps_order and needs_reuse_index(pinned.manifest):
        # Indices find rows by address: the translation must name the new fragments before they are committed.
        ids = iter(reserve_ids(sum(len(group.new_fragments) for group in groups)))
        for group in groups:
            for fragment in group.new_fragments:
                fragment.id = next(ids)
        reuse = fragment_reuse_index(pinned, groups)
    # pylance plans groups that each index covers wholly or not at all, if it sees the indices.
    is_mixed = not keeps_order or not has_sections(pinned.files.objects, pinned.snapshot)
    operation = Rewrite(
        groups=tuple(groups), fragment_reuse_index=reuse, reuses_carefully=True, mixes_coverage=is_mixed
    )
    staged = Staged(operation=operation, base=pinned.manifest, rewrite_keeps_order=keeps_order)
    counts = {
        "fragments_removed": sum(len(group.old_fragments) for group in groups),
        "fragments_added": sum(len(group.new_fragments) for group in groups),
    }
    return Plan(staged, counts=counts, has_reserved=reuse is not None)


# ----------------------------------------------------- row ids and versions of rows that move


def _carry_lineage(pinned: TableVersion, old: Sequence[pb.DataFragment], new: Sequence[pb.DataFragment]) -> None:
    """The rows that were alive keep their ids and versions, in their order."""
    gone = [load_deletions(pinned.files.objects, pinned.manifest, fragment) for fragment in old]
    pairs = list(zip(old, gone, strict=True))
    ids = concat_row_ids(drop_row_ids(f.inline_row_ids, g, rows=f.physical_rows) for f, g in pairs)
    start = 0
    for fragment in new:
        places = np.arange(start, start + fragment.physical_rows, dtype=np.uint64)
        fragment.inline_row_ids = take_row_ids(ids, places)
        start += fragment.physical_rows
    places = np.arange(start, dtype=np.uint64)
    for kept, give in _VERSIONS:
        versions = _versions_of(old, kept)
        if versions is not None:
            there = concat_versions(drop_versions(each, g) for each, g in zip(versions, gone, strict=True))
            _give_versions(new, give, there, places)


def _give_created(fragment: pb.DataFragment, versions: bytes) -> None:
    fragment.inline_created_at_versions = versions


def _give_updated(fragment: pb.DataFragment, versions: bytes) -> None:
    fragment.inline_last_updated_at_versions = versions


Kept = Callable[[pb.DataFragment], bytes]
Give = Callable[[pb.DataFragment, bytes], None]
_VERSIONS: Sequence[tuple[Kept, Give]] = (
    (lambda fragment: fragment.inline_created_at_versions, _give_created),
    (lambda fragment: fragment.inline_last_updated_at_versions, _give_updated),
)
_UNKNOWN_VERSION = 1
"""What readers assume for a row without a recorded version."""


def _versions_of(fragments: Sequence[pb.DataFragment], kept: Kept) -> list[bytes] | None:
    """The row versions of each; None if none has any, as in tables of pylance up to 0.30."""
    found = [kept(fragment) for fragment in fragments]
    if not any(found):
        return None
    pairs = zip(found, fragments, strict=True)
    return [versions or constant_versions(_UNKNOWN_VERSION, fragment.physical_rows) for versions, fragment in pairs]


def _give_versions(
    new: Sequence[pb.DataFragment], give: Give, versions: bytes, places: np.ndarray[Any, np.dtype[np.uint64]]
) -> None:
    """The new fragments get the versions at these places, one after the other."""
    start = 0
    for fragment in new:
        give(fragment, take_versions(versions, places[start : start + fragment.physical_rows]))
        start += fragment.physical_rows


def _carry_versions(
    pinned: TableVersion, new: Sequence[pb.DataFragment], addresses: np.ndarray[Any, np.dtype[np.uint64]]
) -> None:
    """Sorted rows keep the versions they had where they came from."""
    old = pinned.manifest.fragments
    starts = np.cumsum([0, *(f.physical_rows for f in old)])[:-1]
    which = np.searchsorted(np.array([f.id for f in old], np.uint64), addresses >> np.uint64(32))
    places = (starts[which] + (addresses & np.uint64(0xFFFFFFFF)).astype(np.int64)).astype(np.uint64)
    for kept, give in _VERSIONS:
        versions = _versions_of(old, kept)
        if versions is not None:
            _give_versions(new, give, concat_versions(versions), places)


REUSE_INDEX_NAME = "__lance_frag_reuse"
_DETAILS_TYPE = "/lance.table.FragmentReuseIndexDetails"
MOST_INLINE_BYTES = 200_000
"""Above this pylance keeps the details in a file of their own; we leave the rewritten fragments unindexed instead."""


def needs_reuse_index(manifest: Manifest) -> bool:
    """Whether there are indices that can follow rows by it, and would otherwise be left behind."""
    return not manifest.has_stable_row_ids and any(follows_reuse(index) for index in manifest.indices)


def fragment_reuse_index(
    pinned: TableVersion, groups: Sequence[pb.Transaction.Rewrite.Group]
) -> pb.IndexMetadata | None:
    """The index with this compaction added to it; None where it would be too large to keep in the manifest."""
    earlier = next((i for i in pinned.manifest.indices if i.name == REUSE_INDEX_NAME), None)
    details = pb.FragmentReuseIndexDetails()
    covered = BitMap()
    if earlier is not None:
        details.ParseFromString(earlier.index_details.value)
        covered = BitMap.deserialize(earlier.fragment_bitmap) if earlier.fragment_bitmap else covered
        if details.WhichOneof("content") == "external":
            return None
    version = details.inline.versions.add(dataset_version=pinned.version)
    for group in groups:
        version.groups.append(_reuse_group(pinned, group))
        covered |= BitMap([fragment.id for fragment in group.new_fragments])
    encoded = details.SerializeToString(deterministic=True)
    if len(encoded) > MOST_INLINE_BYTES:
        return None
    return pb.IndexMetadata(
        uuid=pb.UUID(uuid=pinned.files.environment.new_uuid().bytes),
        name=REUSE_INDEX_NAME,
        dataset_version=pinned.version,
        fragment_bitmap=covered.serialize(),
        index_details=AnyMessage(type_url=_DETAILS_TYPE, value=encoded),
        index_version=0,
        created_at=pinned.files.environment.now_ns() // 1_000_000,
    )


def _reuse_group(pinned: TableVersion, group: pb.Transaction.Rewrite.Group) -> pb.FragmentReuseGroup:
    moved = BitMap64()
    for fragment in group.old_fragments:
        moved |= BitMap64((fragment.id << 32 | offset) for offset in _alive(pinned, fragment))
    return pb.FragmentReuseGroup(
        changed_row_addrs=moved.serialize(),
        old_fragments=[_digest(fragment) for fragment in group.old_fragments],
        new_fragments=[_digest(fragment) for fragment in group.new_fragments],
    )


def _alive(pinned: TableVersion, fragment: pb.DataFragment) -> BitMap:
    everything = BitMap()
    everything.add_range(0, fragment.physical_rows)
    return everything - load_deletions(pinned.files.objects, pinned.manifest, fragment)


def _digest(fragment: pb.DataFragment) -> pb.FragmentDigest:
    return pb.FragmentDigest(
        id=fragment.id,
        physical_rows=fragment.physical_rows,
        num_deleted_rows=fragment.deletion_file.num_deleted_rows,
    )
