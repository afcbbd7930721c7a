"""`conroi.commit`, the lower layer: it takes transactions that pylance wrote, and makes of them what pylance made."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID, uuid4

import lance
import pytest

import conroi
from conroi import ManifestNaming, operations
from conroi.format import decode_transaction, encode_transaction
from conroi.format import lance_pb2 as pb
from tests.interop.readers import assert_seen
from tests.interop.tables import Kind, Stable, newest_manifest, two_kinds
from tests.interop.verbs import VERBS, Verb
from tests.support.parity import read_version
from tests.support.sampling import sampled

pytestmark = pytest.mark.contract("T5")

SHARD = pb.UUID(uuid=UUID(int=7).bytes)


def without_versions_after(root: Path, version: int, naming: ManifestNaming) -> None:
    """All files of the later versions stay; only their manifests, and what points to them, are taken away."""
    for later in range(version + 1, lance.dataset(str(root)).version + 1):
        (root / naming.path(later)).unlink()
    (root / "_versions" / "latest_version_hint.json").unlink(missing_ok=True)


def transactions_after(root: Path, version: int) -> list[bytes]:
    """The transaction files of the later versions, oldest first."""
    table = conroi.open_table(root)
    names = [
        f"{commit.read_version}-{commit.transaction_uuid}.txn" for commit in table.history() if commit.version > version
    ]
    return [(root / "_transactions" / name).read_bytes() for name in reversed(names)]


@pytest.mark.parametrize(
    ("verb", "kind"),
    sampled(
        "transactions of pylance",
        [(verb, kind) for verb in VERBS if verb.theirs and verb.name != "tag" for kind in two_kinds("pylance")],
        label=lambda value: str(value).replace(" ", "-"),
    ),
)
def test_a_transaction_of_pylance_committed_by_us_gives_the_table_that_pylance_made(
    tables: Stable, verb: Verb, kind: Kind
) -> None:
    root, model = tables.copy(kind)
    before = lance.dataset(str(root)).version
    assert verb.theirs
    verb.theirs(lance.dataset(str(root)), model)
    transactions = transactions_after(root, before)
    replayed = root.with_name(f"{root.name}-replayed")
    shutil.copytree(root, replayed)
    without_versions_after(replayed, before, kind.naming)
    for data in transactions:
        conroi.commit(replayed, decode_transaction(data))
    verb.change(model)
    assert_seen(root, model)
    assert_seen(replayed, model, version=before + len(transactions))
    lance.dataset(str(replayed)).insert(model.new(range(900, 905)))
    model.append(model.make(range(900, 905)))
    assert_seen(replayed, model)


def test_progress_of_a_write_ahead_log_is_recorded_and_pylance_carries_it_on(tables: Stable) -> None:
    root, model = tables.copy(Kind("pylance"))
    lance.dataset(str(root)).initialize_mem_wal()
    for generation in (3, 4):
        before = conroi.open_table(root).version
        assert conroi.commit(root, advanced(before, generation)).version == before + 1
        assert_seen(root, model)
        assert recorded(root) == {SHARD.uuid: generation}
    lance.dataset(str(root)).insert(model.new(range(900, 905)))
    model.append(model.make(range(900, 905)))
    assert_seen(root, model)
    assert lance.dataset(str(root)).mem_wal_index_details() is not None
    assert recorded(root) == {SHARD.uuid: 4}
    newest = conroi.open_table(root)
    assert newest.history()[1].operation == "UpdateMemWalState"
    with pytest.raises(conroi.InvalidInputError, match="not newer"):
        conroi.commit(root, advanced(newest.version, 4))


def advanced(version: int, generation: int) -> conroi.LanceTransaction:
    mark = pb.CompactedSsTable(shard_id=SHARD, generation=generation)
    operation = operations.UpdateMemWalState(compacted_sstables=(mark,))
    return operations.transaction(operation, read_version=version, uuid=str(uuid4()))


def recorded(root: Path) -> dict[bytes, int]:
    """The newest generation of each shard, taken from the manifest by hand."""
    (index,) = [i for i in read_version(newest_manifest(root)).manifest.indices if i.name == "__lance_mem_wal"]
    details = pb.MemWalIndexDetails.FromString(index.index_details.value)
    return {each.shard_id.uuid: each.generation for each in details.compacted_sstables}


def test_a_transaction_survives_bytes_and_back() -> None:
    operation = operations.ReserveFragments(num_fragments=2)
    made = operations.transaction(operation, read_version=3, uuid=str(uuid4()), properties={"why": "a test"})
    assert decode_transaction(encode_transaction(made)) == made


def test_a_transaction_can_create_a_table(tables: Stable, tmp_path: Path) -> None:
    """An Overwrite on no version, whose data files are there already."""
    source, model = tables.copy(Kind("pylance"))
    lance.dataset(str(source)).insert(model.new(range(5)), mode="overwrite")
    data = transactions_after(source, lance.dataset(str(source)).version - 1)[0]
    shutil.copytree(source / "data", tmp_path / "new" / "data")
    wire = decode_transaction(data).wire
    first = pb.Transaction()
    first.CopyFrom(wire)
    first.read_version = 0
    conroi.commit(tmp_path / "new", conroi.LanceTransaction(first))
    model.rows.clear()
    model.append(model.make(range(5)))
    assert_seen(tmp_path / "new", model, version=1)


def test_a_clone_is_not_a_transaction_to_commit(tables: Stable, tmp_path: Path) -> None:
    operation = operations.Clone(is_shallow=True, ref_version=1, ref_path="/elsewhere")
    with pytest.raises(conroi.InvalidInputError, match=r"table\.clone"):
        conroi.commit(tmp_path / "new", operations.transaction(operation, read_version=0, uuid=str(uuid4())))
    root, model = tables.copy(Kind("conroi"))
    with pytest.raises(conroi.InvalidInputError):
        conroi.commit(root, operations.transaction(operation, read_version=1, uuid=str(uuid4())))
    assert_seen(root, model)


def test_an_unknown_operation_is_refused_and_the_table_stays(tables: Stable) -> None:
    root, model = tables.copy(Kind("conroi"))
    version = conroi.open_table(root).version
    unknown = pb.Transaction(read_version=version, uuid=str(uuid4()))
    unknown.MergeFromString(bytes([0xA2, 0x07, 0x00]))  # field 116, empty
    with pytest.raises(conroi.UnsupportedError):
        conroi.commit(root, decode_transaction(unknown.SerializeToString()))
    assert_seen(root, model, version=version)
