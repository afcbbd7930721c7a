from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import conroi
from conroi.versions.retention import other_ages
from tests.cli.conftest import Run


def test_compact_changes_nothing_without_yes(cli: Run, lake: conroi.Lake) -> None:
    lake["orders"].append([{"id": 50, "amount": 1.0}])
    ran = cli("compact", "lake")
    assert "orders" in ran.out
    assert "--yes" in ran.err
    assert lake.version == 5
    found = cli("compact", "lake/orders", "--yes", "--json").json
    (orders,) = found["tables"]
    assert (orders["fragments_before"], orders["fragments"], orders["deleted_rows"]) == (2, 1, 0)
    assert lake["orders"].count_rows() == 10
    assert lake.history(limit=1)[0].message == "compact orders"


def test_compact_puts_rows_in_order(cli: Run, lake: conroi.Lake) -> None:
    lake["orders"].append([{"id": 50, "amount": -1.0}])
    assert cli("compact", "lake/orders", "--sort-by", "amount", "--yes").code == 0
    assert lake["orders"].to_arrow(limit=1)["id"].to_pylist() == [50]


def test_doctor_says_that_a_lake_is_healthy(cli: Run, lake: conroi.Lake) -> None:
    ran = cli("doctor", "lake")
    assert ran.code == 0
    assert ran.out.startswith("Healthy.")
    assert "pylance" in ran.out
    found = cli("doctor", "lake", "--json").json
    assert found["is_healthy"] is True
    assert found["checked"]["tables"] == 2


def test_doctor_names_a_missing_file_and_ends_with_1(cli: Run, lake: conroi.Lake, tmp_path: Path) -> None:
    (data,) = (tmp_path / "lake" / "orders.lance" / "data").glob("*.lance")
    data.unlink()
    ran = cli("doctor", "lake")
    assert ran.code == 1
    assert ran.out.startswith("Not healthy.")
    assert "missing-data-file" in ran.out
    found = cli("doctor", "lake", "--json")
    assert found.code == 1
    assert {each["kind"] for each in found.json["findings"] if each["severity"] == "error"} == {"missing-data-file"}


def test_doctor_looks_at_a_lake_that_cannot_be_opened(cli: Run, lake: conroi.Lake, tmp_path: Path) -> None:
    newest = min((tmp_path / "lake" / "__manifest" / "_versions").glob("*.manifest"))
    newest.write_bytes(b"damaged")
    assert cli("tables", "lake").code == 1
    ran = cli("doctor", "lake", "--json")
    assert ran.code == 1
    assert not ran.json["is_healthy"]


def test_mend_leaves_a_table_that_is_fine_as_it_is(cli: Run, lake: conroi.Lake) -> None:
    assert cli("mend", "lake/orders").out == "orders is fine, at version 2.\n"
    assert cli("mend", "lake/orders", "--json").json == {"name": "orders", "before": 2, "version": 2, "rows": 9}


def test_locks_says_who_holds_them(cli: Run, lake: conroi.Lake) -> None:
    assert cli("locks", "lake").out == "No insert lock is held or waited for.\n"
    lake.set_locks("file")
    with lake.insert_lock("orders"):
        (held,) = cli("locks", "lake", "--json").json
        assert (held["table"], held["is_waiting"]) == ("orders", False)
        assert cli("locks", "lake").out.splitlines()[1].split()[:2] == ["orders", "holds"]


@pytest.fixture
def no_wait() -> Iterator[None]:
    """Versions and files may go at once."""
    with other_ages(0, 0):
        yield


@pytest.mark.usefixtures("no_wait")
def test_expire_says_what_it_would_forget_and_forgets_it_with_yes(cli: Run, lake: conroi.Lake) -> None:
    lake.tags.create("kept", 2)
    would = cli("expire", "lake", "--older-than", "0s", "--keep", 1, "--json").json
    assert (would["done"], would["removed"], would["kept"]) == (False, [1, 3], [2, 4])
    assert "2 versions of the lake would be expired" in cli("expire", "lake", "--older-than", "0s", "--keep", 1).out
    assert lake.at(version=3).version == 3
    ran = cli("expire", "lake", "--older-than", "0s", "--keep", 1, "--yes")
    assert "2 versions of the lake expired, 2 kept" in ran.out
    assert cli("show", "lake@3").code == 1
    assert cli("count", "lake@kept/orders").out == "10\n"
    assert cli("expire", "lake", "--older-than", "soon").code == 1


@pytest.mark.usefixtures("no_wait")
def test_gc_says_what_it_would_delete_and_deletes_it_with_yes(cli: Run, lake: conroi.Lake, tmp_path: Path) -> None:
    stray = tmp_path / "lake" / "orders.lance" / "data" / "stray.lance"
    stray.write_bytes(b"x" * 1000)
    assert cli("gc", "lake", "--json").json["files"] == 0  # too young
    would = cli("gc", "lake", "--min-age", "0s", "--json").json
    assert {"table": "orders", "kind": "data", "files": 1, "bytes": 1000} in would["garbage"]
    assert "--yes" in cli("gc", "lake", "--min-age", "0s").err
    assert stray.exists()
    ran = cli("gc", "lake", "--min-age", "0s", "--yes")
    assert ran.code == 0, ran.err
    assert not stray.exists()
    assert cli("count", "lake/orders").out == "9\n"
