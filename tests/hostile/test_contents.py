"""Files whose bytes lie: cycles, huge counts, bombs, deep schemas, far times, damaged notes."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import conroi
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.format.manifest_file import decode_manifest_file, encode_manifest_file
from conroi.format.row_ids import range_segment
from tests.hostile.scene import LEFT, Scene, bounded, photograph, run_all
from tests.support.sampling import sampled

pytestmark = pytest.mark.contract("I2")

IDS = [row["id"] for row in LEFT]
Damage = Callable[[Scene], None]


def manifest(scene: Scene, folder: str, change: Callable[[pb.ManifestHead, list[pb.DataFragment]], None]) -> None:
    """Write the newest manifest of a table anew, changed and with a right checksum."""
    path = scene.one(f"{folder}/_versions/*.manifest")
    file = decode_manifest_file(path.read_bytes())
    head = file.manifest.editable_head()
    fragments = list(file.manifest.fragments)
    change(head, fragments)
    changed = Manifest(b"").changed(head=head, fragments=fragments, indices=file.manifest.indices)
    path.write_bytes(encode_manifest_file(changed, file.transaction))


def both(change: Callable[[pb.ManifestHead, list[pb.DataFragment]], None]) -> Damage:
    def damage(scene: Scene) -> None:
        manifest(scene, "lone", change)
        manifest(scene, "lake/t.lance", change)

    return damage


def cyclic(head: pb.ManifestHead, _: list[pb.DataFragment]) -> None:
    head.fields.add(id=50, parent_id=51, name="a", logical_type="struct")
    head.fields.add(id=51, parent_id=50, name="b", logical_type="struct")
    head.fields[0].parent_id = 51


def itself(head: pb.ManifestHead, _: list[pb.DataFragment]) -> None:
    head.fields.add(id=50, parent_id=50, name="a", logical_type="struct")


def deep(head: pb.ManifestHead, _: list[pb.DataFragment]) -> None:
    for number in range(5000):
        parent = number + 99 if number else -1
        head.fields.add(id=number + 100, parent_id=parent, name="a", logical_type="struct")


def doubling(head: pb.ManifestHead, _: list[pb.DataFragment]) -> None:
    for number in range(60):  # 2 ** 60 leaves
        parent = number + 99 if number else -1
        for _twin in range(2):
            head.fields.add(id=number + 100, parent_id=parent, name="a", logical_type="struct")


def row_ids(_: pb.ManifestHead, fragments: list[pb.DataFragment]) -> None:
    fragments[0].inline_row_ids = pb.RowIdSequence(segments=[range_segment(0, 1 << 32)]).SerializeToString()


def row_versions(_: pb.ManifestHead, fragments: list[pb.DataFragment]) -> None:
    run = pb.RowDatasetVersionRun(span=range_segment(0, 1 << 32), version=1)
    fragments[0].inline_created_at_versions = pb.RowDatasetVersionSequence(runs=[run]).SerializeToString()


def far(head: pb.ManifestHead, _: list[pb.DataFragment]) -> None:
    head.timestamp.seconds = 1 << 60


def long_ago(head: pb.ManifestHead, _: list[pb.DataFragment]) -> None:
    head.timestamp.seconds = -(1 << 60)


def many_rows(_: pb.ManifestHead, fragments: list[pb.DataFragment]) -> None:
    fragments[0].physical_rows = (1 << 64) - 1


def rows_claimed(count: int) -> Callable[[pb.ManifestHead, list[pb.DataFragment]], None]:
    def change(_: pb.ManifestHead, fragments: list[pb.DataFragment]) -> None:
        fragments[0].physical_rows = count

    return change


def outside(_: pb.ManifestHead, fragments: list[pb.DataFragment]) -> None:
    fragments[0].files[0].path = "../../canary/data/x.lance"


def short_index(head: pb.ManifestHead, _: list[pb.DataFragment]) -> None:
    head.transaction_file = "../../canary/authorized_keys"


def odd_type(head: pb.ManifestHead, _: list[pb.DataFragment]) -> None:
    head.fields[1].logical_type = "fixed_size_list:" * 2000 + "int32:9" + "9" * 5000


def odd_zone(head: pb.ManifestHead, _: list[pb.DataFragment]) -> None:
    head.fields[1].logical_type = "timestamp:us:\x1b]0;x\x07'; DROP TABLE t; --"


def arrow_bomb(rows: int) -> bytes:
    """An Arrow file in which a few bytes claim so many zeros."""
    schema = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write(pa.record_batch([pa.array([0] * rows, pa.uint32())], schema=schema))
    return sink.getvalue().to_pybytes()


def lying_bomb(claimed: int) -> bytes:
    """A small one whose buffer says that it is of another size."""
    content = bytearray(arrow_bomb(4000))
    at = content.rfind(struct.pack("<q", 4 * 4000))
    content[at : at + 8] = struct.pack("<q", claimed)
    return bytes(content)


def full_runs() -> bytes:
    """A bitmap of all numbers, in 900 kB."""
    count = 1 << 16
    described = b"".join(struct.pack("<HH", key, 0xFFFF) for key in range(count))
    offsets, containers = b"", b""
    start = 4 + count // 8 + len(described) + 4 * count
    for number in range(count):
        offsets += struct.pack("<I", start + 6 * number)
        containers += struct.pack("<HHH", 1, 0, 0xFFFF)
    return struct.pack("<HH", 12347, count - 1) + b"\xff" * (count // 8) + described + offsets + containers


def deletions(content: Callable[[], bytes]) -> Damage:
    def damage(scene: Scene) -> None:
        for folder in ("lone", "lake/t.lance"):
            scene.one(f"{folder}/_deletions/*").write_bytes(content())

    return damage


def tags(content: bytes) -> Damage:
    def damage(scene: Scene) -> None:
        for folder in (scene.lone, scene.table):
            (folder / "_refs" / "tags" / "first.json").write_bytes(content)

    return damage


def cyclic_tag(scene: Scene) -> None:
    for folder in (scene.lone, scene.table):
        content = (folder / "_refs" / "tags" / "first.json").read_bytes()
        claim = folder / "_conroi" / "tags" / "first" / hashlib.sha256(content).hexdigest()[:32]
        claim.parent.mkdir(parents=True)
        claim.write_bytes(content)


def note(content: bytes, name: str = f"{2:020d}-x") -> Damage:
    def damage(scene: Scene) -> None:
        for folder in (scene.lone, scene.table, scene.lake / "__manifest"):
            path = folder / "_conroi" / "forgotten" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    return damage


def hint(content: bytes) -> Damage:
    def damage(scene: Scene) -> None:
        for folder in (scene.lone, scene.table, scene.lake / "__manifest"):
            (folder / "_versions" / "latest_version_hint.json").write_bytes(content)

    return damage


def last_version(scene: Scene) -> None:
    path = scene.one("lone/_versions/*.manifest")
    file = decode_manifest_file(path.read_bytes())
    head = file.manifest.editable_head()
    head.version = (1 << 63) - 1
    name = f"{(1 << 64) - 1 - head.version:020d}.manifest"
    path.with_name(name).write_bytes(encode_manifest_file(file.manifest.changed(head=head), file.transaction))


def cell(content: bytes) -> Damage:
    def damage(scene: Scene) -> None:
        for path in scene.root.glob("lake/__manifest/_conroi/branches/*/*"):
            path.write_bytes(content)

    return damage


def put(path: str, content: bytes) -> Damage:
    def damage(scene: Scene) -> None:
        place: Path = scene.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    return damage


DEEP_JSON = b"[" * 200_000
HUGE_NUMBER = b'{"version": ' + b"9" * 10_000 + b"}"
HOSTILE: dict[str, Damage] = {
    "cyclic schema": both(cyclic),
    "a column inside itself": both(itself),
    "deep schema": both(deep),
    "schema that doubles": both(doubling),
    "huge range of row ids": both(row_ids),
    "huge run of row versions": both(row_versions),
    "time far ahead": both(far),
    "time long ago": both(long_ago),
    "more rows than numbers": both(many_rows),
    "as many rows as a fragment may have": both(rows_claimed((1 << 32) - 1)),
    "a billion rows": both(rows_claimed(1_000_000_000)),
    "a row too many": both(rows_claimed(21)),
    "no rows": both(rows_claimed(0)),
    "path outside": both(outside),
    "transaction outside": both(short_index),
    "odd type": both(odd_type),
    "odd time zone": both(odd_zone),
    "arrow bomb": deletions(lambda: arrow_bomb(20_000_000)),
    "lying arrow bomb": deletions(lambda: lying_bomb(6 << 30)),
    "negative arrow bomb": deletions(lambda: lying_bomb(-6)),
    "roaring bomb as Arrow": deletions(full_runs),
    "empty deletion file": deletions(lambda: b""),
    "cyclic tag": cyclic_tag,
    "deep tag": tags(DEEP_JSON),
    "tag of a huge number": tags(HUGE_NUMBER),
    "tag of a list": tags(b"[1, 2]"),
    "tag of a float": tags(b'{"version": 1e400}'),
    "tag of true": tags(b'{"version": true}'),
    "tag on a number": tags(b'{"version": 1, "branch": 7}'),
    "tag that is no text": tags(b"\xff\xfe\x00"),
    "empty tag": tags(b""),
    "collector's note for ever": note(b'{"versions": [[1, 1000000000000000000]]}'),
    "collector's note upside down": note(b'{"versions": [[9, 1]]}'),
    "collector's note of words": note(b'{"versions": "all"}'),
    "collector's note of huge numbers": note(b'{"versions": [[1, ' + b"9" * 9000 + b"]]}"),
    "deep collector's note": note(DEEP_JSON),
    "collector's note that ended": note(b'{"versions": [[1, 1000000000000000000]]}', f"{2:020d}.x"),
    "hint far ahead": hint(b'{"version": 9223372036854775807}'),
    "hint of a huge number": hint(HUGE_NUMBER),
    "deep hint": hint(DEEP_JSON),
    "hint of a list": hint(b"[]"),
    "hint below zero": hint(b'{"version": -1}'),
    "hint that is no number": hint(b'{"version": NaN}'),
    "last version": last_version,
    "deep cell": cell(DEEP_JSON),
    "cell of a list": cell(b"[]"),
    "cell of nothing": cell(b"{}"),
    "cell of wrong kinds": cell(b'{"id": 1, "parent": [], "parentVersion": "x", "lineage": [[1]], "branch": {}}'),
    "deep marker": put("lake/__conroi.json", DEEP_JSON),
    "marker of a list": put("lake/__conroi.json", b"[]"),
    "mark of a table": put("lake/t.lance/_conroi/created", DEEP_JSON),
    "priority token for ever": put("lone/_transactions/.conroi-baton", b'{"needs_s": 1e308}'),
    "restoring a huge version": put("lone/_conroi/restoring/" + "9" * 200 + "-x", b""),
    "manifest of a huge number": put("lone/_versions/" + "9" * 200 + ".manifest", b"LANC"),
    "names with escapes": put("lone/_refs/tags/\x1b]0;owned\x07.json", b'{"version": 1}'),
}


@pytest.mark.contract("I5")
@pytest.mark.parametrize("name", sampled("hostile contents", [(name,) for name in HOSTILE], least=8, covers=False))
def test_every_answer_is_right_or_typed_and_bounded(name: str, scene: Scene) -> None:
    HOSTILE[name](scene)
    before = photograph(scene.canary)
    with bounded(60, megabytes=700):
        outcomes = run_all(scene)
    assert photograph(scene.canary) == before
    for verb, right in (("read", IDS), ("lone read", IDS), ("read other", [1]), ("filter", [7]), ("lone filter", [7])):
        outcome = outcomes[verb]
        assert outcome.error is not None or outcome.value == right, verb
    for verb in ("doctor", "lone doctor"):
        outcome = outcomes[verb]
        is_refused = isinstance(outcome.error, conroi.CorruptionError | conroi.UnsupportedError)
        assert outcome.error is None or is_refused, str(outcome.error)


@pytest.mark.parametrize("has_deletions", [False, True])
@pytest.mark.parametrize("count", [1 << 25, (1 << 32) - 1])
def test_rows_that_are_claimed_are_not_made_up(count: int, has_deletions: bool, tmp_path: Path) -> None:
    """D7: where no column is read, pylance made an address for each claimed row: 32 GiB, for minutes."""
    table = conroi.create_table(tmp_path / "t", [{"id": i, "v": str(i)} for i in range(20)])
    if has_deletions:
        table.delete("id = 3")
    manifest(Scene(tmp_path), "t", rows_claimed(count))
    verbs: list[Callable[[conroi.Table], object]] = [
        lambda table: table.delete("true"),
        lambda table: table.update({"v": "'z'"}, mode="columns"),
        lambda table: table.sample(2),
        lambda table: table.to_arrow([], with_row_id=True),
        lambda table: table.count_rows("true"),
        lambda table: table.take([count - 2]),
    ]
    for verb in verbs:
        with bounded(10, megabytes=200), pytest.raises(conroi.CorruptionError, match=r"but its file .* has 20\."):
            verb(conroi.open_table(tmp_path / "t"))
    assert "row-count-mismatch" in str(conroi.open_table(tmp_path / "t").doctor().findings)


def test_no_version_is_made_after_the_last_number(scene: Scene) -> None:
    """D8: the next number would be that of a detached version, which no reader finds."""
    last_version(scene)
    table = conroi.open_table(scene.lone)
    assert table.version == (1 << 63) - 1
    with pytest.raises(conroi.UnsupportedError, match="no numbers for more"):
        table.append([{"id": 1, "v": "x"}])
    assert conroi.open_table(scene.lone).version == (1 << 63) - 1


def test_a_checksum_of_a_document_is_dropped_by_pylance_and_then_not_missed(scene: Scene) -> None:
    import lance

    path = scene.lone / "_refs" / "tags" / "first.json"
    assert "conroi.checksum" in json.loads(path.read_bytes())
    lance.dataset(str(scene.lone)).tags.update("first", 1)
    assert "conroi.checksum" not in json.loads(path.read_bytes())
    assert conroi.open_table(scene.lone).tags.get("first").version == 1
