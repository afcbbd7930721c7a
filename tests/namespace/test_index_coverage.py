"""Index coverage in versions that other Lance clients write: no row hides behind an index that does not know it.

lancedb 0.40 has lance 13 inside, which does not know the B-trees of pylance 14. On a table with stable row ids it adds
the fragments with the rows that it moved to those indices (finding J1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import lancedb
import pytest
from lancedb.namespace import LanceNamespaceDBConnection
from pyroaring import BitMap

import conroi
from conroi.format.manifest_file import decode_manifest_file, with_other_indices
from conroi.namespace import ConroiNamespace
from conroi.operations.indices import covered_fragments, with_coverage

FOUR = [{"id": number, "v": "a"} for number in range(1, 5)]


def keyed(lake: conroi.Lake) -> None:
    lake.create_table("k", FOUR[:2], key="id", stable_row_ids=True)
    lake["k"].append(FOUR[2:])
    lake["k"].create_index("id")  # covers both fragments


def update_three(table: Any) -> None:
    table.update(where="id in (1, 2, 3)", values={"v": "b"})


def compact(table: Any) -> None:
    table.optimize()
    update_three(table)


def seen(rows: Any) -> list[tuple[int, str]]:
    return sorted((row["id"], row["v"]) for row in rows.to_pylist())


def change_by_key(open_: Callable[[], conroi.Table]) -> None:
    """A verb of each kind, on rows that the other client moved."""
    open_().update({"v": "'c'"}, where="id = 1")
    open_().delete("id = 2")
    merge = open_().merge([{"id": 3, "v": "d"}], on="id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


CHANGED = [(1, "c"), (3, "d"), (4, "a")]
"""By hand: 1 updated, 2 deleted, 3 merged, 4 as it was."""


@pytest.mark.contract("N1")
@pytest.mark.parametrize("work", [update_three, compact])
def test_rows_that_lancedb_moved_are_found_through_an_index(tmp_path: Path, work: Callable[[Any], None]) -> None:
    lake = conroi.connect(tmp_path / "lake")
    keyed(lake)
    table = LanceNamespaceDBConnection(ConroiNamespace(lake)).open_table("k")
    work(table)
    assert lake["k"].count_rows("id = 1") == 1
    assert lance.dataset(lake["k"].uri).count_rows("id = 1") == 1
    assert lake.doctor(deep=True).findings == ()
    change_by_key(lambda: lake["k"])
    assert seen(lake["k"].to_arrow()) == CHANGED
    assert seen(lance.dataset(lake["k"].uri).to_table()) == CHANGED


@pytest.mark.contract("N1")
def test_the_client_goes_on_with_the_manifest_that_was_changed_before_it_was_published(tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "lake")
    keyed(lake)
    lake["k"].create_index("v", "BITMAP")
    table = LanceNamespaceDBConnection(ConroiNamespace(lake)).open_table("k")
    update_three(table)
    assert sorted(index.name for index in table.list_indices()) == ["v_idx"]  # lance 13 does not know the other
    table.update(where="id = 4", values={"v": "z"})
    assert seen(table.to_arrow()) == [(1, "b"), (2, "b"), (3, "b"), (4, "z")]
    assert table.search().where("v = 'z'").to_list() == [{"id": 4, "v": "z"}]
    other = LanceNamespaceDBConnection(ConroiNamespace(lake)).open_table("k")
    assert sorted(index.name for index in other.list_indices()) == ["v_idx"]
    assert lake["k"].count_rows("id = 4") == 1
    assert lake.doctor(deep=True).findings == ()


@pytest.mark.contract("N1")
def test_rows_that_lancedb_moved_past_the_lake_are_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lake = conroi.connect(tmp_path / "lake")
    keyed(lake)
    with caplog.at_level(logging.ERROR, "conroi"):
        update_three(lancedb.connect(lake.uri).open_table("k"))
        change_by_key(lambda: lake["k"])
    assert seen(lake["k"].to_arrow()) == CHANGED
    assert lance.dataset(lake["k"].uri).count_rows("id = 1") == 1, "our next version has the index right"
    assert lake.doctor(deep=True).findings == ()


@pytest.mark.contract("N1")
def test_rows_that_lancedb_moved_in_a_single_table_are_found(tmp_path: Path) -> None:
    uri = str(tmp_path / "k.lance")
    conroi.create_table(uri, FOUR, key="id", stable_row_ids=True).create_index("id")
    update_three(lancedb.connect(tmp_path).open_table("k"))
    assert lance.dataset(uri).count_rows("id = 1") == 0, "the control: pylance trusts the index, and misses the row"
    (finding,) = conroi.open_table(uri).doctor(deep=True).findings
    assert (finding.kind, finding.severity) == ("index-misses-rows", "error")
    assert conroi.open_table(uri).to_arrow(filter="id = 1").to_pylist() == [{"id": 1, "v": "b"}]
    change_by_key(lambda: conroi.open_table(uri))
    assert seen(conroi.open_table(uri).to_arrow()) == CHANGED
    assert lance.dataset(uri).count_rows("id = 1") == 1
    assert conroi.open_table(uri).doctor(deep=True).findings == ()


@pytest.mark.contract("N1")
def test_a_restore_by_a_client_brings_back_what_the_index_covered(tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "lake")
    keyed(lake)
    dataset = lance.dataset(namespace_client=ConroiNamespace(lake), table_id=["k"])
    dataset.delete("id < 5")  # its fragments are gone
    dataset.checkout_version(3).restore()
    (index,) = decode_manifest_file(newest_manifest(lake["k"].uri).read_bytes()).manifest.indices
    assert list(covered_fragments(index) or ()) == [0, 1]
    assert lake["k"].count_rows("id = 1") == 1


@pytest.mark.contract("N1")
def test_an_index_that_pylance_remapped_is_still_used(tmp_path: Path) -> None:
    """Not every index that covers newer fragments is wrong: one that was remapped has another id."""
    uri = str(tmp_path / "k.lance")
    conroi.create_table(uri, FOUR, stable_row_ids=True).append([{"id": 5, "v": "a"}])
    dataset = lance.dataset(uri)
    dataset.create_scalar_index("id", "BTREE")
    dataset.optimize.compact_files()
    plan = conroi.open_table(uri).to_lance().scanner(filter="id = 5").explain_plan()
    assert "ScalarIndexQuery" in plan
    assert conroi.open_table(uri).count_rows("id = 5") == 1


def test_indices_are_changed_in_place_without_moving_anything(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    dataset = lance.write_dataset(conroi.create_table(str(tmp_path / "x"), FOUR).to_arrow(), uri)
    dataset.insert(dataset.to_table())
    dataset.create_scalar_index("id", "BTREE")
    data = newest_manifest(uri).read_bytes()
    before = decode_manifest_file(data)
    changed = with_other_indices(data, [with_coverage(before.manifest.indices[0], BitMap([0]))])
    after = decode_manifest_file(changed)
    assert (len(changed), after.transaction) == (len(data), before.transaction)
    assert after.manifest.message == before.manifest.message
    assert [list(covered_fragments(index) or ()) for index in after.manifest.indices] == [[0]]
    with pytest.raises(conroi.InvalidInputError, match="room"):
        with_other_indices(data, [*before.manifest.indices, *before.manifest.indices])


def newest_manifest(uri: str) -> Path:
    """pylance's names count down, so that the newest comes first."""
    return min(Path(uri, "_versions").glob("*.manifest"))
