"""A dry run says which files would go."""

from __future__ import annotations

from pathlib import Path

import pytest

import conroi
from conroi.display import to_html
from conroi.display.pages import collected_page, expired_page
from tests.support.aging import files_below, make_older

pytestmark = pytest.mark.contract("M10")
OLD = 24 * 30


def test_gc_of_a_table(table: conroi.Table) -> None:
    table.compact()
    make_older(table.uri, hours=OLD)
    table.expire(keep=1, dry_run=False)
    dry = table.gc()
    before = files_below(table.uri)
    done = table.gc(dry_run=False)
    gone = before - files_below(table.uri)
    for report in (dry, done):
        assert {path for each in report.garbage for path in each.paths} == gone
        assert len(report.paths) == report.files == len(gone)
    assert all(path in str(dry) for path in dry.paths)
    assert not any(path in str(done) for path in done.paths)
    assert "data/" in to_html(collected_page(dry))


def test_expire_of_a_lake(lake: conroi.Lake) -> None:
    make_older(lake.uri, hours=OLD)
    dry = lake.expire(keep=1)
    before = files_below(lake.uri)
    done = lake.expire(keep=1, dry_run=False)
    gone = before - files_below(lake.uri)
    assert set(dry.paths) == set(done.paths) == gone
    assert {path.partition("/")[0] for path in gone} == {"__manifest", "t.lance"}
    assert next(iter(dry.paths)) in str(dry)
    assert "_versions/" in to_html(expired_page(dry))


def test_many_paths_are_cut_where_they_are_shown(table: conroi.Table) -> None:
    for number in range(30):
        (Path(table.uri) / "data" / f"{number:04d}.lance").write_bytes(b"x")
    make_older(table.uri, hours=OLD)
    dry = table.gc()
    assert len(dry.paths) == 30
    assert "and 10 more" in str(dry)
    assert len(repr(dry)) < 500
