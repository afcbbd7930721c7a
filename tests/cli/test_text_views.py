"""Facts as rows of text; the command line and notebooks show the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

import conroi
from conroi.cli.options import addresses
from conroi.display.grid import grid, to_html
from conroi.display.words import changed_rows, moment, number, plain, plural, size, value
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (123_456, "123 kB"), (5_300_000, "5.3 MB"), (None, "?")],
)
def test_sizes(count: int | None, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (None, "null"),
        (True, "True"),
        (1.5, "1.5"),
        (0.1 + 0.2, "0.3"),
        (12345678.9, "12345678.9"),
        ("a\nb\x1b[0m", "a b\\x1b[0m"),
        (b"\x00\x01", "0001 (2 B)"),
        ([1, 2], "[1, 2]"),
        (list(range(768)), "[0, 1, 2, 3, … 768]"),
        ({"a": [1], "b": None}, "{a: [1], b: null}"),
        ("x" * 100, "x" * 59 + "…"),
    ],
)
def test_values(item: object, text: str) -> None:
    assert value(item) == text


def test_words() -> None:
    assert moment(datetime(2026, 1, 2, 3, 4, 5, 999, tzinfo=timezone(timedelta(hours=2)))) == "2026-01-02 01:04:05Z"
    assert moment(datetime(2026, 1, 2, tzinfo=UTC)) == "2026-01-02 00:00:00Z"
    assert (moment(None), number(None), number(1234)) == ("", "?", "1,234")
    assert (plural(1, "row"), plural(2000, "row")) == ("1 row", "2,000 rows")
    assert (changed_rows(3, 1), changed_rows(0, 0), changed_rows(None, 0)) == ("+3 −1", "", "?")
    assert plain("a\r\n\tb\x9b31m") == "a   b\\x9b31m"


def test_html_escapes_everything() -> None:
    evil = "<script>alert('x')</script>"
    text = to_html(grid(f"{evil}|>n", [(evil, evil)], title=evil, lines=[evil]), grid("a", [], empty=evil))
    assert "<script" not in text
    assert text.count("&lt;script&gt;") == 6


def test_notebooks_show_what_the_command_line_shows(lake: conroi.Lake) -> None:
    evil = "<img src=x>"
    with lake.begin(evil, author=evil) as tx:
        tx["orders"].delete("id = 2")
    lake.branches.create("dev")
    lake.branch("dev")["orders"].delete("id = 3")
    shown = {
        "lake": (lake._repr_html_(), "2 tables"),
        "table": (lake["orders"]._repr_html_(), "int64"),
        "history of a lake": (lake.history()._repr_html_(), "&lt;img"),  # pyright: ignore
        "history of a table": (lake["orders"].history()._repr_html_(), "Delete"),  # pyright: ignore
        "diff": (lake.diff(2, 5)._repr_html_(), "id=2"),
        "merge": (lake.merge("dev", dry_run=True)._repr_html_(), "Would merge dev@6"),
        "diagnosis": (lake.doctor()._repr_html_(), "Healthy."),
        "expired": (lake.expire()._repr_html_(), "would be expired"),
        "collected": (lake.gc()._repr_html_(), "would be deleted"),
    }
    for name, (text, said) in shown.items():
        assert said in text, name
        assert "<img" not in text, name
        assert "<table>" in text or name in ("expired", "collected"), name


def test_history_is_still_a_list(lake: conroi.Lake) -> None:
    assert isinstance(lake.history(), list)
    assert [commit.version for commit in lake.history()[:2]] == [4, 3]


def test_tab_proposes_folders_lakes_tables_and_versions(
    cli: Run, lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("tables", "lake").code == 0  # in the folder of the lake
    lake.tags.create("q3")
    assert addresses("la") == ["lake"]
    assert addresses("lake/") == ["lake/orders", "lake/sales.customers"]
    assert addresses("lake/o") == ["lake/orders"]
    assert addresses("lake@") == ["lake@q3", "lake@4", "lake@3", "lake@2", "lake@1"]
    assert addresses("lake/orders@") == ["lake/orders@2", "lake/orders@1"]
    assert addresses("nowhere/at@") == []
    monkeypatch.setenv("CONROI_LAKE", "lake")
    assert "orders" in addresses("or")
