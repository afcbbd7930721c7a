"""What every commit does alike, whatever the operation."""

from __future__ import annotations

import pytest

from conroi import operations
from conroi.errors import CorruptionError, InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.format.row_ids import fresh_row_ids
from conroi.operations import (
    Append,
    CreateIndex,
    DataReplacement,
    Delete,
    Merge,
    Operation,
    Overwrite,
    Project,
    ReserveFragments,
    Restore,
    Rewrite,
    Step,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMemWalState,
    update_map,
)
from tests.operations.tables import built, data_file, field, fragment, index, manifest
from tests.support.wire import plant, planted

LOG = index("__lance_mem_wal", [], None, number=50, kind="MemWal")
SHARD = pb.CompactedSsTable(shard_id=pb.UUID(uuid=b"s" * 16), generation=1)
OLD = index("a", [0], [0])

# One of each, all possible on `base()`.
EACH: list[Operation] = [
    Append((fragment(),)),
    CreateIndex((index("new", [1], [0], number=9),)),
    DataReplacement((pb.Transaction.DataReplacement.Group(fragment_id=0, new_file=data_file("new", [0, 1])),)),
    Delete((fragment(0, 10, deleted=1, row_ids=fresh_row_ids(0, 10)),)),
    Merge((fragment(0, row_ids=fresh_row_ids(0, 10)),), (field(0, "id"), field(1, "v"), field(2, "w"))),
    Overwrite((), (field(0, "id"),)),
    Project((field(0, "id"),)),
    ReserveFragments(3),
    Restore(2),
    Rewrite(
        (
            pb.Transaction.Rewrite.Group(
                old_fragments=[fragment(0)], new_fragments=[fragment(0, 10, row_ids=fresh_row_ids(0, 10))]
            ),
        )
    ),
    Update(
        (),
        (fragment(0, 10, deleted=1, row_ids=fresh_row_ids(0, 10)),),
        (fragment(rows=1, row_ids=fresh_row_ids(0, 1)),),
    ),
    UpdateBases((pb.BasePath(name="b", path="/b"),)),
    UpdateConfig(config=update_map({"a": "b"}), field_metadata={0: update_map({"c": "d"})}),
    UpdateMemWalState((SHARD,)),
]

# These neither decode nor encode the fragments that are there: a table of ten thousand takes no longer than one of ten.
CHEAP = ["Append", "CreateIndex", "ReserveFragments", "UpdateBases", "UpdateConfig", "UpdateMemWalState"]
# The instrument must be able to fail: these do decode them.
DECODING = ["DataReplacement", "Delete", "Merge", "Overwrite", "Project", "Rewrite", "Update"]


def base() -> Manifest:
    made = manifest(
        fragment(0, 10, row_ids=fresh_row_ids(0, 10)),
        version=4,
        indices=[OLD, LOG],
        stable_row_ids=True,
        next_row_id=10,
    )
    head = made.editable_head()
    head.index_section = 0
    head.transaction_section = 77
    head.transaction_section_deprecated = 78
    head.tag = "old"
    head.writer_version.library, head.writer_version.prerelease = "lance", "beta"
    return made.changed(head=head)


STEP = Step(version=5, restored=manifest(fragment(0, 10, row_ids=fresh_row_ids(0, 10)), version=2, stable_row_ids=True))


def name_of(operation: Operation) -> str:
    return operation.name


@pytest.mark.contract("T5")
@pytest.mark.parametrize("operation", EACH, ids=name_of)
def test_every_manifest_is_signed(operation: Operation) -> None:
    after = built(base(), operation, STEP)
    head = after.head
    assert head.version == 5
    assert (head.timestamp.seconds, head.timestamp.nanos) == (1_700_000_000, 123_456_789)
    assert head.writer_version == pb.WriterVersion(library="conroi", version="0.1")
    assert head.transaction_file == "4-11111111-2222-4333-8444-555555555555.txn"
    assert not head.tag
    for name in ("index_section", "transaction_section", "transaction_section_deprecated"):
        assert not head.HasField(name)
    assert after.has_stable_row_ids


@pytest.mark.contract("T13")
@pytest.mark.parametrize("operation", [each for each in EACH if not isinstance(each, Restore)], ids=name_of)
def test_unknown_fields_of_the_manifest_stay(operation: Operation) -> None:
    start = base()
    head = start.editable_head()
    plant(head, b"manifest")
    plant(head.fields[0], b"field")
    fragments = [pb.DataFragment.FromString(each.SerializeToString()) for each in start.fragments]
    plant(fragments[0], b"fragment")
    plant(fragments[0].files[0], b"file")
    indices = [pb.IndexMetadata.FromString(each.SerializeToString()) for each in start.indices]
    plant(indices[0], b"index")
    after = built(start.changed(head=head, fragments=fragments, indices=indices), operation, STEP).full()
    assert planted(after) == [b"manifest"]
    if not isinstance(operation, (Overwrite, Merge, Project)):
        assert planted(after.fields[0]) == [b"field"]
    if not isinstance(operation, (Overwrite, Merge, Delete, Update, Rewrite)):
        assert planted(after.fragments[0]) == [b"fragment"]
        assert planted(after.fragments[0].files[0]) == [b"file"]


