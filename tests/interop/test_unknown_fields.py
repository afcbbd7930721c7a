"""What conroi does not know: fields are carried through its commits, features are refused word by word."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import lance
import pytest
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

import conroi
from conroi.format import lance_pb2 as pb
from tests.interop.readers import assert_seen
from tests.interop.tables import Kind, Stable, newest_manifest, two_kinds
from tests.interop.verbs import VERBS, Verb
from tests.support.parity import read_version

pytestmark = pytest.mark.contract("T13")

FIELD = 1999
PLANTED = bytes([0xFA, 0x7C, 5]) + b"plant"  # field 1999, five bytes


def rewrite(root: Path, edit: Callable[[pb.Manifest, list[pb.IndexMetadata]], None]) -> None:
    """Change the newest manifest file by hand: the sections are laid out anew, nothing checks what is in them."""
    path = newest_manifest(root)
    version = read_version(path)
    full, indices = (
        version.manifest.full(),
        [pb.IndexMetadata.FromString(i.SerializeToString()) for i in version.manifest.indices],
    )
    edit(full, indices)
    file = b""
    if indices:
        full.index_section = 0
        section = pb.IndexSection(indices=indices).SerializeToString()
        file += struct.pack("<I", len(section)) + section
    transaction = version.transaction.wire.SerializeToString()
    full.ClearField("transaction_section_deprecated")
    full.transaction_section = len(file)
    file += struct.pack("<I", len(transaction)) + transaction
    message = full.SerializeToString()
    path.write_bytes(file + struct.pack("<I", len(message)) + message + struct.pack("<qHH4s", len(file), 0, 2, b"LANC"))


def plant(full: pb.Manifest, indices: list[pb.IndexMetadata]) -> None:
    """A field from the future in every kind of message that a manifest has."""
    messages: list[Message] = [full, full.data_format, *full.fields, *full.fragments, *indices]
    messages += [file for fragment in full.fragments for file in fragment.files]
    for message in messages:
        message.MergeFromString(PLANTED)


def has_plant(message: Message) -> bool:
    return any(each.field_number == FIELD and each.data == b"plant" for each in UnknownFieldSet(message))


@pytest.mark.parametrize("kind", two_kinds("pylance"), ids=str)
@pytest.mark.parametrize(
    "verb", [v for v in VERBS if v.ours and v.name != "tag"], ids=lambda v: v.name.replace(" ", "-")
)
def test_unknown_fields_survive_a_commit_of_ours(tables: Stable, verb: Verb, kind: Kind) -> None:
    root, model = tables.copy(kind)
    lance.dataset(str(root)).create_scalar_index("v", "BITMAP", name="planted")
    rewrite(root, plant)
    before = read_version(newest_manifest(root)).manifest
    assert has_plant(before.full())
    assert verb.ours
    verb.ours(conroi.open_table(root), model)
    verb.change(model)
    assert_seen(root, model)
    after = read_version(newest_manifest(root)).manifest

    assert has_plant(after.full())
    assert has_plant(after.full().data_format)
    known_fields = {field.id for field in before.fields}
    for field in after.fields:
        assert has_plant(field) == (field.id in known_fields), field.name
    old_files = {file.path for fragment in before.fragments for file in fragment.files}
    for fragment in after.fragments:
        assert has_plant(fragment) == (fragment.id in before.fragments_by_id), fragment.id
        for file in fragment.files:
            assert has_plant(file) == (file.path in old_files), file.path
    old_indices = {index.uuid.uuid for index in before.indices}
    for index in after.indices:
        assert has_plant(index) == (index.uuid.uuid in old_indices), index.name


UNKNOWN_BITS = [6, 9, 12, 13, 17, 33, 63]
"""Of those that pylance 14 refuses too, some with a name and some without."""


@pytest.mark.parametrize("bit", UNKNOWN_BITS)
def test_an_unknown_reader_flag_forbids_even_to_open(tables: Stable, bit: int) -> None:
    root, _ = tables.copy(Kind("pylance"))

    def edit(full: pb.Manifest, indices: list[pb.IndexMetadata]) -> None:
        full.reader_feature_flags |= 1 << bit

    rewrite(root, edit)
    content = newest_manifest(root).read_bytes()
    with pytest.raises(conroi.UnsupportedError, match=str(1 << bit)) as refused:
        conroi.open_table(root)
    assert "reader" in str(refused.value)
    assert refused.value.hint
    with pytest.raises((OSError, ValueError, NotImplementedError)):  # the reference agrees
        lance.dataset(str(root)).to_table()
    assert newest_manifest(root).read_bytes() == content


@pytest.mark.parametrize("bit", UNKNOWN_BITS)
def test_an_unknown_writer_flag_forbids_only_to_write(tables: Stable, bit: int) -> None:
    root, model = tables.copy(Kind("pylance"))

    def edit(full: pb.Manifest, indices: list[pb.IndexMetadata]) -> None:
        full.writer_feature_flags |= 1 << bit

    rewrite(root, edit)
    assert_seen(root, model)
    with pytest.raises((OSError, ValueError, NotImplementedError)):  # the reference agrees
        lance.dataset(str(root)).delete("id = 1")
    table = conroi.open_table(root)
    for write in (
        lambda: table.append(model.new([500])),
        lambda: table.delete("id = 1"),
        lambda: table.set_config({"a": "b"}),
        lambda: table.restore(1),
        lambda: table.overwrite(model.new([500])),
        lambda: table.compact(),
    ):
        with pytest.raises(conroi.UnsupportedError, match="writer") as refused:
            write()
        assert str(1 << bit) in str(refused.value)
    assert_seen(root, model, version=table.version)


def test_a_feature_that_must_be_in_both_words_and_is_in_one_is_damage(tables: Stable) -> None:
    root, _ = tables.copy(Kind("pylance"))

    def edit(full: pb.Manifest, indices: list[pb.IndexMetadata]) -> None:
        full.writer_feature_flags |= 256

    rewrite(root, edit)
    with pytest.raises(conroi.CorruptionError, match="256"):
        conroi.open_table(root)


def test_flags_in_an_old_version_do_not_forbid_the_newest(tables: Stable) -> None:
    root, model = tables.copy(Kind("pylance"))

    def edit(full: pb.Manifest, indices: list[pb.IndexMetadata]) -> None:
        full.reader_feature_flags |= 1 << 40

    marked = lance.dataset(str(root)).version
    good = newest_manifest(root).read_bytes()
    lance.dataset(str(root)).insert(model.new([500]))
    model.append(model.make([500]))
    newest = newest_manifest(root)
    newest.rename(newest.with_suffix(".away"))
    rewrite(root, edit)
    assert newest_manifest(root).read_bytes() != good
    newest.with_suffix(".away").rename(newest)
    table = conroi.open_table(root)
    assert table.count_rows() == len(model.rows)
    with pytest.raises(conroi.UnsupportedError):
        table.at(marked)
    with pytest.raises(conroi.UnsupportedError):
        table.restore(marked)
    table.append(model.new([501]))
    model.append(model.make([501]))
    assert_seen(root, model)
