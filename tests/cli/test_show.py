from __future__ import annotations

from pathlib import Path

import pytest

import conroi
from tests.cli.conftest import Run


def test_init_makes_a_lake_once(cli: Run, tmp_path: Path) -> None:
    assert cli("init", "new").out == f"Created a lake at {tmp_path}/new.\n"
    assert conroi.connect(tmp_path / "new").tables() == []
    assert cli("init", "new", "--json").json == {"uri": f"{tmp_path}/new", "version": 1, "created": False}


@pytest.mark.parametrize("verb", ["tables", "show", "log", "doctor"])
def test_looking_never_makes_a_lake(cli: Run, tmp_path: Path, verb: str) -> None:
    ran = cli(verb, "typo")
    assert ran.code == 1
    assert "There is no lake at typo." in ran.err
    assert not (tmp_path / "typo").exists()


def test_tables_are_listed_with_versions_and_rows(cli: Run, lake: conroi.Lake) -> None:
    lines = cli("tables", "lake").out.splitlines()
    assert lines[0].split() == ["table", "version", "rows", "size", "key"]
    assert lines[1].split()[:3] == ["orders", "2", "9"]
    assert lines[1].endswith("id")
    assert lines[2].split()[:3] == ["sales.customers", "1", "2"]


def test_tables_as_json_of_an_older_version(cli: Run, lake: conroi.Lake) -> None:
    found = cli("tables", "lake@2", "--json").json
    assert found["version"] == 2
    (orders,) = found["tables"]
    assert (orders["name"], orders["version"], orders["rows"], orders["key"]) == ("orders", 1, 10, ["id"])


def test_tables_by_name_alone_and_by_namespace(cli: Run, lake: conroi.Lake) -> None:
    assert cli("tables", "lake", "--names").out == "orders\nsales.customers\n"
    assert cli("tables", "lake", "--names", "--namespace", "sales").out == "sales.customers\n"


def test_a_version_is_shown_with_what_it_changed(cli: Run, lake: conroi.Lake) -> None:
    text = cli("show", "lake@3").out
    assert "version 3  20" in text
    assert "ada  no free orders" in text
    assert "orders  Delete  1 → 2    −1" in text
    found = cli("show", "lake@3", "--json").json
    assert found["author"] == "ada"
    assert found["changed"][0] == {
        "name": "orders",
        "what": "Delete",
        "before": 1,
        "version": 2,
        "rows_added": 0,
        "rows_removed": 1,
        "rebased_over": [],
    }


def test_a_table_is_shown_with_its_columns(cli: Run, lake: conroi.Lake) -> None:
    text = cli("show", "lake/orders").out
    assert "9 rows in 1 fragment" in text
    assert "1 deleted row not yet compacted" in text
    found = cli("show", "lake/orders", "--json").json
    assert found["columns"][0] == {"name": "id", "type": "int64", "is_nullable": False, "is_key": True}
    assert (found["rows"], found["deleted_rows"]) == (9, 1)
    assert cli("show", "lake/orders@1", "--json").json["rows"] == 10


def test_schema_lists_columns_types_and_the_key(cli: Run, lake: conroi.Lake) -> None:
    lines = cli("schema", "lake/orders").out.splitlines()
    assert lines[1].split() == ["id", "int64", "not", "null", "key"]
    assert lines[2].split() == ["amount", "double"]
    found = cli("schema", "lake/orders", "--json").json
    assert [column["name"] for column in found["columns"]] == ["id", "amount"]


def test_head_shows_rows_and_says_them_as_json_lines(cli: Run, lake: conroi.Lake) -> None:
    assert cli("head", "lake/orders", "-n", 2).out == "id  amount\n 1     0.5\n 2       1\n"
    assert cli("head", "lake/orders", "-n", 1, "--json").rows == [{"id": 1, "amount": 0.5}]
    chosen = cli("head", "lake@2/orders", "--where", "id < 1", "--columns", "amount", "--json")
    assert chosen.rows == [{"amount": 0.0}]
    assert cli("head", "lake/orders", "--where", "id > 99").out == "There are no rows.\n"


def test_count_counts_rows_by_condition_and_version(cli: Run, lake: conroi.Lake) -> None:
    assert cli("count", "lake/orders").out == "9\n"
    assert cli("count", "lake/orders", "--where", "amount > 2").out == "5\n"
    assert cli("count", "lake/orders@1", "--json").json == {"name": "orders", "version": 1, "rows": 10}


def test_values_that_would_steer_a_terminal_are_made_harmless(cli: Run, lake: conroi.Lake) -> None:
    lake.create_table("evil", [{"text": "a\x1b[31mred\nnext"}], message="m\x1b]0;title\x07")
    for words in (("head", "lake/evil"), ("log", "lake"), ("history", "lake/evil")):
        assert "\x1b" not in cli(*words).out
        assert "\x07" not in cli(*words).out
