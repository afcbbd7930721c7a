"""Compactions that leave the indices for later: what an index covers has to be read through the reuse index."""

from __future__ import annotations

import pytest
from pyroaring import BitMap

from conroi.errors import CorruptionError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.operations import Append, Delete, Operation, ReserveFragments, Step, Update, UpdateConfig, update_map
from conroi.operations.update import REWRITE_COLUMNS
from tests.operations.tables import built, covered, data_file, fragment, index, manifest


def reuse(*versions: tuple[int, list[tuple[list[int], list[int]]]]) -> pb.FragmentReuseInline:
    content = pb.FragmentReuseInline()
    for number, groups in versions:
        version = content.versions.add(dataset_version=number)
        for old, new in groups:
            version.groups.add(
                old_fragments=[pb.FragmentDigest(id=each) for each in old],
                new_fragments=[pb.FragmentDigest(id=each) for each in new],
            )
    return content


def reuse_index(details: pb.FragmentReuseIndexDetails) -> pb.IndexMetadata:
    made = index("__lance_frag_reuse", [], [], number=99)
    made.index_details.value = details.SerializeToString()
    return made


TWO_COMPACTIONS = reuse((7, [([4, 5], [8])]), (5, [([0, 1], [4]), ([2], [5, 6])]))  # not in the order of the versions
INLINE = reuse_index(pb.FragmentReuseIndexDetails(inline=TWO_COMPACTIONS))
IN_A_FILE = reuse_index(pb.FragmentReuseIndexDetails(external=pb.FragmentReuseExternal(path="details.binpb", size=9)))
UPDATE = Update(
    (),
    (fragment(8, 10, data_file("8.lance", [0, -2]), data_file("new.lance", [1])),),
    fields_modified=(1,),
    update_mode=REWRITE_COLUMNS,
)


def test_groups_are_followed_from_the_oldest_version_on() -> None:
    indices = [index("all", [0], [0, 1, 2, 3], number=1), index("some", [0], [0, 2], number=2), INLINE]
    after = built(manifest(fragment(3), fragment(6), fragment(8), indices=indices), Append((fragment(),)))
    # "some" knew only half of the rows that are in fragment 4 now, so it does not know fragment 8 either
    assert [covered(each) for each in after.indices[:2]] == [[3, 6, 8], [6]]


def test_a_fragment_taken_from_an_index_does_not_come_back() -> None:
    indices = [index("v", [1], [0, 1, 2, 3]), INLINE]
    after = built(manifest(fragment(3), fragment(6), fragment(8), indices=indices), UPDATE)
    assert covered(after.indices[0]) == [3, 6]
    again = built(after, ReserveFragments(1))
    assert covered(again.indices[0]) == [3, 6]


def test_content_in_a_file_can_be_handed_over() -> None:
    base = manifest(fragment(3), fragment(6), fragment(8), indices=[index("v", [1], [0, 1, 2, 3]), IN_A_FILE])
    after = built(base, UPDATE, Step(version=2, reuse=TWO_COMPACTIONS))
    assert covered(after.indices[0]) == [3, 6]


def test_without_it_a_change_of_coverage_is_refused() -> None:
    base = manifest(fragment(3), fragment(6), fragment(8), indices=[index("v", [1], [0, 1, 2, 3]), IN_A_FILE])
    for operation in (UPDATE, Delete((), (3,))):
        with pytest.raises(UnsupportedError, match="was not loaded"):
            built(base, operation)


@pytest.mark.parametrize(
    "operation", [Append((fragment(),)), ReserveFragments(1), UpdateConfig(config=update_map({"a": "b"}))]
)
def test_without_it_everything_else_goes_on(operation: Operation) -> None:
    base = manifest(fragment(3), fragment(6), fragment(8), indices=[index("v", [1], [0, 1, 2, 3]), IN_A_FILE])
    assert covered(built(base, operation).indices[0]) == [0, 1, 2, 3]


def test_damaged_details_are_noticed() -> None:
    damaged = index("__lance_frag_reuse", [], [])
    damaged.index_details.value = b"\x0a\xff"
    with pytest.raises(CorruptionError):
        built(manifest(fragment(0), indices=[damaged]), ReserveFragments(1))


def test_a_damaged_bitmap_is_noticed() -> None:
    damaged = index("a", [0], [0])
    damaged.fragment_bitmap = BitMap([0, 1]).serialize()[:-1]
    with pytest.raises(CorruptionError):
        built(manifest(fragment(0), indices=[damaged, INLINE]), ReserveFragments(1))
