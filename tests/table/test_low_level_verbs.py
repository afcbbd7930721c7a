"""Operations that only software around a table needs: logs, single fragments, other roots, settings with new rows."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import lance
import pyarrow as pa
import pytest

import conroi
from conroi import operations
from conroi.format import lance_pb2 as pb
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("T5")
SHARD = UUID("00000000-0000-0000-0000-00000000002a")


def seen_by_pylance(uri: object, column: str = "v") -> list[object]:
    return sorted(column_values(lance.dataset(str(uri)).to_table()[column]))


def test_progress_of_a_log_is_recorded_by_a_verb(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"v": [1]}), str(tmp_path / "t"))
    with pytest.raises(conroi.InvalidInputError, match="has none"):
        conroi.open_table(tmp_path / "t").update_mem_wal_state({SHARD: 1})
    lance.dataset(str(tmp_path / "t")).initialize_mem_wal()
    table = conroi.open_table(tmp_path / "t").update_mem_wal_state({SHARD: 3})
    table = table.update_mem_wal_state({str(SHARD): 4})
    assert table.history()[0].operation == "UpdateMemWalState"
    (index,) = [index for index in table.pinned.manifest.indices if index.name == "__lance_mem_wal"]
    recorded = pb.MemWalIndexDetails.FromString(index.index_details.value).compacted_sstables
    assert [(each.shard_id.uuid, each.generation) for each in recorded] == [(SHARD.bytes, 4)]
    with pytest.raises(conroi.InvalidInputError, match="not newer"):
        table.update_mem_wal_state({SHARD: 4})
    for wrong in ({"x": 1}, {SHARD: 0}, {SHARD: "1"}):
        with pytest.raises(conroi.InvalidInputError):
            table.update_mem_wal_state(wrong)  # type: ignore[arg-type]
    assert table.update_mem_wal_state({}).version == table.version


def test_columns_of_some_fragments_are_replaced(tmp_path: Path) -> None:
    table = conroi.create_table(tmp_path / "t", pa.table({"v": [1, 2]}))
    table = table.append(pa.table({"v": [3]})).append(pa.table({"v": [4]}))
    table = table.replace_column_data({"v": "v * 10"}, fragments=[1])
    assert table.history()[0].operation == "DataReplacement"
    assert seen_by_pylance(tmp_path / "t") == [1, 2, 4, 30]
    with pytest.raises(conroi.InvalidInputError, match="no fragment 7"):
        table.replace_column_data({"v": "v"}, fragments=[1, 7])


def test_rows_are_written_to_a_named_base(tmp_path: Path) -> None:
    table = conroi.create_table(tmp_path / "t", pa.table({"v": [1]}), key="v")
    table = table.add_base(str(tmp_path / "fast"), name="fast", is_table_root=True)
    table = table.add_base(str(tmp_path / "files"), name="files")
    table = table.append(pa.table({"v": [2, 3]}), base="fast").append(pa.table({"v": [4]}))
    assert len(list((tmp_path / "fast" / "data").iterdir())) == 1
    assert seen_by_pylance(tmp_path / "t") == [1, 2, 3, 4]
    with pytest.raises(conroi.DuplicateKeyError):
        table.append(pa.table({"v": [3]}))
    table = table.delete("v = 2").update({"v": "v + 10"}, where="v = 3")
    assert seen_by_pylance(tmp_path / "t") == [1, 4, 13]
    with pytest.raises(conroi.NotFoundError, match="no base"):
        table.append(pa.table({"v": [5]}), base="slow")
    with pytest.raises(conroi.UnsupportedError, match="not the root"):
        table.append(pa.table({"v": [5]}), base="files")


def test_an_overwrite_sets_settings_in_the_same_version(tmp_path: Path) -> None:
    table = conroi.create_table(tmp_path / "t", pa.table({"v": [1]}), config={"a": "1", "b": "2"})
    after = table.overwrite(pa.table({"v": [2]}), config={"a": "9"})
    assert after.version == table.version + 1
    assert lance.dataset(after.uri).config() == {"a": "9", "b": "2"}
    with pytest.raises(conroi.InvalidInputError, match="all rows"):
        after.overwrite(pa.table({"v": [2]}), "v = 2", config={"a": "1"})


@pytest.mark.contract("T30")
def test_the_lower_layer_commits_by_the_way_that_was_asked_for(tmp_path: Path) -> None:
    table = conroi.create_table(tmp_path / "t", pa.table({"v": [1]}), put="rename")
    held: list[int] = []

    @contextmanager
    def lock(version: int) -> Generator[None]:
        held.append(version)
        yield

    for how in ({"put": "rename"}, {"commit_lock": lock}):
        operation = operations.ReserveFragments(num_fragments=1)
        head = conroi.open_table(table.uri).version
        done = conroi.commit(
            table.uri,
            operations.transaction(operation, read_version=head, uuid=str(uuid4())),
            **how,  # type: ignore[arg-type]
        )
        assert done.version == head + 1
    assert held == [3]


@pytest.mark.contract("T30")
def test_a_lake_refuses_another_way_to_commit(tmp_path: Path) -> None:
    """G13: `create_table` by a path inside the lake dropped both without a word."""
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", pa.table({"v": [1]}))
    new = f"{lake.uri}/new.lance"
    with pytest.raises(conroi.InvalidInputError, match="belongs to a lake"):
        conroi.create_table(new, pa.table({"v": [1]}), put="rename")
    with pytest.raises(conroi.InvalidInputError, match="belongs to a lake"):
        conroi.create_table(new, pa.table({"v": [1]}), commit_lock=lambda _: pytest.fail("held"))
    transaction = conroi.LanceTransaction(pb.Transaction())
    for open_ in (conroi.open_table, lambda uri, put: conroi.commit(uri, transaction, put=put)):  # type: ignore[arg-type]
        with pytest.raises(conroi.InvalidInputError, match="belongs to a lake") as refused:
            open_(lake["t"].uri, put="rename")
        assert "store" in (refused.value.hint or "")
    assert lake.tables() == ["t"]
