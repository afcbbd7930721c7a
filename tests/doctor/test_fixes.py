"""What doctor fixes is right afterwards, by the lake and by pylance; what it does not fix stays as it was."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import conroi
from tests.doctor import damage
from tests.doctor.damage import LIST, ORDERS, examine, files_of, kinds

pytestmark = pytest.mark.contract("M4")

NEW = {"id": 900, "text": "by path"}
BEFORE = {n for n in range(200) if n % 10 != 3}
"""The ids of the table `orders` in the healthy lake."""


def ids(rows: pa.Table) -> set[int]:
    found: list[Any] = rows["id"].to_pylist()
    assert len(set(found)) == len(found)
    return set(found)


def ids_in_lake(lake: Path) -> set[int]:
    return ids(conroi.connect(str(lake))["orders"].to_arrow())


def ids_by_pylance(lake: Path) -> set[int]:
    return ids(lance.dataset(str(lake / ORDERS)).to_table())


def assert_fixed(lake: Path, kind: str) -> None:
    """Fixed once, found no more, and the table still takes rows."""
    diagnosis = examine(lake, fix=True)
    assert [(each.kind, each.fixed) for each in diagnosis.findings if each.is_fixable] == [(kind, True)], str(diagnosis)
    assert diagnosis.is_healthy
    assert f"{kind}" in str(diagnosis)
    assert "Fixed." in str(diagnosis)
    again = examine(lake, fix=True)
    assert kinds(again) <= {"clock-ahead"}, str(again)
    conroi.connect(str(lake))["orders"].append([{"id": 1000, "text": "after"}])
    assert 1000 in ids_by_pylance(lake) & ids_in_lake(lake)


def test_an_unfinished_publication_is_finished(lake: Path) -> None:
    damage.unfinish(lake, "orders")
    assert lance.dataset(str(lake / ORDERS)).version == 4, "pylance does not see it"
    assert examine(lake, fix=True).of_kind("unfinished-publication")[0].fixed
    assert lance.dataset(str(lake / ORDERS)).version == 5
    assert ids_by_pylance(lake) == ids_in_lake(lake) == BEFORE


def test_a_forked_table_has_both_changes(lake: Path) -> None:
    damage.fork(lake, "orders", [NEW])
    assert_fixed(lake, "forked-table")
    assert ids_by_pylance(lake) == ids_in_lake(lake) == BEFORE | {900, 1000}


def test_a_fork_that_cannot_be_repaired_says_why_and_stays(lake: Path) -> None:
    staged = damage.unfinish(lake, "orders")
    lance.write_dataset(pa.table({"id": [7], "text": ["all"]}), str(lake / ORDERS), mode="overwrite")
    before = files_of(lake)
    (finding,) = examine(lake, fix=True).of_kind("forked-table")
    assert not finding.fixed
    assert "replaced all rows" in finding.what
    assert "discard=True" in finding.hint
    assert staged.exists()
    assert files_of(lake) == before


def test_a_commit_by_path_is_taken_over(lake: Path) -> None:
    damage.append_by_path(lake / ORDERS, [NEW])
    damage.append_by_path(lake / ORDERS, [{"id": 901, "text": "by path"}])
    assert ids_in_lake(lake) == BEFORE
    assert_fixed(lake, "foreign-commit")
    assert ids_by_pylance(lake) == ids_in_lake(lake) == BEFORE | {900, 901, 1000}


def test_a_commit_by_path_that_breaks_the_key_is_named_and_not_taken_over(lake: Path) -> None:
    damage.append_by_path(lake / ORDERS, [{"id": 5, "text": "twice"}])
    diagnosis = examine(lake, fix=True)
    (finding,) = diagnosis.of_kind("foreign-commit")
    assert not finding.fixed
    assert ids_in_lake(lake) == BEFORE


def test_tables_without_a_lock_id_get_one(lake: Path) -> None:
    for name in ("guest", "visitor"):
        lance.write_dataset(pa.table({"n": [1]}), str(lake / f"{name}.lance"))
        conroi.connect(str(lake)).register(name, f"{name}.lance")
    diagnosis = examine(lake, fix=True)
    assert [each.table for each in diagnosis.of_kind("lock-id-missing") if each.fixed] == ["guest", "visitor"]
    assert damage.row_of(lake, "guest").lock not in (None, damage.row_of(lake, "visitor").lock)
    assert "lock-id-missing" not in kinds(examine(lake))


def test_a_wrong_hint_is_written_again(lake: Path) -> None:
    hint = lake / LIST / "_versions" / "latest_version_hint.json"
    hint.write_text("garbage")
    examine(lake, fix=True)
    assert json.loads(hint.read_text())["version"] == max(damage.manifests(lake / LIST))
    assert "wrong-hint" not in kinds(examine(lake))


def test_without_fix_nothing_changes(lake: Path) -> None:
    damage.fork(lake, "orders", [NEW])
    os.truncate(lake / LIST / "_versions" / "latest_version_hint.json", 3)
    before = files_of(lake)
    diagnosis = examine(lake)
    assert kinds(diagnosis) >= {"forked-table", "wrong-hint"}
    assert not any(each.fixed for each in diagnosis.findings)
    assert files_of(lake) == before
