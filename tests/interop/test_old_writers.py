"""Facts that old writers leave out of a manifest: "unset" is not "none"."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.format import lance_pb2 as pb
from conroi.format.manifest_file import decode_manifest_file, encode_manifest_file
from conroi.format.transaction import decode_transaction
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("T23")


def manifest_path(root: Path, version: int) -> Path:
    return root / f"_versions/{(1 << 64) - 1 - version:020d}.manifest"


def edit(root: Path, version: int, change: Callable[[pb.ManifestHead], object]) -> None:
    """Change what a manifest says beside its fragments."""
    path = manifest_path(root, version)
    file = decode_manifest_file(path.read_bytes())
    head = file.manifest.editable_head()
    change(head)
    path.write_bytes(encode_manifest_file(file.manifest.changed(head=head), file.transaction))


def without_mark(root: Path, version: int = 1) -> None:
    """As pylance up to 0.30 leaves it, where the largest fragment id is 0."""
    edit(root, version, lambda head: head.ClearField("max_fragment_id"))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A table of 100 rows in one fragment, whose manifest does not say which ids were used."""
    root = tmp_path / "old.lance"
    lance.write_dataset(pa.table({"id": list(range(100))}), str(root))
    without_mark(root)
    return root


def ids(root: Path) -> list[int]:
    return sorted(column_values(lance.dataset(str(root)).to_table()["id"]))


def test_an_append_takes_the_next_fragment_id(old: Path) -> None:
    """A4: it took id 0 again, and 101 rows read as 2."""
    conroi.open_table(old).append(pa.table({"id": [100]}))
    assert ids(old) == list(range(101))
    assert [fragment.fragment_id for fragment in lance.dataset(str(old)).get_fragments()] == [0, 1]


def test_also_as_a_table_of_a_lake(tmp_path: Path) -> None:
    lake = conroi.connect(str(tmp_path))
    root = tmp_path / "old.lance"
    lance.write_dataset(pa.table({"id": list(range(100))}), str(root))
    without_mark(root)
    lake.adopt()
    with lake.begin() as tx:
        tx["old"].append(pa.table({"id": [100]}))
        tx["old"].append(pa.table({"id": [101]}))
    assert sorted(column_values(lake["old"].to_arrow()["id"])) == list(range(102))


def test_an_overwrite_an_update_a_merge_and_a_compaction_take_new_ids_too(old: Path) -> None:
    table = conroi.open_table(old)
    table = table.update({"id": "id + 1000"}, where="id = 5", mode="rows")
    assert ids(old) == [i for i in range(100) if i != 5] + [1005]
    table.overwrite(pa.table({"id": [1]}))
    assert [fragment.fragment_id for fragment in lance.dataset(str(old)).get_fragments()] == [2]


def test_reserved_ids_begin_after_those_in_use(old: Path) -> None:
    conroi.open_table(old).reserve_fragments(2)
    head = decode_manifest_file(manifest_path(old, 2).read_bytes()).manifest.head
    assert head.max_fragment_id == 2


def test_a_restore_keeps_ids_from_coming_back(old: Path) -> None:
    table = conroi.open_table(old).append(pa.table({"id": [100]}))
    without_mark(old, 1)
    table.restore(1).append(pa.table({"id": [200]}))
    assert [fragment.fragment_id for fragment in lance.dataset(str(old)).get_fragments()] == [0, 2]
    assert ids(old) == [*range(100), 200]


def test_an_id_that_only_an_index_still_knows_does_not_come_back(tmp_path: Path) -> None:
    """All rows are gone, but the index says that it covers fragment 0: rows under that id would be hidden."""
    root = tmp_path / "t"
    dataset = lance.write_dataset(pa.table({"id": [1, 2]}), str(root))
    dataset.create_scalar_index("id", "BTREE")
    dataset.delete("true")
    without_mark(root, dataset.version)
    conroi.open_table(root).append(pa.table({"id": [1]}))
    assert lance.dataset(str(root)).to_table(filter="id = 1").num_rows == 1
    assert [fragment.fragment_id for fragment in lance.dataset(str(root)).get_fragments()] == [1]


def test_doctor_finds_nothing_wrong_with_it(old: Path) -> None:
    assert not conroi.open_table(old).doctor(deep=True).findings


# ------------------------------------------------------------------------- the format of the data files


def without_format(head: pb.ManifestHead) -> None:
    """As pylance up to 0.15 leaves it."""
    head.ClearField("data_format")


def test_a_table_that_does_not_name_its_file_format_has_that_of_its_files(tmp_path: Path) -> None:
    """B5: it was called damaged, with the hint to restore it from a copy."""
    root = tmp_path / "t"
    lance.write_dataset(pa.table({"id": [1, 2]}), str(root), data_storage_version="2.0")
    edit(root, 1, without_format)
    assert lance.dataset(str(root)).data_storage_version == "2.0"
    table = conroi.open_table(root)
    assert table.to_arrow()["id"].to_pylist() == [1, 2]
    table.append(pa.table({"id": [3]}))
    assert ids(root) == [1, 2, 3]
    assert lance.dataset(str(root)).data_storage_version == "2.0"
    assert not conroi.open_table(root).doctor(deep=True).findings


@pytest.mark.parametrize("is_empty", [False, True])
def test_one_of_the_first_format_is_read_and_not_written(tmp_path: Path, is_empty: bool) -> None:
    root = tmp_path / "t"
    rows = pa.table({"id": pa.array([] if is_empty else [1, 2], pa.int64())})
    lance.write_dataset(rows, str(root), data_storage_version="legacy")
    edit(root, 1, without_format)
    table = conroi.open_table(root)
    assert table.to_arrow()["id"].to_pylist() == rows["id"].to_pylist()
    with pytest.raises(conroi.UnsupportedError, match=r"old format 0\.1"):
        table.append(pa.table({"id": [3]}))
    assert lance.dataset(str(root)).version == 1


def test_no_table_of_the_first_format_is_made(tmp_path: Path) -> None:
    """A6: conroi.commit() made one, whose dictionary columns could not be read."""
    source, target = tmp_path / "source", tmp_path / "target"
    lance.write_dataset(pa.table({"id": [1]}), str(source), data_storage_version="legacy")
    written = next((source / "_transactions").glob("*.txn"))
    target.mkdir()
    (source / "data").rename(target / "data")
    with pytest.raises(conroi.UnsupportedError, match=r"old format 0\.1"):
        conroi.commit(target, decode_transaction(written.read_bytes()))
    assert not (target / "_versions").exists()
