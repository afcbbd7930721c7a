"""What a terminal shows: it fits, and colours are only there where one looks at it."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

import conroi
from conroi.cli.output import narrowed
from tests.cli.conftest import ENTRY_POINT, Run


@pytest.fixture
def wide(lake: conroi.Lake) -> conroi.Lake:
    """A table that is wider than any screen, and a long message."""
    columns = {f"column_{n:02}": pa.array([f"value {n} " * 4] * 2) for n in range(12)}
    lake.create_table("wide", pa.table(columns), message="A message that goes on " * 8)
    return lake


SCREENS = [
    ("tables", "lake"),
    ("show", "lake"),
    ("show", "lake/wide"),
    ("show", "lake@3"),
    ("head", "lake/wide"),
    ("history", "lake/wide"),
    ("diff", "lake", "2", "5"),
    ("doctor", "lake"),
    ("compact", "lake"),
    ("sql", "lake", "SELECT * FROM wide"),
    ("explain-conflict", "lake/orders", "--mine", "update", "--since", "1"),
    ("expire", "lake", "--older-than", "60s"),
    ("gc", "lake"),
    ("branch", "list", "lake"),
]


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("words", SCREENS, ids=lambda words: " ".join(words[:2]))
def test_every_table_fits_the_screen(
    cli: Run, wide: conroi.Lake, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    ran = cli(*words)
    assert ran.code == 0
    for line in ran.out.splitlines():
        is_title = line.startswith("/")  # the title, with a path of the machine, is never cut
        assert len(line) <= columns or is_title, line
        assert line == line.rstrip()


def test_what_goes_into_a_file_is_not_cut(cli: Run, wide: conroi.Lake) -> None:
    lines = cli("head", "lake/wide", "-n", 1).out.splitlines()
    assert "column_11" in lines[0]
    assert "value 11 value 11 value 11 value 11" in lines[1]
    assert "…" not in lines[1]


def on_a_terminal(folder: Path, *words: str, **environment: str) -> str:
    """What the command writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    settings = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **environment}
    running = subprocess.Popen(
        [str(ENTRY_POINT), *words], cwd=folder, env=settings, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL
    )
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 4096):
            said += part
    except OSError:  # what a terminal says when the other side is gone
        pass
    os.close(ours)
    assert running.wait(60) == 0
    return said.decode()


def test_colours_only_on_a_terminal_that_wants_them(lake: conroi.Lake, tmp_path: Path, process: Run) -> None:
    assert "\x1b[1m" in on_a_terminal(tmp_path, "tables", "lake")
    assert "\x1b[3" not in on_a_terminal(tmp_path, "tables", "lake", NO_COLOR="1")
    assert "\x1b" not in process("tables", "lake").out


def test_a_load_shows_its_progress_on_a_terminal_alone(lake: conroi.Lake, tmp_path: Path, process: Run) -> None:
    (tmp_path / "new.csv").write_text("id,amount\n50,1\n")
    (tmp_path / "more.csv").write_text("id,amount\n51,1\n")
    assert "rows loaded" in on_a_terminal(tmp_path, "load", "lake/orders", "new.csv")
    ran = process("load", "lake/orders", "more.csv")
    assert ran.code == 0
    assert ran.err == ""


def test_columns_that_cannot_be_read_are_named_instead(
    cli: Run, wide: conroi.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = cli("head", "lake/wide")
    assert "column_05" in ran.out
    assert ran.err.startswith("6 more columns do not fit: column_06, column_07,")
    assert len(cli("head", "lake/wide", "--json").rows[0]) == 12


@pytest.mark.parametrize(
    ("widths", "available", "fitting"),
    [
        ([3, 5, 9], 80, [3, 5, 9]),
        ([30, 50, 0], 70, [30, 40, 0]),
        ([3, 50, 60], 60, [3, 37, 20]),
        ([30, 20, 60], 80, [30, 20, 30]),
        ([30, 20, 60], 60, [20, 20, 20]),
        ([40, 5, 60], 60, [35, 5, 20]),
        ([5, 5, 5], 6, [2, 2, 2]),
        ([5, 5, 5], 1, [1, 1, 1]),
    ],
)
def test_sentences_give_way_and_then_the_widest_columns(widths: list[int], available: int, fitting: list[int]) -> None:
    assert narrowed(widths, available, [False, False, True]) == fitting
