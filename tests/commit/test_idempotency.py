"""`table.begin(idempotency_key=…)`: asked for twice, done once, whatever happened in between."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lance
import pytest

import conroi
from conroi.format.on_disk import IDEMPOTENCY_DIR
from conroi.storage import open_objects
from conroi.testing import CountingObjects
from tests.support.arrow import column_values
from tests.support.instruments import table_on


@pytest.fixture
def table(tmp_path: Path) -> conroi.Table:
    return conroi.create_table(tmp_path / "t.lance", [{"id": 0}], key="id")


def ids(table: conroi.Table) -> list[int]:
    return sorted(column_values(lance.dataset(table.uri).to_table()["id"]))


def add(table: conroi.Table, number: int, key: str | None) -> Any:
    with table.begin(idempotency_key=key) as tx:
        tx.append([{"id": number}])
    return tx.result


def notes(table: conroi.Table) -> list[Path]:
    return [path for path in (Path(table.uri) / IDEMPOTENCY_DIR).rglob("*") if path.is_file()]


@pytest.mark.contract("S5")
def test_what_was_committed_under_a_key_is_not_done_again(table: conroi.Table):
    first = add(table, 1, "a")
    assert (first.version, first.was_done_before) == (2, False)
    add(table, 2, "b")
    with table.begin(idempotency_key="a") as tx:
        assert tx.is_done
        tx.append([{"id": 1}])
        tx.delete("true")
    assert (tx.result.version, tx.result.was_done_before) == (2, True)
    assert ids(table) == [0, 1, 2]
    with pytest.raises(conroi.DuplicateKeyError):  # the control: without the key it is done again
        add(table, 1, None)


@pytest.mark.contract("S5")
def test_of_two_concurrent_transactions_with_one_key_one_commits(table: conroi.Table):
    one, other = table.begin(idempotency_key="a"), table.begin(idempotency_key="a")
    one.append([{"id": 1}])
    other.append([{"id": 1}])
    first, second = one.commit(), other.commit()
    assert (first.version, first.was_done_before) == (2, False)
    assert (second.version, second.was_done_before) == (2, True)
    assert (table.latest().version, ids(table)) == (2, [0, 1])


@pytest.mark.contract("S5")
def test_a_note_of_a_commit_that_never_landed_means_nothing(table: conroi.Table):
    add(table, 1, None)
    add(table, 3, "a")
    (note,) = notes(table)
    note.unlink()
    note.with_name("2").write_bytes(b"{}")  # as if this key had been tried as version 2, which became another's,
    note.with_name("9").write_bytes(b"{}")  # as version 9, which does not exist yet,
    note.with_name(".tmp_conroi_0_1_2").write_bytes(b"")  # and as if a writer died while it wrote a note
    assert table.begin(idempotency_key="a").is_done is False


@pytest.mark.contract("S5")
def test_a_crash_right_after_the_put_is_found_by_the_version_itself(table: conroi.Table):
    add(table, 1, "a")
    (note,) = notes(table)
    note.write_bytes(b"{}")  # what was there before the put
    assert add(table, 1, "a").was_done_before
    assert ids(table) == [0, 1]


@pytest.mark.contract("S5")
def test_a_key_outlives_its_version_and_says_so_if_it_cannot(table: conroi.Table):
    add(table, 1, "a")
    (note,) = notes(table)
    add(table, 2, None)
    second = sorted(os.listdir(Path(table.uri) / "_versions"))[1]  # newest first
    (Path(table.uri) / "_versions" / second).unlink()
    assert add(table, 1, "a").was_done_before
    note.write_bytes(b"{}")
    with pytest.raises(conroi.CommitStateUnknown, match="was tried as version 2, and that version was collected"):
        add(table, 1, "a")
    assert ids(table) == [0, 1, 2]


def test_the_note_of_a_key_has_a_name_that_every_version_of_conroi_finds(table: conroi.Table):
    add(table, 1, "a")
    (note,) = notes(table)
    assert note.relative_to(table.uri).as_posix() == f"{IDEMPOTENCY_DIR}/ca978112ca1bbdcafac231b39a23dc4da786eff8/2"


@pytest.mark.contract("S5")
def test_a_key_costs_the_same_whatever_the_history(table: conroi.Table):
    requests: list[int] = []
    for versions, key in [(0, "early"), (60, "late")]:
        for _ in range(versions):
            table = table.reserve_fragments(1)
        for _ in range(2):  # done, and found done
            counted = CountingObjects(open_objects(table.uri))
            with counted.measure() as counts, table_on(counted).begin(idempotency_key=key) as tx:
                tx.append([{"id": versions + 1}])
            requests.append(counts.requests())
    assert requests[:2] == requests[2:]


def test_a_table_of_a_lake_leaves_keys_to_the_lake(tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    orders = lake.create_table("orders", [{"id": 1}])
    with pytest.raises(conroi.InvalidInputError, match="belongs to a lake") as refused:
        orders.begin(idempotency_key="a")
    assert "lake.begin" in str(refused.value.hint)
