"""`lake.branches`: a branch is a lake of its own, and main does not see it."""

from __future__ import annotations

import os

import pytest

import conroi
from tests.branches.conftest import numbers, texts


@pytest.mark.contract("B1")
def test_what_happens_on_a_branch_stays_there(lake: conroi.Lake, dev: conroi.Lake) -> None:
    with dev.begin("both") as tx:
        tx["orders"].append([{"id": 4, "n": 40}])
        tx["log"].delete("text = 'a'")
    dev["orders"].update({"n": "0"}, where="id = 1")
    lake["orders"].delete("id = 3")

    assert numbers(dev) == {1: 0, 2: 20, 3: 30, 4: 40}
    assert texts(dev) == ["b"]
    assert numbers(lake) == {1: 10, 2: 20}
    assert texts(lake) == ["a", "b"]


@pytest.mark.contract("B1")
def test_a_branch_copies_no_data_and_forks_a_table_only_when_it_is_written(lake: conroi.Lake, dev: conroi.Lake) -> None:
    def folders() -> set[str]:
        return {
            name
            for name in ("orders", "log")
            if os.path.exists(f"{lake.uri.removeprefix('file://')}/{name}.lance/tree")
        }

    assert numbers(dev) == {1: 10, 2: 20, 3: 30}
    assert dev["log"].count_rows() == 2
    assert folders() == set(), "who only reads writes nothing"

    dev["orders"].delete("id = 1")

    assert folders() == {"orders"}
    files = [file for _, _, names in os.walk(f"{dev['orders'].uri}") for file in names if file.endswith(".lance")]
    assert files == [], "a delete on the branch takes no copy of the rows"


def test_all_verbs_work_on_a_branch(lake: conroi.Lake, dev: conroi.Lake) -> None:
    table = dev["orders"]
    table.append([{"id": 4, "n": 40}])
    table.merge(
        [{"id": 4, "n": 41}, {"id": 5, "n": 50}], on="id"
    ).when_matched_update_all().when_not_matched_insert_all().execute()
    table.create_index("id")
    table.add_columns({"double": "n * 2"})
    table.rename_columns({"double": "twice"})
    table.update({"n": "n + 1"}, where="id = 2", mode="columns")
    table.delete("id = 3")
    table.compact()
    table.set_config({"owner": "ada"})
    table.replace_column_data({"n": "n * 10"})

    rows = {row["id"]: (row["n"], row["twice"]) for row in dev["orders"].to_arrow().to_pylist()}
    assert rows == {1: (100, 20), 2: (210, 40), 4: (410, 82), 5: (500, 100)}
    assert dev["orders"].to_arrow(filter="id = 2")["n"].to_pylist() == [210]
    table.restore(1)
    assert numbers(dev) == numbers(lake) == {1: 10, 2: 20, 3: 30}


