"""Tables that compact themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import lance
import pytest

import conroi
from conroi.maintenance.auto_compaction import MESSAGE
from tests.support.arrow import column_values
from tests.support.together import Meet, together

pytestmark = pytest.mark.contract("M1")

LIMIT = 8


def fragments(table: conroi.Table) -> list[int]:
    return [fragment.physical_rows for fragment in lance.dataset(table.uri).get_fragments()]


def auto(uri: str | Path, limit: int = LIMIT) -> conroi.Table:
    return conroi.create_table(str(uri), [{"n": 0}], config={"conroi.auto_compact": str(limit)})


def test_small_appends_are_merged(tmp_path: Path) -> None:
    table = auto(tmp_path / "t")
    for number in range(1, 100):
        table = table.append([{"n": number}])
    sizes = [fragment.physical_rows for fragment in lance.dataset(table.uri).get_fragments()]
    assert len(sizes) <= 3 * LIMIT, sizes
    assert sorted(column_values(lance.dataset(table.uri).to_table()["n"])) == list(range(100))


def test_each_row_is_written_again_a_few_times_only(tmp_path: Path) -> None:
    """Not the whole table each time: what was merged is left alone until there are as many of its size."""
    table = auto(tmp_path / "t", limit=4)
    for number in range(1, 128):
        table = table.append([{"n": number}])
    written = 0
    for version in range(2, table.latest().version + 1):
        files = {
            file.path
            for part in lance.dataset(table.uri, version=version).get_fragments()
            for file in part.data_files()
        }
        older = lance.dataset(table.uri, version=version - 1)
        known = {file.path for part in older.get_fragments() for file in part.data_files()}
        new = [
            part
            for part in lance.dataset(table.uri, version=version).get_fragments()
            if not known & {file.path for file in part.data_files()}
        ]
        written += sum(part.physical_rows for part in new) if files - known else 0
    assert written <= 128 * 5, "once when it came, and once for each step: 4, 16, 64, 256"


def test_without_the_setting_nothing_is_merged(tmp_path: Path) -> None:
    table = conroi.create_table(str(tmp_path / "t"), [{"n": 0}])
    for number in range(1, 30):
        table = table.append([{"n": number}])
    assert len(fragments(table)) == 30


def test_the_verb_returns_the_version_that_it_made(tmp_path: Path) -> None:
    table = auto(tmp_path / "t", limit=2)
    made = [table.version]
    for number in range(1, 8):
        table = table.append([{"n": number}])
        assert table.history()[0].operation == "Append"
        made.append(table.version)
    assert table.latest().version > table.version - 1
    assert made == sorted(set(made))


@pytest.mark.parametrize("where", ["lake verb", "lake transaction", "table transaction"])
def test_it_works_however_one_writes(where: str, tmp_path: Path) -> None:
    if where == "table transaction":
        table = auto(tmp_path / "t")
        for number in range(1, 30):
            with table.begin() as tx:
                tx.append([{"n": number}])
        assert len(fragments(table)) < 20
        return
    lake = conroi.connect(str(tmp_path / "lake"))
    lake.create_table("t", [{"n": 0}], config={"conroi.auto_compact": str(LIMIT)})
    for number in range(1, 30):
        if where == "lake verb":
            lake["t"].append([{"n": number}])
        else:
            with lake.begin() as tx:
                tx["t"].append([{"n": number}])
    assert len(fragments(lake["t"])) < 20
    assert lake["t"].count_rows() == 30


def test_a_failing_compaction_never_fails_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise conroi.StoreError("the disk is full")

    monkeypatch.setattr("conroi.maintenance.auto_compaction.compact", fails)
    table = auto(tmp_path / "t", limit=2)
    for number in range(1, 10):
        table = table.append([{"n": number}])
    assert (table.version, table.count_rows()) == (10, 10)


@pytest.mark.parametrize("bad", ["", "0", "1", "-3", "many", "3.5"])
def test_a_setting_that_makes_no_sense_is_refused(bad: str, tmp_path: Path) -> None:
    table = conroi.create_table(str(tmp_path / "t"), [{"n": 0}])
    with pytest.raises(conroi.InvalidInputError, match="auto_compact"):
        table.set_config({"conroi.auto_compact": bad})
    with pytest.raises(conroi.InvalidInputError, match="auto_compact"):
        auto_with(tmp_path / "u", bad)


def auto_with(uri: Path, limit: str) -> conroi.Table:
    return conroi.create_table(str(uri), [{"n": 0}], config={"conroi.auto_compact": limit})


def test_it_can_be_switched_on_and_off(tmp_path: Path) -> None:
    table = conroi.create_table(str(tmp_path / "t"), [{"n": 0}]).set_config({"conroi.auto_compact": "2"})
    for number in range(1, 7):
        table = table.append([{"n": number}])
    assert len(fragments(table)) < 7
    table = table.set_config({"conroi.auto_compact": None})
    before = len(fragments(table))
    for number in range(7, 13):
        table = table.append([{"n": number}])
    assert len(fragments(table)) == before + 6


@dataclass(frozen=True)
class Job:
    uri: str
    number: int
    appends: int


def append(job: Job, meet: Meet) -> int:
    table = conroi.open_table(job.uri)
    meet()
    for step in range(job.appends):
        table = table.append([{"n": job.number * 1000 + step}])
    return job.appends


def test_eight_writers_do_not_all_compact_at_once(tmp_path: Path) -> None:
    table = auto(tmp_path / "t", limit=16)
    together(append, [Job(table.uri, number, 16) for number in range(1, 9)])
    fresh = conroi.open_table(table.uri)
    rows = column_values(fresh.to_arrow()["n"])
    assert sorted(rows) == sorted([0, *(writer * 1000 + step for writer in range(1, 9) for step in range(16))])
    operations = Counter(commit.operation for commit in fresh.history() if commit.message == MESSAGE)
    assert 1 <= operations["Rewrite"] <= 128 // 16 + 1, "one for each time that the number was stepped over"
    assert len(fragments(fresh)) <= 4 * 16
