from __future__ import annotations

import conroi
from tests.cli.conftest import Run


def test_tags_are_created_listed_moved_and_deleted(cli: Run, lake: conroi.Lake) -> None:
    assert cli("tag", "list", "lake").out == "There are no tags.\n"
    assert cli("tag", "create", "lake", "q3", "--version", 2).out == "q3 names version 2.\n"
    assert cli("tag", "move", "lake", "q3").out == "q3 names now version 4.\n"
    (tag,) = cli("tag", "list", "lake", "--json").json
    assert (tag["name"], tag["version"]) == ("q3", 4)
    assert cli("tag", "list", "lake").out.splitlines()[1].split()[:2] == ["q3", "4"]
    assert cli("tag", "delete", "lake", "q3").out == "Deleted q3, which named version 4.\n"
    assert cli("tag", "delete", "lake", "q3").code == 1


def test_a_table_has_tags_of_its_own(cli: Run, lake: conroi.Lake) -> None:
    assert cli("tag", "create", "lake/orders", "whole", "--version", 1).code == 0
    assert lake["orders"].tags.get("whole").version == 1
    assert cli("tag", "list", "lake/orders", "--json").json[0]["name"] == "whole"


def test_branches_are_made_listed_renamed_and_deleted(cli: Run, lake: conroi.Lake) -> None:
    assert cli("branch", "create", "lake", "dev", "--from", 2).out.startswith("dev begins at version 2.")
    heading, main, dev = cli("branch", "list", "lake").out.splitlines()
    assert heading.split() == ["branch", "from", "created"]
    assert (main.split(), dev.split()[:2], len(dev.split())) == (["*", "main"], ["dev", "main@2"], 4)
    assert cli("branch", "rename", "lake", "dev", "next").code == 0
    names = [branch["name"] for branch in cli("branch", "list", "lake", "--json").json]
    assert names == ["main", "next"]
    assert cli("branch", "delete", "lake", "next").code == 0
    assert [branch.name for branch in lake.branches] == ["main"]


def test_a_branch_is_written_and_merged(cli: Run, lake: conroi.Lake) -> None:
    cli("branch", "create", "lake", "dev")
    with open("more.csv", "w") as file:
        file.write("id,amount\n50,1\n")
    assert cli("load", "lake@dev/orders", "more.csv").code == 0
    assert cli("count", "lake/orders").out == "9\n"
    assert "Would merge dev@5 into main@4" in cli("merge", "lake", "dev", "--dry-run").out
    assert cli("count", "lake/orders").out == "9\n"
    merged = cli("merge", "lake", "dev", "--json").json["tables"]
    assert [(table["table"], table["kind"], table["inserted"]) for table in merged] == [
        ("orders", "fast-forward", None)
    ]
    assert cli("count", "lake/orders").out == "10\n"


def test_a_merge_of_rows_counts_them(cli: Run, lake: conroi.Lake) -> None:
    lake.branches.create("dev")
    lake.branch("dev")["orders"].append([{"id": 50, "amount": 1.0}])
    lake["orders"].append([{"id": 51, "amount": 1.0}])
    (merged,) = cli("merge", "lake", "dev", "--json").json["tables"]
    assert (merged["kind"], merged["inserted"], merged["updated"], merged["deleted"]) == ("merged", 1, 0, 0)
    assert cli("count", "lake/orders").out == "11\n"


def test_a_merge_in_conflict_names_the_keys_and_ends_with_3(cli: Run, lake: conroi.Lake) -> None:
    lake.branches.create("dev")
    lake.branch("dev")["orders"].update({"amount": "100"}, where="id = 3")
    lake["orders"].update({"amount": "200"}, where="id = 3")
    for words in (("merge", "lake", "dev"), ("merge", "lake", "dev", "--dry-run")):
        ran = cli(*words)
        assert ran.code == 3
        assert "id=3" in ran.out
    failed = cli("merge", "lake", "dev", "--json")
    assert failed.code == 3
    assert failed.error["conflicts"][0]["key"] == {"id": 3}
    assert cli("merge", "lake", "dev", "--prefer", "neither").code == 2
    assert cli("merge", "lake", "dev", "--prefer", "source").code == 0
    assert lake["orders"].to_arrow(filter="id = 3")["amount"].to_pylist() == [100]