@pytest.mark.contract("T13")
@pytest.mark.parametrize(
    "operation", [each for each in EACH if not isinstance(each, (Restore, Overwrite))], ids=name_of
)
def test_unknown_fields_of_an_index_stay(operation: Operation) -> None:
    start = base()
    indices = [pb.IndexMetadata.FromString(each.SerializeToString()) for each in start.indices]
    plant(indices[0], b"index")
    after = built(start.changed(indices=indices), operation, STEP)
    assert planted(next(each for each in after.indices if each.name == "a")) == [b"index"]


@pytest.mark.contract("T10")
@pytest.mark.parametrize("operation", EACH, ids=name_of)
def test_no_id_ever_comes_back(operation: Operation) -> None:
    start = base()
    head = start.editable_head()
    head.max_fragment_id, head.next_row_id = 40, 400
    after = built(start.changed(head=head), operation, STEP)
    assert after.head.max_fragment_id >= 40
    assert after.head.next_row_id >= 400


@pytest.mark.parametrize("operation", EACH, ids=name_of)
def test_the_base_is_not_changed(operation: Operation) -> None:
    start = base()
    before = start.full(), [each.SerializeToString() for each in start.indices]
    wire = operation.to_wire()
    built(start, operation, STEP)
    assert (start.full(), [each.SerializeToString() for each in start.indices]) == before
    assert Manifest(start.message).full() == start.full()
    assert operation.to_wire() == wire


@pytest.mark.contract("T5")
@pytest.mark.parametrize("operation", EACH, ids=name_of)
def test_cheap_operations_never_look_at_the_old_fragments(operation: Operation) -> None:
    start = base()
    after = built(start, operation, STEP)
    # `fragments` is decoded on first use and then kept, so that it shows whether it was asked for.
    assert ("fragments" in start.__dict__) == (operation.name in DECODING)
    assert "fragments" not in after.__dict__


@pytest.mark.contract("T5")
@pytest.mark.parametrize("operation", [each for each in EACH if each.name in CHEAP], ids=name_of)
def test_cheap_operations_do_not_even_need_valid_fragments(operation: Operation) -> None:
    """Fragments that cannot be decoded would stop a reader; they come out as they went in."""
    broken = b"\x12\x05\xff\xff\xff\xff\xff"  # field 2 of the manifest, five bytes that are no fragment
    start = Manifest(base().message + broken, base().indices)
    after = built(start, operation, STEP)
    assert broken in after.message
    with pytest.raises(CorruptionError):
        _ = start.fragments


def test_a_table_that_counts_field_ids_never_lowers_the_mark() -> None:
    start = base()
    head = start.editable_head()
    head.max_allocated_field_id = 6
    head.writer_feature_flags |= 32768
    start = start.changed(head=head)
    narrower = built(start, Project((field(0, "id"),)))
    assert narrower.head.max_allocated_field_id == 6
    wider = built(start, Merge(start.fragments, (field(0, "id"), field(1, "v"), field(9, "w"))))
    assert wider.head.max_allocated_field_id == 9
    assert wider.head.writer_feature_flags & 32768


@pytest.mark.parametrize("operation", [each for each in EACH if not isinstance(each, Overwrite)], ids=name_of)
def test_only_an_overwrite_or_a_clone_makes_a_table(operation: Operation) -> None:
    with pytest.raises(InvalidInputError, match="needs a table"):
        built(None, operation, Step(version=1))


@pytest.mark.parametrize("version", [1, 4, 6])
def test_the_number_must_be_the_next_one(version: int) -> None:
    with pytest.raises(InvalidInputError, match="makes version 5"):
        built(base(), ReserveFragments(1), Step(version=version))


def test_a_detached_version_may_have_any_number() -> None:
    detached = 1 << 63 | 12345
    assert built(base(), ReserveFragments(1), Step(version=detached)).version == detached


def test_the_name_of_the_transaction_file_has_the_read_version() -> None:
    operation = ReserveFragments(1)
    rebased = operations.transaction(operation, read_version=2, uuid="u")
    after = operations.build(base(), rebased, operation, STEP, timestamp_ns=5, writer_version=("conroi", "1"))
    assert after.head.transaction_file == "2-u.txn"
    assert (after.head.timestamp.seconds, after.head.timestamp.nanos) == (0, 5)
