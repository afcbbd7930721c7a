"""Doctor for one table: alone, deep, on branches, cloned, and under an external store."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.doctor import Diagnosis
from conroi.storage import open_objects
from conroi.versions import open_records
from conroi.versions.records import Record
from tests.doctor import damage
from tests.doctor.damage import Later, kinds
from tests.support.databases import sqlite_address

pytestmark = pytest.mark.contract("M4")


@pytest.fixture
def table(tmp_path: Path) -> conroi.Table:
    rows = pa.table({"id": range(50), "text": [str(n) for n in range(50)]})
    return conroi.create_table(str(tmp_path / "table.lance"), rows, key="id").append([{"id": 100, "text": "x"}])


def doctor(table: conroi.Table, store: str | None = None, *, fix: bool = False, deep: bool = False) -> Diagnosis:
    """Two hours from now, with nothing remembered."""
    around = [Path(table.uri).parent]  # clones are beside what they were made from
    opened = conroi.open_table(table.uri, store=store, allow_bases=around, environment=Later())
    return opened.doctor(fix=fix, deep=deep)


def test_a_healthy_table_has_no_findings(table: conroi.Table) -> None:
    diagnosis = doctor(table, deep=True)
    assert diagnosis.findings == ()
    assert diagnosis.checked["versions"] == 2
    assert diagnosis.checked["keys"] == 51
    assert diagnosis.environment["pylance"] == lance.__version__
    assert diagnosis.environment["storage"] == "local disk"
    assert str(diagnosis).startswith("Healthy: nothing found. Looked at 2 manifests")


def test_a_table_that_pylance_made_is_healthy(tmp_path: Path) -> None:
    path = str(tmp_path / "theirs.lance")
    dataset = lance.write_dataset(pa.table({"n": range(10), "s": ["a"] * 10}), path, max_rows_per_file=4)
    dataset.delete("n = 3")
    dataset.create_scalar_index("n", "BTREE")
    dataset.optimize.compact_files()
    dataset.tags.create("t", 2)
    assert doctor(conroi.open_table(path), deep=True).findings == ()


def test_a_key_that_pylance_doubled_is_named_with_the_keys(table: conroi.Table) -> None:
    lance.write_dataset(pa.table({"id": [7], "text": ["again"]}), table.uri, mode="append", schema=table.schema)
    diagnosis = doctor(table)
    (finding,) = diagnosis.findings
    assert (finding.kind, finding.version) == ("duplicate-key", 3)
    assert "1 keys (id) occur more than once: 7." in finding.what
    assert not diagnosis.is_healthy


def test_values_that_cannot_be_decoded_are_found_by_reading_deep(tmp_path: Path) -> None:
    chance = random.Random(7)
    texts = ["".join(chance.choices("abcdefgh", k=40)) for _ in range(5000)]
    table = conroi.create_table(str(tmp_path / "t.lance"), pa.table({"s": texts}))
    file = damage.data_file(Path(table.uri))
    data = bytearray(file.read_bytes())
    data[0:4000] = b"\xff" * 4000
    file.write_bytes(data)
    assert doctor(table).findings == (), "the file opens, and has its rows"
    diagnosis = doctor(table, deep=True)
    assert kinds(diagnosis) == {"unreadable-rows"}, str(diagnosis)


def test_rows_of_old_versions_are_read_only_if_deep(table: conroi.Table) -> None:
    old = damage.data_file(Path(table.uri))
    newer = table.overwrite([{"id": 1, "text": "all"}])
    damage.flip(old, old.stat().st_size - 2)
    assert doctor(newer).findings == ()
    assert kinds(doctor(newer, deep=True)) == {"damaged-data-file"}


def test_larger_tables_say_that_their_keys_were_not_compared(
    table: conroi.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conroi.doctor.rows.MOST_ROWS_IN_PASSING", 10)
    assert kinds(doctor(table)) == {"keys-not-checked"}
    assert doctor(table, deep=True).findings == ()


def test_branches_and_clones_find_their_files_where_they_are(table: conroi.Table, tmp_path: Path) -> None:
    lance.dataset(table.uri).create_branch("dev")
    clone = table.clone(str(tmp_path / "clone.lance"))
    assert doctor(table, deep=True).findings == doctor(clone, deep=True).findings == ()
    damage.data_file(Path(table.uri)).unlink()
    assert {each.table for each in doctor(table).of_kind("missing-data-file")} == {None, "table@dev"}
    assert kinds(doctor(clone)) == {"missing-data-file"}


def test_a_gap_that_a_tag_explains_is_none(table: conroi.Table) -> None:
    table.tags.create("kept", 1)
    table.append([{"id": 101, "text": "x"}])
    damage.manifests(Path(table.uri))[2].unlink()
    assert "version-gap" not in kinds(doctor(table))
    table.tags.delete("kept")
    assert "version-gap" in kinds(doctor(table))


def test_of_a_lake_only_what_concerns_the_table_is_told(lake: Path) -> None:
    damage.deletion_file(lake / damage.ORDERS).unlink()
    opened = conroi.connect(str(lake), environment=Later())
    assert opened["sales.customers"].doctor().findings == ()
    (finding,) = opened["orders"].doctor().findings
    assert (finding.kind, finding.table) == ("missing-deletion-file", "orders")
    by_path = conroi.open_table(str(lake / damage.ORDERS), environment=Later())
    assert by_path.doctor().findings == (finding,)


# ------------------------------------------------------------------------------- external stores


@pytest.fixture
def address(tmp_path: Path) -> str:
    return sqlite_address(tmp_path)


@pytest.fixture
def stored(address: str, tmp_path: Path) -> conroi.Table:
    return conroi.create_table(str(tmp_path / "t.lance"), [{"n": 1}], store=address).append([{"n": 2}])


def rows_by_pylance(table: conroi.Table) -> list[object]:
    found: list[Any] = lance.dataset(table.uri).to_table()["n"].to_pylist()
    return sorted(found)


def test_a_table_under_a_store_is_healthy(stored: conroi.Table, address: str) -> None:
    diagnosis = doctor(stored, address)
    assert diagnosis.findings == ()
    assert diagnosis.checked["records"] == 2


def test_a_commit_past_the_store_is_told_to_it(stored: conroi.Table, address: str) -> None:
    lance.write_dataset(pa.table({"n": [3]}), stored.uri, mode="append")
    assert kinds(doctor(stored, address)) == {"past-the-store"}
    assert doctor(stored, address, fix=True).findings[0].fixed
    assert doctor(stored, address).findings == ()
    conroi.open_table(stored.uri, store=address).append([{"n": 4}])
    assert rows_by_pylance(stored) == [1, 2, 3, 4]


def test_a_recorded_version_without_a_final_name_gets_it(stored: conroi.Table, address: str) -> None:
    opened = conroi.open_table(stored.uri, store=address, environment=Later())
    final = damage.newest(Path(stored.uri))
    staged = final.with_name(f"{final.name}-01234567-89ab-cdef-0123-456789abcdef")
    final.rename(staged)
    records = open_records(address)
    assert records.point(conroi_key(stored, address), 2, f"_versions/{staged.name}", staged.stat().st_size)
    assert rows_by_pylance(stored) == [1]
    assert kinds(opened.doctor()) == {"unfinished-record"}
    assert opened.doctor(fix=True).findings[0].fixed
    assert rows_by_pylance(stored) == [1, 2]
    assert doctor(stored, address).findings == ()


def conroi_key(table: conroi.Table, address: str) -> str:
    return open_records(address).key_of(open_objects(table.uri))


def test_a_record_whose_manifest_is_gone_is_named(stored: conroi.Table, address: str) -> None:
    records = open_records(address)
    key = conroi_key(stored, address)
    opened = conroi.open_table(stored.uri, store=address, environment=Later())
    records.put_if_absent([Record(key, 3, "_versions/18446744073709551612.manifest", 10)], {key: 2})
    diagnosis = opened.doctor()
    assert kinds(diagnosis, "error") == {"record-without-manifest"}
