from __future__ import annotations

import pytest

import conroi
from conroi.cli.graph import Node, draw
from conroi.lake_history import lake_changes
from tests.cli.conftest import Run


def test_the_log_says_who_when_why_and_what(cli: Run, lake: conroi.Lake) -> None:
    lines = cli("log", "lake").out.splitlines()
    assert lines[0].startswith("version 4  20")
    assert lines[0].endswith("Z  create sales.customers")
    assert lines[1].split() == ["sales.customers", "created", "1", "+2"]
    assert lines[2].endswith("Z  ada  no free orders")
    assert lines[3].split() == ["orders", "Delete", "1", "→", "2", "−1"]
    assert lines[5].split() == ["orders", "created", "1", "+10"]


def test_the_log_as_json_lines_with_a_limit(cli: Run, lake: conroi.Lake) -> None:
    rows = cli("log", "lake", "-n", 2, "--json").rows
    assert [row["version"] for row in rows] == [4, 3]
    assert (rows[1]["author"], rows[1]["message"]) == ("ada", "no free orders")
    assert rows[1]["tables"][0]["rows_removed"] == 1
    assert len(cli("log", "lake", "--json").rows) == 4


def test_the_log_says_what_was_rebased_over_what(cli: Run, lake: conroi.Lake) -> None:
    first, second, third = (lake.begin(word) for word in ("first", "second", "third"))
    first["orders"].delete("id = 1")
    second["orders"].delete("id = 2")
    third["orders"].append([{"id": 90, "amount": 1.0}])
    for transaction in (first, second, third):
        transaction.commit()
    newest = {row["message"]: row["tables"][0]["rebased_over"] for row in cli("log", "lake", "-n", 3, "--json").rows}
    assert newest == {"first": [], "second": [3], "third": [3, 4]}
    assert "rebased over 3, 4" in cli("log", "lake").out


def test_what_a_version_did_is_told_for_every_kind_of_change(lake: conroi.Lake) -> None:
    lake["orders"].compact(sort_by="amount")
    lake["orders"].update({"amount": "1"}, where="id < 4")
    lake.rename_table("orders", "sold")
    lake.drop_table("sales.customers")
    lake.create_namespace("empty")
    told = [[(t.name, t.what, t.rows_added, t.rows_removed) for t in change.tables] for change in lake_changes(lake, 5)]
    assert told == [
        [],
        [("sales.customers", "dropped", 0, 0)],
        [("sold", "renamed from orders", 0, 0)],
        [("orders", "Update", 3, 3)],
        [("orders", "Rewrite", 0, 0)],
    ]


def test_a_table_that_was_made_again_under_its_name_is_a_new_one(lake: conroi.Lake) -> None:
    with lake.begin("again") as tx:
        tx.drop_table("orders")
        tx.create_table("orders", [{"x": 1}])
    (change,) = lake_changes(lake, 1)[0].tables
    assert (change.what, change.before, change.rows_added, change.rows_removed) == ("created", None, 1, 0)


def test_the_graph_draws_branches_and_merges(cli: Run, lake: conroi.Lake) -> None:
    lake.tags.create("start")
    lake.branches.create("dev")
    lake.branch("dev")["orders"].append([{"id": 50, "amount": 1.0}], message="on dev")
    lake["orders"].append([{"id": 60, "amount": 1.0}], message="on main")
    lake.merge("dev", message="together")
    lines = [line for line in cli("log", "lake", "--graph").out.splitlines() if "version" in line or line[-1] in "\\/"]
    assert [line.partition("version")[0] for line in lines[:5]] == ["* ", "|\\", "* | ", "| * ", "|/"]
    assert lines[0].endswith("together  (main)")
    assert "version dev@5" in lines[3]
    assert lines[3].endswith("(dev)")
    assert lines[5].endswith("(tag start)")


def test_a_graph_of_three_lines() -> None:
    nodes = [Node("m", ["b", "d"]), Node("d", ["a"]), Node("x", ["a"]), Node("b", ["a"]), Node("a", [])]
    drawn = list(draw(nodes))
    assert [line.mark for line in drawn] == ["*", "| *", "| | *", "* | |", "*"]
    assert drawn[0].after == ("|\\",)
    assert drawn[4].above == ("| |/", "|/")


def test_history_of_a_table(cli: Run, lake: conroi.Lake) -> None:
    lines = cli("history", "lake/orders").out.splitlines()
    assert lines[0].split() == ["version", "time", "operation", "rows", "writer", "message"]
    assert "Delete" in lines[1]
    rows = cli("history", "lake/orders", "--json").rows
    assert [(row["version"], row["operation"], row["rows"]) for row in rows] == [(2, "Delete", 9), (1, "Overwrite", 10)]
    assert len(cli("history", "lake/orders", "-n", 1, "--json").rows) == 1


def test_diff_names_tables_rows_columns_and_keys(cli: Run, lake: conroi.Lake) -> None:
    lake["orders"].add_columns({"tax": "amount * 0.2"})
    text = cli("diff", "lake", 2, 5).out
    assert text.startswith("main@2 → main@5\n")
    assert "sales.customers  added" in text
    assert "− id=0" in text
    assert "+ column tax double" in text
    found = {table["name"]: table for table in cli("diff", "lake", 2, 5, "--json").json["tables"]}
    assert found["orders"]["rows"]["deleted"] == 1
    assert found["sales.customers"]["kind"] == "added"
    assert "There is no difference." in cli("diff", "lake", 5, 5).out


def test_restore_makes_a_past_version_the_newest(cli: Run, lake: conroi.Lake) -> None:
    assert cli("restore", "lake/orders", 1).out == "orders is at version 3, which is version 1 again.\n"
    assert lake["orders"].count_rows() == 10
    found = cli("restore", "lake/orders", 2, "--json", "-m", "back").json
    assert found == {"name": "orders", "restored": 2, "version": 4, "rows": 9}
    assert lake.history(limit=1)[0].message == "back"
    assert cli("restore", "lake/orders").code == 2
    assert cli("restore", "lake/orders", 99).code == 1


@pytest.mark.parametrize("words", [("diff", "lake", "1"), ("diff", "lake", "1", "2", "3")])
def test_a_diff_wants_two_versions(cli: Run, lake: conroi.Lake, words: tuple[str, ...]) -> None:
    assert cli(*words).code == 2
