"""Which versions go, and which stay."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest

import conroi
from tests.maintenance.conftest import numbers
from tests.support.aging import files_below, make_older

pytestmark = pytest.mark.contract("M2")


def versions_by_pylance(uri: str) -> list[int]:
    return [each["version"] for each in lance.dataset(uri).versions()]


def test_by_default_nothing_is_deleted(table: conroi.Table) -> None:
    make_older(table.uri, hours=24 * 30)
    before = files_below(table.uri)
    report = table.expire(keep=1)
    assert (report.removed, report.kept, report.is_dry_run) == ((1, 2, 3, 4), (5,), True)
    assert files_below(table.uri) == before


def test_old_versions_go_and_the_newest_stay(table: conroi.Table) -> None:
    make_older(table.uri, hours=24 * 8)
    report = table.expire("7d", keep=2, dry_run=False)
    assert (report.removed, report.kept) == ((1, 2, 3), (4, 5))
    assert versions_by_pylance(table.uri) == [4, 5]
    assert numbers(table.at(4)) == [1, 2, 3, 4]
    with pytest.raises(conroi.NotFoundError):
        table.at(3)


def test_the_version_of_seven_days_ago_is_still_there(table: conroi.Table) -> None:
    """Versions 1 to 4 are old, but 4 was the newest until a moment ago."""
    make_older(table.uri, hours=24 * 30)
    table.append([{"n": 6}])
    report = table.expire(timedelta(days=7), keep=1, dry_run=False)
    assert (report.removed, report.kept) == ((1, 2, 3, 4), (5, 6))


def test_tagged_versions_stay(table: conroi.Table) -> None:
    table.tags.create("first", 1)
    lance.dataset(table.uri).tags.create("third", 3)
    make_older(table.uri, hours=24 * 30)
    assert table.expire(keep=1, dry_run=False).kept == (1, 3, 5)
    assert numbers(table.at(tag="first")) == [1]
    assert lance.dataset(table.uri, version="third").count_rows() == 3


def test_a_version_at_which_a_branch_of_pylance_began_stays(table: conroi.Table) -> None:
    lance.dataset(table.uri, version=2).create_branch("dev")
    make_older(table.uri, hours=24 * 30)
    assert table.expire(keep=1, dry_run=False).kept == (2, 5)


def test_young_versions_stay_whatever_is_asked(table: conroi.Table) -> None:
    assert table.expire("0s", keep=1, dry_run=False).removed == ()


def test_it_can_be_done_again(table: conroi.Table) -> None:
    make_older(table.uri, hours=24 * 30)
    first = table.expire(keep=1, dry_run=False)
    again = table.expire(keep=1, dry_run=False)
    assert (len(first.removed), again.removed, again.kept) == (4, (), (5,))


def test_writing_goes_on_after_it(table: conroi.Table) -> None:
    make_older(table.uri, hours=24 * 30)
    table.expire(keep=1, dry_run=False)
    assert conroi.open_table(table.uri).append([{"n": 6}]).version == 6
    lance.write_dataset(conroi.open_table(table.uri).to_arrow(), table.uri, mode="append")
    assert conroi.open_table(table.uri).delete("n = 1").version == 8


@pytest.mark.parametrize(
    ("arguments", "named"),
    [({"older_than": "a week"}, "older_than"), ({"older_than": "-1d"}, "older_than"), ({"keep": 0}, "keep")],
)
def test_nonsense_is_refused(table: conroi.Table, arguments: dict[str, object], named: str) -> None:
    with pytest.raises(conroi.InvalidInputError, match=named) as raised:
        table.expire(**arguments)  # type: ignore[arg-type]
    assert raised.value.hint


def test_a_table_of_a_lake_says_that_the_lake_does_it(lake: conroi.Lake) -> None:
    for verb in (lake["t"].expire, lake["t"].gc):
        with pytest.raises(conroi.InvalidInputError) as raised:
            verb()
        assert "lake." in str(raised.value.hint)


# ------------------------------------------------------------------------------ lakes


def test_versions_of_tables_go_with_the_versions_of_the_lake(lake: conroi.Lake) -> None:
    lake.create_table("still", [{"n": 0}])
    make_older(lake.uri, hours=24 * 30)
    dry = lake.expire(keep=2)
    done = lake.expire(keep=2, dry_run=False)
    assert dry.removed == done.removed == (1, 2, 3, 4, 5)
    assert dry.tables == done.tables == {"t": (1, 2, 3, 4)}
    assert done.kept == (6, 7)
    assert versions_by_pylance(lake["t"].uri) == [5]
    assert versions_by_pylance(lake["still"].uri) == [1], "the kept versions of the lake have it"
    assert numbers(conroi.connect(lake.uri).at(version=6)["t"]) == [1, 2, 3, 4, 5]


def test_what_a_tagged_version_of_the_lake_pins_stays(lake: conroi.Lake) -> None:
    lake.tags.create("early", 3)
    make_older(lake.uri, hours=24 * 30)
    report = lake.expire(keep=1, dry_run=False)
    assert (report.kept, report.tables) == ((3, 6), {"t": (1, 3, 4)})
    assert numbers(conroi.connect(lake.uri).at(tag="early")["t"]) == [1, 2]


def test_what_a_branch_of_the_lake_needs_stays(lake: conroi.Lake) -> None:
    lake.branches.create("dev", 4)
    lake.branch("dev")["t"].append([{"n": 100}])
    make_older(lake.uri, hours=24 * 30)
    report = lake.expire(keep=1, dry_run=False)
    assert (report.kept, report.tables) == ((4, 6), {"t": (1, 2, 4)})
    fresh = conroi.connect(lake.uri)
    assert numbers(fresh.branch("dev")["t"]) == [1, 2, 3, 100]
    assert numbers(fresh.at(version=4)["t"]) == [1, 2, 3]


def test_what_was_written_past_the_lake_stays(lake: conroi.Lake) -> None:
    """It is not adopted yet, so only its folder has it."""
    lance.write_dataset(lake["t"].to_arrow().slice(0, 1), lake["t"].uri, mode="append")
    make_older(lake.uri, hours=24 * 30)
    lake.expire(keep=1, dry_run=False)
    assert versions_by_pylance(lake["t"].uri) == [5, 6]
    assert lake["t"].append([{"n": 7}]).version == 7, "adopted, and written on top of"


def test_a_published_version_that_is_not_final_stays(lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its publisher died: the lake names the staged manifest, and that must still be there."""
    with monkeypatch.context() as patch:
        patch.setattr("conroi.catalog.participant.Participant._finalized", lambda self: None)
        lake["t"].append([{"n": 6}])
    staged = [path for path in files_below(lake.uri) if ".manifest-" in path]
    assert len(staged) == 1
    make_older(lake.uri, hours=24 * 30)
    lake.expire(keep=1, dry_run=False)
    lake.gc(dry_run=False)
    assert numbers(conroi.connect(lake.uri)["t"]) == [1, 2, 3, 4, 5, 6]


