"""Facts as text: sizes, values, moments, numbers of things; and as HTML."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from conroi.display import changed_rows, grid, moment, number, plain, plural, size, to_html, value


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (123_456, "123 kB"), (5_300_000, "5.3 MB"), (None, "?")],
)
def test_a_size_has_three_digits_and_a_unit(count: int | None, text: str) -> None:
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
def test_a_value_is_one_short_line(item: object, text: str) -> None:
    assert value(item) == text


def test_counts_moments_and_names_are_plain_words() -> None:
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
