"""However a table came to a branch, every handle reads the same rows of it: now, and at every version of the branch.

Rows are written by hand in each way. `plain` has a key; `rich` also has an index and a column of dictionaries, for
which pylance reads the file of the manifest again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import lance
import pyarrow as pa
import pytest

import conroi
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("B12", "B13")

Kind = Literal["plain", "rich"]
NAMES = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}


@dataclass
class Case:
    """A lake in the making, with the branch that is looked at and what must be on it."""

    kind: Kind
    lake: conroi.Lake
    before: dict[str, conroi.Lake] = field(default_factory=dict[str, conroi.Lake])
    """Branches, opened as soon as they were made; they do all the work, too."""
    branch: str = "dev"
    table: str = "t"
    states: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """By version of the branch: the ids that the table has."""

    @property
    def on(self) -> conroi.Lake:
        return self.before[self.branch]

    def rows(self, *ids: int) -> pa.Table:
        plain = pa.table({"id": pa.array(ids, pa.int64())})
        if self.kind == "plain":
            return plain
        return plain.append_column("name", pa.array([NAMES[each] for each in ids], pa.string()).dictionary_encode())

    def make(self, lake: conroi.Lake, name: str, *ids: int) -> None:
        table = lake.create_table(name, self.rows(*ids), key="id")
        if self.kind == "rich":
            table.create_index("id", "BTREE")

    def create(self, name: str, from_: str | None = None) -> conroi.Lake:
        self.lake.branches.create(name, from_=from_)
        self.before[name] = self.lake.branch(name)
        self.before[f"{name} at first"] = conroi.connect(self.lake.uri, branch=name)
        return self.before[name]

    def note(self, *ids: int) -> None:
        """This is what the table has now."""
        self.states[self.on.version] = list(ids)


def inherited(case: Case) -> None:
    case.create("dev")
    case.note(1)
    case.lake["t"].append(case.rows(2))


def written(case: Case) -> None:
    dev = case.create("dev")
    case.note(1)
    dev["t"].append(case.rows(2))
    case.note(1, 2)
    case.lake["t"].append(case.rows(3))


def made_on_the_branch(case: Case) -> None:
    dev = case.create("dev")
    case.table = "new"
    case.make(dev, "new", 1, 2)
    case.note(1, 2)
    dev["new"].append(case.rows(3))
    case.note(1, 2, 3)


def on_a_branch_of_a_branch(case: Case) -> None:
    case.create("dev")["t"].append(case.rows(2))
    case.branch = "n"
    case.create("n", "dev")
    case.note(1, 2)
    case.before["dev"]["t"].append(case.rows(3))


def written_on_three_levels(case: Case) -> None:
    case.create("dev")["t"].append(case.rows(2))
    case.create("n", "dev")["t"].append(case.rows(3))
    case.branch = "m"
    m = case.create("m", "n")
    case.note(1, 2, 3)
    m["t"].delete("id = 1")
    case.note(2, 3)
    case.before["n"]["t"].append(case.rows(4))


def made_on_a_branch_and_inherited(case: Case) -> None:
    dev = case.create("dev")
    case.table, case.branch = "new", "n"
    case.make(dev, "new", 1)
    n = case.create("n", "dev")
    case.note(1)
    dev["new"].append(case.rows(2))
    n["new"].append(case.rows(3))
    case.note(1, 3)


def forwarded(case: Case) -> None:
    dev = case.create("dev")
    case.note(1)
    case.lake["t"].append(case.rows(2))
    dev.merge("main")
    case.note(1, 2)


def forwarded_after_reading_and_then_written(case: Case) -> None:
    dev = case.create("dev")
    case.note(1)
    assert dev["t"].count_rows("id = 1") == 1
    case.lake["t"].append(case.rows(2))
    case.lake["t"].append(case.rows(3))
    dev.merge("main")
    case.note(1, 2, 3)
    dev["t"].delete("id = 2")
    case.note(1, 3)


def forwarded_onto_its_own_line(case: Case) -> None:
    dev = case.create("dev")
    dev["t"].append(case.rows(2))
    case.note(1, 2)
    case.lake.merge("dev")
    case.lake["t"].append(case.rows(3))
    dev.merge("main")
    case.note(1, 2, 3)


def another_line_of_the_same_numbers(case: Case) -> None:
    dev = case.create("dev")
    dev["t"].append(case.rows(2))
    dev["t"].append(case.rows(3))
    case.lake.merge("dev")
    case.branch = "n"
    n = case.create("n", "dev")
    case.note(1, 2, 3)
    assert n["t"].count_rows("id = 2") == 1
    case.lake["t"].append(case.rows(4))
    n.merge("main")
    case.note(1, 2, 3, 4)
    n["t"].append(case.rows(5))
    case.note(1, 2, 3, 4, 5)


def dropped_and_brought_back(case: Case) -> None:
    dev = case.create("dev")
    case.note(1)
    dev["t"].append(case.rows(2))
    case.note(1, 2)
    dev.drop_table("t")
    case.lake["t"].append(case.rows(3))
    dev.merge("main", prefer="source")
    case.note(1, 3)
    dev["t"].append(case.rows(4))
    case.note(1, 3, 4)


def came_with_a_merge(case: Case) -> None:
    dev = case.create("dev")
    case.table = "new"
    case.make(case.lake, "new", 1)
    dev.merge("main")
    case.note(1)
    dev["new"].append(case.rows(2))
    case.note(1, 2)
    case.lake["new"].append(case.rows(3))


def brought_from_another_branch(case: Case) -> None:
    dev, other = case.create("dev"), case.create("other")
    case.table = "new"
    case.make(other, "new", 1)
    other["new"].append(case.rows(2))
    dev.merge("other")
    case.note(1, 2)
    case.lake.branches.delete("other")
    dev["new"].append(case.rows(3))
    case.note(1, 2, 3)


def merged_row_by_row(case: Case) -> None:
    dev = case.create("dev")
    dev["t"].append(case.rows(2))
    case.note(1, 2)
    case.lake["t"].append(case.rows(3))
    dev.merge("main")
    case.note(1, 2, 3)


def renamed_on_main(case: Case) -> None:
    case.lake.rename_table("t", "u")
    dev = case.create("dev")
    case.table = "u"
    case.note(1)
    dev.rename_table("u", "v")
    dev.rename_table("v", "u")
    dev["u"].append(case.rows(2))
    case.note(1, 2)


def of_a_deleted_branch(case: Case) -> None:
    case.create("dev")["t"].append(case.rows(2))
    case.branch = "n"
    case.create("n", "dev")
    case.note(1, 2)
    case.lake.branches.delete("dev")


WAYS: list[Callable[[Case], None]] = [
    inherited,
    written,
    made_on_the_branch,
    on_a_branch_of_a_branch,
    written_on_three_levels,
    made_on_a_branch_and_inherited,
    forwarded,
    forwarded_after_reading_and_then_written,
    forwarded_onto_its_own_line,
    another_line_of_the_same_numbers,
    dropped_and_brought_back,
    came_with_a_merge,
    brought_from_another_branch,
    merged_row_by_row,
    renamed_on_main,
    of_a_deleted_branch,
]


@cache
def made(way: Callable[[Case], None], kind: Kind, uri: str | None = None) -> Case:
    """Made once for all handles: reading changes nothing."""
    case = Case(kind, conroi.connect(uri or f"memory://{uuid.uuid4().hex}"))
    case.make(case.lake, "t", 1)
    way(case)
    return case


def read(case: Case, table: Any) -> list[int]:
    """The ids; in a rich table they agree with the names, and the index finds each."""
    rows = table.to_arrow().to_pylist()
    ids = sorted(row["id"] for row in rows)
    if case.kind == "rich":
        assert all(row["name"] == NAMES[row["id"]] for row in rows)
        assert [table.count_rows(f"id = {each}") for each in range(1, 7)] == [int(each in ids) for each in range(1, 7)]
        assert list(table.indices) == ["id_idx"]
    return ids


def the_one_that_wrote(case: Case) -> conroi.Lake:
    return case.on


def one_opened_before(case: Case) -> conroi.Lake:
    return case.before[f"{case.branch} at first"]


def a_new_one(case: Case) -> conroi.Lake:
    return conroi.connect(case.lake.uri, branch=case.branch)


HANDLES: list[Callable[[Case], conroi.Lake]] = [the_one_that_wrote, one_opened_before, a_new_one]


@pytest.mark.parametrize("kind", ["plain", "rich"])
@pytest.mark.parametrize("handle", HANDLES, ids=lambda handle: handle.__name__)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_handle_reads_the_same(
    way: Callable[[Case], None], handle: Callable[[Case], conroi.Lake], kind: Kind
) -> None:
    case = made(way, kind)
    opened = handle(case)
    newest = case.states[max(case.states)]
    assert read(case, opened[case.table]) == newest
    for version, ids in case.states.items():
        assert read(case, opened.at(version)[case.table]) == ids, f"version {version}"
    assert read(case, opened[case.table]) == newest, "reading the past changes nothing"
    with opened.begin() as tx:
        assert sorted(column_values(tx[case.table].to_arrow()["id"])) == newest


@pytest.mark.parametrize("kind", ["plain", "rich"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_pylance_reads_the_same_by_path(way: Callable[[Case], None], kind: Kind) -> None:
    """Every version that is in the branch's own folder; one that was never written there is read where it is."""
    case = made(way, kind)
    for version, ids in case.states.items():
        table = case.on.at(version)[case.table]
        if (Path(table.uri) / "_versions").exists() and table.version in {
            each["version"] for each in lance.dataset(table.uri).versions()
        }:
            theirs = lance.dataset(table.uri, version=table.version)
            assert sorted(column_values(theirs.to_table()["id"])) == ids
            assert sorted(column_values(theirs.to_table(filter="id > 1")["id"])) == [each for each in ids if each > 1]
        else:
            assert kind == "plain", "what pylance reads again is in the branch's own folder"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_doctor_finds_nothing(way: Callable[[Case], None]) -> None:
    case = made(way, "rich")
    found = case.lake.doctor(deep=True).findings
    assert [each for each in found if each.severity in ("error", "warning")] == []


@pytest.mark.parametrize("kind", ["plain", "rich"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_lake_that_was_moved_reads_and_writes_the_same(
    way: Callable[[Case], None], kind: Kind, tmp_path: Path
) -> None:
    """Base paths are absolute in Lance; ours are found again. pylance reads the table after the next commit."""
    case = made(way, kind, str(tmp_path / "lake"))
    (tmp_path / "lake").rename(tmp_path / "elsewhere")
    opened = conroi.connect(tmp_path / "elsewhere", branch=case.branch)
    newest = case.states[max(case.states)]
    for version, ids in case.states.items():
        assert read(case, opened.at(version)[case.table]) == ids, f"version {version}"
    table = opened[case.table].append(case.rows(6))
    assert read(case, table) == [*newest, 6]
    assert read(case, conroi.connect(opened.uri, branch=case.branch)[case.table]) == [*newest, 6]
    assert sorted(column_values(lance.dataset(table.uri).to_table()["id"])) == [*newest, 6]
