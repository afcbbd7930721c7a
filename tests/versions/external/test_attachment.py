"""Moving a table under a store and out again, with everything in it intact."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import conroi
from conroi.stores import attach, detach
from conroi.testing import fail
from conroi.versions import open_records
from tests.support.external_crashes import FINAL
from tests.support.external_tables import faulty_table, rows, rows_by_pylance


@pytest.fixture
def table(tmp_path: Path) -> conroi.Table:
    """Three versions, a tag, deletions, an index."""
    table = conroi.create_table(tmp_path / "t.lance", [{"row": 1}, {"row": 2}])
    table.tags.create("first", 1)
    return table.append([{"row": 3}]).delete("row = 2")


def everything(table: conroi.Table) -> object:
    return (
        [(commit.version, commit.transaction_uuid) for commit in table.history()],
        [rows(table.at(version)) for version in table.versions()],
        table.tags.list() if hasattr(table.tags, "list") else str(table.tags),
    )


def records_of(store: str, table: conroi.Table) -> list[int]:
    records = open_records(store)
    return [record.version for record in records.all(records.key_of(table._files.objects))]


def test_a_table_goes_under_a_store_and_out_again_with_everything_intact(table: conroi.Table, store: str) -> None:
    before = everything(table)
    assert attach(table.uri, store) == 3
    attached = conroi.open_table(table.uri, store=store)
    assert everything(attached) == before
    attached.append([{"row": 4}])
    assert detach(table.uri, store) == 4
    assert records_of(store, table) == []
    free = conroi.open_table(table.uri)
    assert (free.version, rows(free), rows(free.at(tag="first"))) == (4, [1, 3, 4], [1, 2])
    assert rows(free.append([{"row": 5}])) == [1, 3, 4, 5]
    assert rows_by_pylance(table.uri) == (5, [1, 3, 4, 5])
    assert attach(table.uri, store) == 5


def test_attaching_twice_is_fine_and_catches_up_with_out_of_band_writes(table: conroi.Table, store: str) -> None:
    attach(table.uri, store)
    table.append([{"row": 4}]).append([{"row": 5}])
    assert attach(table.uri, store) == 5
    assert attach(table.uri, store) == 5
    assert conroi.open_table(table.uri, store=store).version == 5
    assert records_of(store, table)[-1] == 5


def test_detaching_completes_what_is_unfinished(table: conroi.Table, store: str) -> None:
    attach(table.uri, store)
    writer, _, _ = faulty_table(table.uri, store, [fail("put_if_absent", FINAL, times=None)])
    with pytest.raises(conroi.CommitStateUnknown):
        writer.append([{"row": 4}])
    assert rows(conroi.open_table(table.uri)) == [1, 3]
    assert detach(table.uri, store) == 4
    assert rows(conroi.open_table(table.uri)) == [1, 3, 4]


def test_what_is_not_there_cannot_be_attached_and_need_not_be_detached(store: str, tmp_path: Path) -> None:
    with pytest.raises(conroi.NotFoundError) as caught:
        attach(tmp_path / "none.lance", store)
    assert (caught.value.table, bool(caught.value.hint)) == (str(tmp_path / "none.lance"), True)
    assert detach(tmp_path / "none.lance", store) == 0


def test_a_table_whose_folder_is_gone_is_forgotten_and_can_be_made_anew(table: conroi.Table, store: str) -> None:
    attach(table.uri, store)
    shutil.rmtree(table.uri)
    assert detach(table.uri, store) == 3
    assert rows(conroi.create_table(table.uri, [{"row": 9}], store=store)) == [9]


def test_all_spellings_of_a_place_are_one_table(
    table: conroi.Table, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach(table.uri, store)
    (tmp_path / "link").symlink_to(table.uri)
    monkeypatch.chdir(tmp_path)
    for spelling in ("t.lance", "./t.lance/", f"file://{tmp_path}/t.lance", f"{tmp_path}/x/../t.lance", "link"):
        there = conroi.open_table(spelling, store=store)
        assert records_of(store, there) == records_of(store, table)