def test_a_lake_at_a_version_cannot_be_cleaned(lake: conroi.Lake) -> None:
    past: Any = lake.at(version=3)
    for verb in (past.expire, past.gc):
        with pytest.raises(conroi.InvalidInputError):
            verb()


def test_a_report_can_be_read(lake: conroi.Lake) -> None:
    make_older(lake.uri, hours=24 * 30)
    text = str(lake.expire(keep=2))
    assert text.startswith("4 versions would be expired, 2 kept: 1-4\n  t: 1-3\n")
    assert "dry run" in text


@pytest.mark.contract("M2")
@pytest.mark.parametrize("key", ["lance.auto_cleanup.interval", "lance.auto_cleanup.older_than"])
def test_a_table_of_a_lake_may_not_clean_itself(lake: conroi.Lake, key: str) -> None:
    with pytest.raises(conroi.InvalidInputError, match="delete its old versions"):
        lake["t"].set_config({key: "1"})
    with pytest.raises(conroi.InvalidInputError, match="delete its old versions"):
        lake.create_table("u", [{"n": 1}], config={key: "1"})
    assert "u" not in lake


def test_a_table_that_came_with_it_can_be_rid_of_it(lake: conroi.Lake, tmp_path: Path) -> None:
    uri = str(Path(lake.uri) / "own.lance")
    options = {"interval": 20, "older_than_seconds": 3600}
    lance.write_dataset(lake["t"].to_arrow(), uri, auto_cleanup_options=options)  # type: ignore[arg-type]
    lake.register("own", "own.lance")
    keys = [key for key in lance.dataset(uri).config() if "auto_cleanup" in key]
    with pytest.raises(conroi.InvalidInputError, match="delete its old versions"):
        lake["own"].append([{"n": 1}])
    lake["own"].set_config(dict.fromkeys(keys))
    assert lake["own"].append([{"n": 1}]).count_rows() == 6
