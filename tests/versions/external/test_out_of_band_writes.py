"""Out-of-band writes, past the store: nothing is overwritten, nothing is lost, the store catches up."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.testing import Request, call_after, call_before
from conroi.versions import open_records
from tests.support.arrow import column_values
from tests.support.external_tables import faulty_table, rows, rows_by_pylance


@pytest.fixture
def uri(store: str, tmp_path: Path) -> Path:
    conroi.create_table(tmp_path / "t.lance", [{"row": 1}], store=store)
    return tmp_path / "t.lance"


def append_by_pylance(uri: Path, row: int) -> None:
    lance.write_dataset(pa.table({"row": [row]}), str(uri), mode="append")


def newest_in(store: str, uri: Path) -> int:
    records = open_records(store)
    found = records.newest(records.key_of(conroi.open_table(uri)._files.objects))
    assert found is not None
    return found.version


@pytest.mark.contract("X3")
def test_commits_that_came_before_ours_are_taken_over(uri: Path, store: str) -> None:
    for row in (2, 3, 4):
        append_by_pylance(uri, row)
    table = conroi.open_table(uri, store=store).append([{"row": 5}])
    assert (table.version, rows(table)) == (5, [1, 2, 3, 4, 5])
    assert rows_by_pylance(uri) == (5, [1, 2, 3, 4, 5])
    assert newest_in(store, uri) == 5


def test_a_commit_that_comes_between_our_record_and_our_final_name_stays(uri: Path, store: str) -> None:
    """Our version was not visible, so theirs takes its number and ours is retried."""
    at_store = [call_after(lambda _: append_by_pylance(uri, 2), "put_if_absent")]
    table, _, records = faulty_table(uri, store, at_store=at_store)
    done = table.append([{"row": 3}])
    assert len(records.hits) == 1
    assert (done.version, rows(done)) == (3, [1, 2, 3])
    assert rows_by_pylance(uri) == (3, [1, 2, 3])
    assert [rows(done.at(version)) for version in done.versions()] == [[1], [1, 2], [1, 2, 3]]
    assert newest_in(store, uri) == 3


def test_a_reader_that_comes_first_gives_way_as_well(uri: Path, store: str) -> None:
    def interfere(_request: Request) -> None:
        append_by_pylance(uri, 2)
        assert rows(conroi.open_table(uri, store=store)) == [1, 2]

    table, _, _ = faulty_table(uri, store, at_store=[call_after(interfere, "put_if_absent")])
    done = table.append([{"row": 3}])
    assert (done.version, rows(done)) == (3, [1, 2, 3])
    assert rows_by_pylance(uri) == (3, [1, 2, 3])


def test_a_store_that_was_set_back_catches_up_with_the_folder(uri: Path, store: str) -> None:
    """As after a database was restored from a backup."""
    table = conroi.open_table(uri, store=store)
    records = open_records(store)
    key = records.key_of(table._files.objects)
    for row in range(2, 7):
        table = table.append([{"row": row}])
    before = records.all(key)
    records.forget(key, [record.version for record in before])
    records.put_if_absent([before[1]])
    done = table.append([{"row": 7}])
    assert (done.version, rows(done)) == (7, [1, 2, 3, 4, 5, 6, 7])
    assert rows(conroi.open_table(uri, store=store)) == [1, 2, 3, 4, 5, 6, 7]


def test_a_store_that_forgot_the_table_learns_of_it_again(uri: Path, store: str) -> None:
    table = conroi.open_table(uri, store=store).append([{"row": 2}])
    records = open_records(store)
    records.forget(records.key_of(table._files.objects), [1, 2])
    assert rows(table.append([{"row": 3}])) == [1, 2, 3]
    assert newest_in(store, uri) == 3


def test_a_table_that_was_made_without_the_store_is_adopted_by_its_first_reader(store: str, tmp_path: Path) -> None:
    uri = tmp_path / "old.lance"
    lance.write_dataset(pa.table({"row": [1]}), str(uri))
    append_by_pylance(uri, 2)
    table = conroi.open_table(uri, store=store)
    assert (table.version, newest_in(store, uri)) == (2, 2)
    assert rows(table.append([{"row": 3}])) == [1, 2, 3]
    assert table.latest().versions() == [1, 2, 3]


def test_a_table_that_is_there_without_the_store_is_not_created_again(store: str, tmp_path: Path) -> None:
    conroi.create_table(tmp_path / "t.lance", [{"row": 1}])
    with pytest.raises(conroi.AlreadyExistsError):
        conroi.create_table(tmp_path / "t.lance", [{"row": 2}], store=store)


def test_detached_versions_are_no_matter_of_the_store(uri: Path, store: str) -> None:
    from tests.support.transactions import reserve_fragments

    made = conroi.commit(uri, reserve_fragments(read_version=1), store=store, detached=True)
    assert newest_in(store, uri) == 1
    assert conroi.open_table(uri, version=made.version, store=store).version == made.version


def test_a_clone_may_begin_at_a_high_version_under_a_store(uri: Path, store: str, tmp_path: Path) -> None:
    table = conroi.open_table(uri, store=store).append([{"row": 2}])
    table.clone(tmp_path / "clone.lance")
    clone = conroi.open_table(tmp_path / "clone.lance", store=store, allow_bases=[uri])
    assert (clone.version, rows(clone.append([{"row": 3}]))) == (2, [1, 2, 3])


def test_every_verb_works_under_a_store(uri: Path, store: str) -> None:
    table = conroi.open_table(uri, store=store)
    table = table.append([{"row": 2}, {"row": 3}]).update({"row": "row + 10"}, where="row = 3").delete("row = 1")
    assert rows(table) == [2, 13]
    table = table.add_columns({"twice": "row * 2"}).compact()
    assert sorted(column_values(table.to_arrow()["twice"])) == [4, 26]
    table.tags.create("good")
    table = table.overwrite([{"row": 5}])
    assert rows(conroi.open_table(uri, tag="good", store=store)) == [2, 13]
    assert rows(table.restore(1)) == [1]
    assert rows_by_pylance(uri)[1] == [1]
    assert newest_in(store, uri) == table.latest().version


def test_manifests_with_old_names_can_be_renamed_under_a_store(store: str, tmp_path: Path) -> None:
    uri = tmp_path / "v1.lance"
    table = conroi.create_table(uri, [{"row": 1}], naming=conroi.ManifestNaming.V1, store=store).append([{"row": 2}])
    table.migrate_manifest_names()
    there = conroi.open_table(uri, store=store)
    assert (there.naming, rows(there.append([{"row": 3}]))) == (conroi.ManifestNaming.V2, [1, 2, 3])
    assert rows_by_pylance(uri) == (3, [1, 2, 3])


def test_control_a_final_name_put_without_a_condition_loses_the_other_commit(uri: Path, store: str) -> None:
    """What an unconditional copy would do, as other implementations have it."""

    class Overwriting:
        def put_new(self, objects: object, path: str, data: bytes) -> None:
            objects.put(path, data)  # type: ignore[attr-defined]

    at_store = [call_before(lambda _: append_by_pylance(uri, 2), "put_if_absent")]
    table, _, _ = faulty_table(uri, store, at_store=at_store)
    table._files.versions._putter = Overwriting()  # type: ignore[attr-defined]
    table.append([{"row": 3}])
    assert rows_by_pylance(uri) == (2, [1, 3])
