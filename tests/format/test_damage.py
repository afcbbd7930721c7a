"""A cut or flipped byte gives a typed error or the same data, never other data.

What conroi writes has a checksum, and for it that holds without exception. The format has no checksums, so for files of
other writers it holds for every cut, and for flips as far as the file contradicts itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyroaring import BitMap

from conroi.errors import ConroiError, CorruptionError
from conroi.format import lance_pb2 as pb
from conroi.format.checksums import SEAL_SIZE
from conroi.format.deletions import decode_deletions, encode_deletions
from conroi.format.manifest import Manifest, check_transaction_fits, validate_manifest
from conroi.format.manifest_file import ManifestFile, decode_manifest_file, encode_manifest_file
from conroi.format.naming import deletion_path
from conroi.format.transaction import Transaction, decode_transaction, encode_transaction
from tests.format.damage import cuts, flips, overwritten, unnoticed
from tests.format.effort import few
from tests.format.pylance_tables import manifest_paths

TRANSACTION = Transaction(
    pb.Transaction(
        read_version=2,
        uuid="b8ec0968-3713-4d97-8dbc-219688a7b73c",
        transaction_properties={"k": "v"},
        append=pb.Transaction.Append(fragments=[pb.DataFragment(physical_rows=7)]),
    )
)
ROWS = BitMap([1, 5, 77, 200])
MANY_ROWS = BitMap(range(0, 70000, 9))


def a_manifest() -> Manifest:
    message = pb.Manifest(
        fields=[pb.Field(name="a", parent_id=-1, logical_type="int64")],
        fragments=[
            pb.DataFragment(id=0, physical_rows=5, files=[pb.DataFile(path="x.lance", fields=[0], column_indices=[0])])
        ],
        version=3,
        max_fragment_id=0,
        transaction_file=TRANSACTION.file_name,
        data_format=pb.DataFormat(file_format="lance", version="2.2"),
        config={"k": "v"},
    )
    message.timestamp.seconds = 1_700_000_000
    index = pb.IndexMetadata(uuid=pb.UUID(uuid=bytes(range(16))), name="i", fields=[0])
    return Manifest(message.SerializeToString(deterministic=True), [index])


SEALED_MANIFEST = encode_manifest_file(a_manifest(), encode_transaction(TRANSACTION))
SEALED_TRANSACTION = encode_transaction(TRANSACTION)


def deletion_file(rows: BitMap, *, force_bitmap: bool) -> tuple[pb.DeletionFile, bytes]:
    file_type, data = encode_deletions(rows, force_bitmap=force_bitmap)
    return pb.DeletionFile(file_type=file_type), data  # it does not say how many rows: that would help


def same_manifest(original: bytes) -> Callable[[bytes], bool]:
    expected = decode_manifest_file(original)
    return lambda data: _same_file(decode_manifest_file(data), expected)


def _same_file(found: ManifestFile, expected: ManifestFile) -> bool:
    return found.manifest == expected.manifest and found.transaction == expected.transaction


def same_transaction(data: bytes) -> bool:
    return decode_transaction(data) == TRANSACTION


@pytest.mark.contract("T14")
def test_a_damaged_manifest_of_ours_is_never_other_data():
    read = same_manifest(SEALED_MANIFEST)
    assert read(SEALED_MANIFEST)
    assert unnoticed(cuts(SEALED_MANIFEST), read) == []
    assert unnoticed(flips(SEALED_MANIFEST), read) == []


@pytest.mark.contract("T14")
def test_a_damaged_transaction_of_ours_is_never_other_data():
    assert same_transaction(SEALED_TRANSACTION)
    assert unnoticed(cuts(SEALED_TRANSACTION), same_transaction) == []
    assert unnoticed(flips(SEALED_TRANSACTION), same_transaction) == []


@pytest.mark.contract("T14")
@pytest.mark.parametrize("force_bitmap", [False, True])
def test_a_damaged_deletion_file_of_ours_is_never_other_data(force_bitmap: bool):
    file, data = deletion_file(ROWS, force_bitmap=force_bitmap)

    def read(content: bytes) -> bool:
        return decode_deletions(content, file) == ROWS

    assert read(data)
    assert unnoticed(cuts(data), read) == []
    assert unnoticed(flips(data), read) == []


blocks = st.tuples(st.integers(0, 20_000), st.binary(min_size=1, max_size=600))


@pytest.mark.contract("T14")
@few
@given(blocks)
@example((0, bytes(512)))
def test_a_block_of_other_bytes_in_a_file_of_ours_is_never_other_data(block: tuple[int, bytes]):
    """As long as it leaves the checksum itself alone, which is all there is to tell a file of ours from another's."""
    place, other = block
    assert unnoticed(iter([_manifest_with(place, other)]), same_manifest(SEALED_MANIFEST)) == []
    assert unnoticed(iter([_transaction_with(place, other)]), same_transaction) == []
    file, deletions = deletion_file(MANY_ROWS, force_bitmap=True)
    damaged = overwritten(deletions[:-SEAL_SIZE], place, other) + deletions[-SEAL_SIZE:]
    assert unnoticed(iter([damaged]), lambda content: decode_deletions(content, file) == MANY_ROWS) == []


