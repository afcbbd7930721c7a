"""What a terminal shows: it fits, and colours are only there where one looks at it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
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
    lake.branches.create("dev")
    lake.tags.create("a-tag-" * 12)
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
    ("tag", "list", "lake"),
    ("log", "lake"),
    ("log", "lake", "--graph"),
    ("schema", "lake/wide"),
    ("merge", "lake", "dev", "--dry-run"),
    ("locks", "lake"),
    ("count", "lake/wide"),
    ("drop", "lake/wide"),
    ("diff", "lake/orders", "1", "2"),
    ("explain-conflict", "lake/orders"),
]
LONG = "a_name_that_is_longer_than_a_line_" * 3


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


@pytest.fixture
def long(lake: conroi.Lake) -> conroi.Lake:
    """Long names, an author and a message."""
    lake.create_table(f"sales.{LONG}", pa.table({LONG: [1], "n": [1234567]}), key="n")
    with lake.begin("A message that goes on " * 8, author="ada") as tx:
        tx[f"sales.{LONG}"].append(pa.table({LONG: [2], "n": [1]}))
    lake.branches.create("dev")
    lake.branch("dev")["orders"].delete("id = 3")
    lake.tags.create("a-tag-" * 12)
    return lake


WHAT_MATTERS = [
    (("history", f"lake/sales.{LONG}"), "time"),
    (("log", "lake"), "time"),
    (("log", "lake", "--graph"), "time"),
    (("tag", "list", "lake"), "time"),
    (("branch", "list", "lake"), "time"),
    (("tables", "lake"), "name"),
    (("log", "lake"), "name"),
    (("log", "lake", "--graph"), "name"),
    (("show", "lake@6"), "name"),
    (("diff", "lake", "4", "6"), "name"),
    (("compact", "lake"), "name"),
    (("schema", f"lake/sales.{LONG}"), "name"),
]


@pytest.mark.contract("C4")
@pytest.mark.parametrize(("words", "what"), WHAT_MATTERS, ids=lambda each: each if isinstance(each, str) else each[0])
def test_what_matters_is_whole_at_80_columns(
    cli: Run, long: conroi.Lake, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], what: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = cli(*words)
    assert ran.code == 0, ran.err
    assert max(map(len, ran.out.splitlines())) <= 80 or ran.out.startswith("/")
    assert "…" not in ran.out
    if what == "time":
        assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", ran.out), ran.out
    else:
        lines = ran.out.splitlines()
        pieces = re.findall(r"[a-z_.]*_[a-z_.]*", ran.out)
        assert LONG in "".join(pieces), lines


@pytest.mark.contract("C4")
def test_a_wide_terminal_is_used(cli: Run, lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "x" * 150
    lake.create_table("texts", pa.table({"t": [text], "n": [1]}))
    monkeypatch.setenv("COLUMNS", "80")
    assert text not in cli("head", "lake/texts").out
    monkeypatch.setenv("COLUMNS", "200")
    assert text in cli("head", "lake/texts").out
    narrow = pa.table({f"c{n:02}": [n] for n in range(40)})
    lake.create_table("narrow", narrow)
    assert "c39" in cli("head", "lake/narrow").out
    monkeypatch.setenv("COLUMNS", "80")
    ran = cli("head", "lake/narrow")
    assert "c15" in ran.out.splitlines()[0]
    assert "more columns do not fit" in ran.err


@pytest.mark.contract("C4")
def test_numbers_are_never_cut(cli: Run, lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    big = 1234567890123456789
    lake.create_table("big", pa.table({"t": ["x" * 70], "a": [big], "b": [big + 1], "c": [big + 2]}))
    monkeypatch.setenv("COLUMNS", "80")
    out = cli("head", "lake/big").out
    assert all(str(big + n) in out for n in range(3))


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


@pytest.mark.contract("C7")
def test_a_load_shows_its_progress_on_a_terminal_alone(lake: conroi.Lake, tmp_path: Path, process: Run) -> None:
    (tmp_path / "new.csv").write_text("id,amount\n50,1\n")
    (tmp_path / "more.csv").write_text("id,amount\n51,1\n")
    assert "rows loaded" in on_a_terminal(tmp_path, "load", "lake/orders", "new.csv")
    ran = process("load", "lake/orders", "more.csv")
    assert ran.code == 0
    assert ran.err == ""


@pytest.mark.contract("C7")
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("compact", "lake", "--yes"), "compacting orders"),
        (("gc", "lake"), "folders looked at"),
        (("doctor", "lake"), "things checked"),
        (("copy", "lake/orders", "other"), "copying orders"),
        (("export", "lake/orders", "out.csv"), "rows written"),
        (("update", "lake/orders", "--set", "amount=1", "--where", "true", "--yes"), "changing orders"),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_long_work_shows_its_progress(
    lake: conroi.Lake,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: tuple[str, ...],
    shown: str,
) -> None:
    from conroi.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    drawn = {}
    for option in ("--quiet", "--json", "--debug"):
        capsys.readouterr()
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        assert main([*words, option]) in (0, 1)
        drawn[option] = capsys.readouterr().err
        (tmp_path / "out.csv").unlink(missing_ok=True)
        if "other" in lake:
            lake.drop_table("other")
    assert shown in drawn["--debug"]
    assert shown not in drawn["--quiet"]
    assert shown not in drawn["--json"]


@pytest.mark.contract("C7")
def test_quiet_leaves_out_remarks_and_keeps_errors(cli: Run, lake: conroi.Lake) -> None:
    assert cli("gc", "lake", "--quiet").err == ""
    assert cli("drop", "lake/orders").err != ""
    ran = cli("drop", "lake/orders", "-q")
    assert (ran.code, ran.err) == (0, "")
    assert "no table" in cli("drop", "lake/nope", "-q").err


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
