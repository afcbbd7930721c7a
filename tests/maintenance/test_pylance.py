"""pylance on what was collected, and pylance's own cleanup beside ours."""

from __future__ import annotations

from datetime import timedelta

import lance
import pyarrow as pa
import pytest

import conroi
from tests.maintenance.conftest import numbers
from tests.support.aging import make_older
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("M2")


def clean(table: conroi.Table, keep: int) -> None:
    make_older(table.uri, hours=24 * 30)
    table.expire(keep=keep, dry_run=False)
    table.gc(dry_run=False)


def test_pylance_reads_every_kept_version(table: conroi.Table) -> None:
    table = table.delete("n = 2").create_index("n", "BTREE").compact()
    expected = {version: numbers(table.at(version)) for version in table.versions()}
    clean(table, keep=4)
    there = [each["version"] for each in lance.dataset(table.uri).versions()]
    assert len(there) >= 4
    for version in there:
        if version in expected:
            assert sorted(column_values(lance.dataset(table.uri, version=version).to_table()["n"])) == expected[version]


def test_pylance_writes_deletes_compacts_and_indexes_afterwards(table: conroi.Table) -> None:
    clean(table, keep=1)
    lance.write_dataset(pa.table({"n": [6]}), table.uri, mode="append")
    dataset = lance.dataset(table.uri)
    dataset.delete("n = 1")
    dataset.optimize.compact_files()
    dataset.create_scalar_index("n", "BTREE")
    assert numbers(conroi.open_table(table.uri)) == [2, 3, 4, 5, 6]
    dataset.restore() if dataset.version == dataset.latest_version else None


def test_what_pylance_cleaned_up_does_not_disturb_us(table: conroi.Table) -> None:
    """It leaves no watermark; our own writers find the newest version all the same."""
    lance.dataset(table.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=False)
    assert [each["version"] for each in lance.dataset(table.uri).versions()] == [5]
    table = conroi.open_table(table.uri).append([{"n": 6}])
    clean(table, keep=1)
    assert numbers(conroi.open_table(table.uri)) == [1, 2, 3, 4, 5, 6]


def test_what_we_collected_does_not_disturb_pylances_cleanup(table: conroi.Table) -> None:
    table = table.compact()
    clean(table, keep=2)
    table = conroi.open_table(table.uri).append([{"n": 6}])
    lance.dataset(table.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=False)
    assert sorted(column_values(lance.dataset(table.uri).to_table()["n"])) == [1, 2, 3, 4, 5, 6]
    assert conroi.open_table(table.uri).append([{"n": 7}]).count_rows() == 7


def test_a_lake_reads_by_path_and_by_time_afterwards(lake: conroi.Lake) -> None:
    lake["t"].delete("n = 2")
    make_older(lake.uri, hours=24 * 30)
    lake.expire(keep=2, dry_run=False)
    lake.gc(dry_run=False)
    uri = conroi.connect(lake.uri)["t"].uri
    rows = [lance.dataset(uri, version=each["version"]).count_rows() for each in lance.dataset(uri).versions()]
    assert rows == [5, 4]
