from __future__ import annotations

import pytest

import conroi
from conroi.cli.session import Address, parsed
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("typed", "place", "at"),
    [
        ("lake", "lake", None),
        ("./lake", "./lake", None),
        ("lake@41", "lake", "41"),
        ("lake@dev@5", "lake", "dev@5"),
        ("s3://bucket/lake@q3", "s3://bucket/lake", "q3"),
        ("lake/orders@7", "lake/orders", "7"),
        ("lake@41/orders", "lake@41/orders", None),
        ("@41", "", "41"),
        ("", "", None),
        ("a@b/lake", "a@b/lake", None),
    ],
)
def test_the_version_stands_after_the_last_part(typed: str, place: str, at: str | None) -> None:
    assert parsed(typed) == Address(place, at)


@pytest.mark.parametrize(
    ("typed", "lake", "name"),
    [
        ("lake/orders", Address("lake"), "orders"),
        ("lake@41/orders", Address("lake", "41"), "orders"),
        ("s3://bucket/lake/sales.orders", Address("s3://bucket/lake"), "sales.orders"),
        ("s3://bucket", None, "bucket"),
        ("lake", None, "lake"),
    ],
)
def test_the_last_part_may_be_a_table(typed: str, lake: Address | None, name: str) -> None:
    assert parsed(typed).parent == lake
    assert parsed(typed).name == name


def test_versions_are_numbers_tags_branches_and_moments(cli: Run, lake: conroi.Lake) -> None:
    lake.tags.create("first", 2)
    lake["orders"].tags.create("whole", 1)
    lake.branches.create("dev")
    lake.branch("dev")["orders"].delete("id < 5")
    assert cli("count", "lake@first/orders").out == "10\n"
    assert cli("count", "lake/orders@whole").out == "10\n"
    assert cli("count", "lake@dev/orders").out == "5\n"
    assert cli("count", "lake@dev@4/orders").out == "9\n"
    assert cli("count", "lake@2999-01-01T00:00:00+00:00/orders").out == "9\n"
    missing = cli("count", "lake@nope/orders")
    assert missing.code == 1
    assert "no version called 'nope'" in missing.err


def test_a_table_may_be_named_by_its_folder(cli: Run, lake: conroi.Lake) -> None:
    assert cli("count", "lake/orders.lance").out == "9\n"


def test_the_default_lake_may_be_left_out(cli: Run, lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONROI_LAKE", "lake")
    assert cli("tables", "--names").out == "orders\nsales.customers\n"
    assert cli("count", "orders").out == "9\n"
    assert cli("count", "orders@1").out == "10\n"
    assert cli("show", "@2", "--json").json["version"] == 2
    assert cli("sql", "SELECT count(*) AS n FROM orders", "--json").rows == [{"n": 9}]
    assert cli("count", "./lake/orders").out == "9\n"
    assert cli("tag", "create", "q3").out == "q3 names version 4.\n"
    assert "CONROI_LAKE is set" in cli("count", "./elsewhere/orders").err


def test_without_a_lake_it_is_wrong_usage(cli: Run) -> None:
    ran = cli("tables")
    assert ran.code == 2
    assert "CONROI_LAKE" in ran.err


def test_a_table_where_a_lake_is_wanted_and_the_other_way_round(cli: Run, lake: conroi.Lake) -> None:
    assert cli("tables", "lake/orders").code == 2
    assert cli("head", "lake").code == 2