def _manifest_with(place: int, other: bytes) -> bytes:
    return SEALED_MANIFEST[:SEAL_SIZE] + overwritten(SEALED_MANIFEST[SEAL_SIZE:], place, other)


def _transaction_with(place: int, other: bytes) -> bytes:
    start = len(SEALED_TRANSACTION) - TRANSACTION.wire.ByteSize()
    return SEALED_TRANSACTION[:start] + overwritten(SEALED_TRANSACTION[start:], place, other)


@pytest.mark.contract("T14")
def test_without_its_checksum_a_flip_can_go_unnoticed():
    """The negative control: the tests above can fail, and it is the checksum that makes them pass."""
    unsealed = bytes(16) + SEALED_MANIFEST[16:]
    assert unnoticed(flips(unsealed), same_manifest(SEALED_MANIFEST))
    bare = TRANSACTION.wire.SerializeToString()
    assert unnoticed(flips(bare), same_transaction)


@pytest.mark.contract("T14")
def test_a_cut_file_of_pylance_is_refused(busy_table: Path):
    for path in manifest_paths(busy_table):
        data = path.read_bytes()
        assert unnoticed(cuts(data), lambda cut: decode_manifest_file(cut) is None) == []
    for path in (busy_table / "_transactions").iterdir():
        data = path.read_bytes()
        assert unnoticed(cuts(data[:2000]), lambda cut: decode_transaction(cut) is None) == []


@pytest.mark.contract("T14")
def test_a_flip_in_the_frame_of_pylances_manifest_is_refused(busy_table: Path):
    """Footer, and the length before the message."""
    data = manifest_paths(busy_table)[-1].read_bytes()
    at = int.from_bytes(data[-16:-8], "little")
    frame = [*range(at, at + 4), *range(len(data) - 16, len(data) - 6), *range(len(data) - 4, len(data))]
    for place in frame:
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            with pytest.raises(ConroiError):
                decode_manifest_file(bytes(damaged))


@pytest.mark.contract("T14")
def test_a_flip_in_a_manifest_of_pylance_never_breaks_the_reader(busy_table: Path):
    """It is refused, or it is another manifest: nothing but a typed error comes out of any layer."""
    data = manifest_paths(busy_table)[-1].read_bytes()
    undetected = 0
    for damaged in flips(data):
        try:
            found = decode_manifest_file(damaged)
            validate_manifest(found.manifest)
            if found.transaction is not None:
                check_transaction_fits(found.manifest, decode_transaction(found.transaction))
        except ConroiError:
            continue
        undetected += 1
    assert undetected < 0.6 * 8 * len(data)  # names, numbers and times have no second copy to compare with


@pytest.fixture(scope="module")
def pylance_deletions(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[pb.DataFragment, bytes]]:
    """One deletion file of each kind, as pylance writes them, with their fragments."""
    root = tmp_path_factory.mktemp("deleted") / "t"
    ds = lance.write_dataset(pa.table({"a": range(20_000)}), root)
    ds.delete("a < 10")
    ds.delete("a % 3 = 0")
    found: list[tuple[pb.DataFragment, bytes]] = []
    for path in manifest_paths(root)[1:]:
        (fragment,) = decode_manifest_file(path.read_bytes()).manifest.fragments
        found.append((fragment, (root / deletion_path(fragment.id, fragment.deletion_file)).read_bytes()))
    return found


@pytest.mark.contract("T14")
def test_a_cut_deletion_file_of_pylance_is_refused(pylance_deletions: list[tuple[pb.DataFragment, bytes]]):
    for fragment, data in pylance_deletions:
        assert unnoticed(cuts(data), lambda cut, file=fragment.deletion_file: not decode_deletions(cut, file)) == []


@pytest.mark.contract("T14")
def test_a_flip_in_a_deletion_file_of_pylance_keeps_the_count_and_the_bounds(
    pylance_deletions: list[tuple[pb.DataFragment, bytes]],
):
    for fragment, data in pylance_deletions:
        file, rows = fragment.deletion_file, fragment.physical_rows
        for damaged in flips(data[:700]):
            try:
                found = decode_deletions(damaged + data[700:], file, physical_rows=rows)
            except CorruptionError:
                continue
            assert len(found) == file.num_deleted_rows
            assert found.max() < rows


@pytest.mark.contract("T14")
def test_a_bitmap_of_pylance_notices_every_flip_in_a_dense_container(
    pylance_deletions: list[tuple[pb.DataFragment, bytes]],
):
    """A dense container counts its bits, so one flip always shows."""
    fragment, data = pylance_deletions[1]
    assert fragment.deletion_file.file_type == pb.DeletionFile.BITMAP

    def read(start: bytes) -> bool:
        file, rows = fragment.deletion_file, fragment.physical_rows
        return not decode_deletions(start + data[500:], file, physical_rows=rows)

    assert unnoticed(flips(data[:500]), read) == []
