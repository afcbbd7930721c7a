"""The manifest file: what is encoded is decoded, whichever program wrote it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conroi.errors import CorruptionError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.format.manifest_file import (
    LARGEST_INLINE_TRANSACTION_BYTES,
    ManifestFile,
    decode_manifest_file,
    decode_manifest_tail,
    encode_manifest_file,
)
from conroi.format.transaction import decode_transaction
from tests.format.effort import few
from tests.format.pylance_tables import manifest_files, manifest_paths
from tests.support.wire import plant, planted


def small_manifest(**changes: object) -> Manifest:
    head = pb.Manifest(version=3, data_format=pb.DataFormat(file_format="lance", version="2.2"), **changes)  # type: ignore[arg-type]
    head.timestamp.seconds = 1
    return Manifest(head.SerializeToString(deterministic=True))


def an_index(name: str, number: int) -> pb.IndexMetadata:
    return pb.IndexMetadata(uuid=pb.UUID(uuid=bytes([number] * 16)), name=name, fields=[0])


manifests = st.builds(
    lambda version, ids, config, names: small_manifest(
        fragments=[pb.DataFragment(id=i, physical_rows=i + 1) for i in sorted(ids)],
        config=config,
        max_fragment_id=max(ids, default=0),
    ).changed(indices=[an_index(name, number) for number, name in enumerate(names)]),
    st.integers(1, 1 << 62),
    st.sets(st.integers(0, (1 << 32) - 1), max_size=5),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    st.lists(st.text(max_size=5), max_size=3),
)


@few
@given(manifests, st.none() | st.binary(max_size=50))
def test_what_is_encoded_is_decoded(manifest: Manifest, transaction: bytes | None):
    found = decode_manifest_file(encode_manifest_file(manifest, transaction))
    assert found.transaction == transaction
    assert found.manifest.indices == manifest.indices
    assert found.manifest.fragments == manifest.fragments
    assert without_offsets(found.manifest) == without_offsets(manifest)


def without_offsets(manifest: Manifest) -> pb.Manifest:
    message = manifest.full()
    for name in ("index_section", "transaction_section", "transaction_section_deprecated"):
        message.ClearField(name)
    return message


@pytest.mark.contract("T3")
def test_pylances_manifests_are_read_with_indices_and_transaction(busy_table: Path):
    files = manifest_files(busy_table)
    assert [file.manifest.version for file in files] == list(range(1, len(files) + 1))
    operations = {decode_transaction(file.transaction or b"").operation_name for file in files}
    assert operations >= {"Overwrite", "Append", "CreateIndex", "Delete", "Update", "UpdateConfig", "Merge", "Project"}
    assert operations >= {"Rewrite", "Restore"}
    assert [index.name for index in files[3].manifest.indices] == ["id_idx"]
    assert files[0].manifest.indices == ()


@pytest.mark.contract("T3", "T13")
def test_pylances_manifests_survive_our_rewrite(busy_table: Path):
    for file in manifest_files(busy_table):
        again = decode_manifest_file(encode_manifest_file(file.manifest, file.transaction))
        assert again.transaction == file.transaction
        assert again.manifest.indices == file.manifest.indices
        assert without_offsets(again.manifest) == without_offsets(file.manifest)


@pytest.mark.contract("T3")
def test_the_transaction_inside_is_the_one_in_the_file_beside(busy_table: Path):
    for file in manifest_files(busy_table):
        name = file.manifest.head.transaction_file
        assert (busy_table / "_transactions" / name).read_bytes() == file.transaction


@pytest.mark.contract("T13")
def test_unknown_fields_survive(busy_table: Path):
    for file in manifest_files(busy_table):
        message = file.manifest.full()
        plant(message, b"in the manifest")
        for part in (*message.fragments, *message.fields):
            plant(part, b"in a part")
        for data_file in (f for fragment in message.fragments for f in fragment.files):
            plant(data_file, b"in a file")
        indices = [pb.IndexMetadata.FromString(index.SerializeToString()) for index in file.manifest.indices]
        for index in indices:
            plant(index, b"in an index")
        manifest = Manifest(message.SerializeToString(), indices)
        head = manifest.editable_head()
        head.version += 1
        found = decode_manifest_file(encode_manifest_file(manifest.changed(head=head), file.transaction)).manifest
        full = found.full()
        assert planted(full) == [b"in the manifest"]
        assert all(planted(part) == [b"in a part"] for part in (*full.fragments, *full.fields))
        assert all(planted(f) == [b"in a file"] for fragment in full.fragments for f in fragment.files)
        assert all(planted(index) == [b"in an index"] for index in found.indices)


def test_the_fragments_are_not_decoded(busy_table: Path):
    manifest = manifest_files(busy_table)[-1].manifest
    encode_manifest_file(manifest, b"x")
    assert "fragments" not in vars(manifest)


@pytest.mark.contract("T3")
def test_the_old_place_of_the_transaction_is_read_and_no_longer_written():
    body = encode_manifest_file(small_manifest(), b"transaction")
    found = decode_manifest_file(body).manifest
    head = found.editable_head()
    head.transaction_section_deprecated = head.transaction_section
    head.ClearField("transaction_section")
    old = _with_message(body, found.changed(head=head).message)
    assert decode_manifest_file(old).transaction == b"transaction"
    again = decode_manifest_file(encode_manifest_file(decode_manifest_file(old).manifest, b"transaction"))
    assert not again.manifest.head.HasField("transaction_section_deprecated")
    assert again.transaction == b"transaction"


def _with_message(body: bytes, message: bytes) -> bytes:
    """The file with another message at its end, and without a checksum."""
    at = int.from_bytes(body[-16:-8], "little")
    return bytes(16) + body[16:at] + len(message).to_bytes(4, "little") + message + body[-16:]


def test_a_huge_transaction_stays_outside():
    largest = bytes(LARGEST_INLINE_TRANSACTION_BYTES)
    assert decode_manifest_file(encode_manifest_file(small_manifest(), largest)).transaction == largest
    assert decode_manifest_file(encode_manifest_file(small_manifest(), largest + b"x")).transaction is None


def test_a_tail_that_is_the_whole_file_is_enough(busy_table: Path):
    for path in manifest_paths(busy_table):
        body = path.read_bytes()
        found = decode_manifest_tail(body, len(body))
        assert isinstance(found, ManifestFile)
        assert found.manifest == decode_manifest_file(body).manifest


def test_a_tail_that_is_too_short_says_how_much_is_needed():
    body = encode_manifest_file(small_manifest(), bytes(1000))
    for length in (16, 17, 100, len(body) - 1):
        assert decode_manifest_tail(body[-length:], len(body)) == len(body)


def test_a_tail_without_a_footer_is_refused_before_more_is_fetched():
    body = encode_manifest_file(small_manifest(), None)
    for tail, size in ((body[-15:], len(body)), (body[:-1], len(body) + 100), (body, len(body) - 1)):
        with pytest.raises(CorruptionError):
            decode_manifest_tail(tail, size)


@pytest.mark.parametrize("field", ["version", "timestamp"])
def test_a_manifest_without_what_every_manifest_has_is_refused(field: str):
    head = small_manifest().editable_head()
    head.ClearField(field)
    with pytest.raises(CorruptionError):
        decode_manifest_file(encode_manifest_file(Manifest(head.SerializeToString()), None))


def test_a_fragment_id_that_no_table_can_have_is_refused():
    manifest = small_manifest(fragments=[pb.DataFragment(id=1 << 32, physical_rows=1)])
    with pytest.raises(CorruptionError, match="fragment 4294967296"):
        decode_manifest_file(encode_manifest_file(manifest, None))


def test_a_newer_file_format_is_refused():
    body = bytearray(encode_manifest_file(small_manifest(), None))
    body[-6] = 3
    with pytest.raises(UnsupportedError, match=r"format 0\.3"):
        decode_manifest_file(bytes(body))


def test_a_manifest_file_is_a_value():
    file = ManifestFile(small_manifest(), b"x")
    assert replace(file, transaction=None).transaction is None
    assert file == ManifestFile(small_manifest(), b"x")