def test_tables_are_made_dropped_and_renamed_on_a_branch(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev.create_table("parts.small", [{"id": 1}], key="id")
    dev.drop_table("log")
    dev.rename_table("orders", "sales")

    assert dev.tables() == ["parts.small", "sales"]
    assert lake.tables() == ["log", "orders"]
    assert dev.namespaces() == ["parts"]
    assert lake.namespaces() == []


def test_two_branches_may_make_a_table_of_one_name(lake: conroi.Lake, dev: conroi.Lake) -> None:
    lake.branches.create("other")
    other = lake.branch("other")
    for each, value in ((lake, 1), (dev, 2), (other, 3)):
        each.create_table("same", [{"id": 1, "n": value}], key="id")
    for each in (lake, dev, other):
        each["same"].append([{"id": 2, "n": 0}])

    assert [numbers(each, "same")[1] for each in (lake, dev, other)] == [1, 2, 3]
    assert len({each["same"].uri for each in (lake, dev, other)}) == 3


def test_a_branch_is_found_by_name_wherever_one_connects(lake: conroi.Lake, dev: conroi.Lake) -> None:
    with lake.begin("on dev", branch="dev") as tx:
        tx["orders"].append([{"id": 4, "n": 40}])

    assert conroi.connect(lake.uri, branch="dev")["orders"].count_rows() == 4
    assert conroi.open_table(f"{lake.uri}/orders.lance", branch="dev").count_rows() == 4
    assert conroi.open_table(f"{lake.uri}/orders.lance").count_rows() == 3
    by_path = conroi.open_table(dev["orders"].uri)  # a path inside a lake is that lake's table, on a branch too
    by_path.append([{"id": 5, "n": 50}])
    assert dev["orders"].count_rows() == 5
    assert dev.version == lake.version + 2
    assert dev.branch("main")["orders"].count_rows() == 3
    assert dev.branch_name == "dev"
    assert lake.branch_name == "main"
    assert "branch 'dev'" in repr(dev)


def test_a_branch_begins_at_a_version_a_tag_or_another_branch(lake: conroi.Lake, dev: conroi.Lake) -> None:
    lake["orders"].delete("id = 1")
    lake.tags.create("two")
    lake["orders"].delete("id = 2")
    dev["orders"].append([{"id": 9, "n": 90}])

    lake.branches.create("first", from_=2)
    lake.branches.create("tagged", from_="two")
    lake.branches.create("deeper", from_="dev")

    assert sorted(numbers(lake.branch("first"))) == [1, 2, 3]
    assert sorted(numbers(lake.branch("tagged"))) == [2, 3]
    deeper = lake.branch("deeper")
    deeper["orders"].delete("id = 1")
    assert sorted(numbers(deeper)) == [2, 3, 9]
    assert sorted(numbers(dev)) == [1, 2, 3, 9]
    assert [branch.name for branch in lake.branches] == ["main", "deeper", "dev", "first", "tagged"]
    assert lake.branches.get("deeper").parent == lake.branches.get("dev").id


def test_the_past_of_a_branch_goes_back_to_before_it_was_made(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev["orders"].append([{"id": 4, "n": 40}], message="four")
    dev["orders"].delete("id = 1")
    lake.branches.create("deeper", from_="dev")
    deeper = lake.branch("deeper")
    deeper["orders"].append([{"id": 5, "n": 50}])

    assert [commit.message for commit in deeper.history()][-2:] == ["two tables", None]
    assert [commit.version for commit in deeper.history()] == [5, 4, 3, 2, 1]
    assert sorted(numbers(deeper.at(version=2))) == [1, 2, 3]
    assert sorted(numbers(deeper.at(version=3))) == [1, 2, 3, 4]
    assert [commit.operation for commit in deeper["orders"].history()] == ["Append", "Delete", "Append", "Overwrite"]
    assert deeper["orders"].at(version=1).count_rows() == 3
    assert lake.version == 2


def test_an_idempotency_key_from_before_the_branch_counts_on_it(lake: conroi.Lake) -> None:
    with lake.begin(idempotency_key="batch 7") as tx:
        tx["orders"].append([{"id": 4, "n": 40}])
    lake.branches.create("dev")

    with lake.begin(branch="dev", idempotency_key="batch 7") as tx:
        tx["orders"].append([{"id": 4, "n": 40}])

    assert tx.result.was_done_before
    assert lake.branch("dev")["orders"].count_rows() == 4


def test_renaming_a_branch_changes_only_its_name(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev["orders"].append([{"id": 4, "n": 40}])
    before = lake.branches.get("dev")

    after = lake.branches.rename("dev", "next")

    assert (after.id, after.lance_name) == (before.id, before.lance_name)
    assert [branch.name for branch in lake.branches] == ["main", "next"]
    dev["orders"].append([{"id": 5, "n": 50}])
    assert sorted(numbers(lake.branch("next"))) == [1, 2, 3, 4, 5]
    lake.branches.create("dev")
    assert sorted(numbers(lake.branch("dev"))) == [1, 2, 3]


@pytest.mark.parametrize("name", ["", "a/b", "..", "-x", ".x", "x.lock", "x" * 101, "ä", "a b"])
def test_names_that_cannot_be(lake: conroi.Lake, name: str) -> None:
    with pytest.raises(conroi.InvalidInputError):
        lake.branches.create(name)


def test_what_is_asked_wrongly_is_refused_with_a_hint(lake: conroi.Lake, dev: conroi.Lake) -> None:
    with pytest.raises(conroi.AlreadyExistsError):
        lake.branches.create("dev")
    for name in ("main", "dev"):
        with pytest.raises(conroi.AlreadyExistsError):
            lake.branches.rename("dev", name)
    with pytest.raises(conroi.InvalidInputError):
        lake.branches.delete("main")
    with pytest.raises(conroi.NotFoundError, match="no branch 'nope'") as missing:
        lake.branch("nope")
    assert "dev" in str(missing.value.hint)
    with pytest.raises(conroi.NotFoundError):
        lake.branches.create("x", from_="nope")
    with pytest.raises(conroi.NotFoundError):
        lake.branches.create("x", from_=99)
    with pytest.raises(conroi.NotFoundError):
        conroi.open_table(f"{lake.uri}/nothing.lance", branch="dev")


def test_a_lake_with_a_store_says_that_it_has_no_branches(tmp_path: os.PathLike[str]) -> None:
    lake = conroi.connect(f"{tmp_path}/lake", store=f"sqlite:///{tmp_path}/lake.db")
    for ask in (lambda: lake.branches, lambda: lake.tags, lambda: lake.branch("dev"), lambda: lake.diff("a", "b")):
        with pytest.raises(conroi.UnsupportedError, match="no branches"):
            ask()


def test_a_registered_table_is_written_on_a_branch(lake: conroi.Lake) -> None:
    import lance
    import pyarrow as pa

    lance.write_dataset(pa.table({"id": [1]}), f"{lake.uri}/foreign.lance")
    lake.register("foreign", "foreign.lance")
    lake.branches.create("dev")
    dev = lake.branch("dev")

    assert dev["foreign"].append([{"id": 2}]).count_rows() == 2
    assert lance.dataset(f"{lake.uri}/foreign.lance").count_rows() == 1
    lake["foreign"].append([{"id": 2}])
    lake.branches.create("later")
    assert lake.branch("later")["foreign"].append([{"id": 3}]).count_rows() == 3
