"""Names that other software wrote: a terminal, a notebook and a log see escapes, and nothing fails of them."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import conroi
from conroi.catalog.participant import PublishRequest
from conroi.catalog.publication import Publishing
from conroi.catalog.state import CommitMetadata
from conroi.cli import main
from conroi.errors import visible

ESCAPE = "\x1b[2J\x1b]0;owned\x07"
ODD = f"t{ESCAPE}\u202e\x9b31m"


@pytest.fixture
def lake(tmp_path: Path) -> conroi.Lake:
    """A lake with a table whose name steers a terminal, as only other software can write it."""
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("plain", pa.table({"id": [1], f"c{ESCAPE}": ["x\x1b[31m"]}))
    lake.create_table("t", [{"id": 1}], message=f"made {ESCAPE}")
    state = lake.catalog.state()
    row = state.table("t")
    assert row is not None
    rows = {ODD: replace(row, object_id=ODD), "t": None}
    Publishing(lake.catalog, PublishRequest(state, rows=rows, notes=CommitMetadata("rename", ESCAPE))).run()
    return conroi.connect(lake.uri)


@pytest.mark.contract("U7")
@pytest.mark.parametrize(
    "command",
    ["tables", "tables --names", "show", "log", "doctor", "diff 1 3", "log --json", "tables --json", "show --json"],
)
def test_the_command_line_shows_control_characters_as_escapes(
    lake: conroi.Lake, command: str, capsys: pytest.CaptureFixture[str]
):
    """D10: they went to the terminal as they were, and one odd name made `conroi tables` fail."""
    verb, *rest = command.split()
    main_code = main([verb, lake.uri, *rest])
    said = capsys.readouterr()
    assert main_code in (0, 1)
    for text in (said.out, said.err):
        assert not set(text) & {"\x1b", "\x07", "\u202e", "\x9b"}, text
    if verb != "doctor":
        assert main_code == 0, said.err
    if "--json" in rest:
        assert [json.loads(line) for line in said.out.splitlines()] if verb == "log" else json.loads(said.out)


@pytest.mark.contract("U7")
def test_an_odd_table_is_shown_read_and_renamed(lake: conroi.Lake):
    assert ODD in lake.tables()
    assert lake[ODD].count_rows() == 1
    assert "\\x1b" in lake._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert "\x1b" not in lake._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert "\x1b" not in lake["plain"]._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert lake.rename_table(ODD, "tame").count_rows() == 1
    assert lake.tables() == ["plain", "tame"]


@pytest.mark.contract("U7")
def test_errors_show_control_characters_as_escapes():
    error = conroi.NotFoundError(f"There is no {ESCAPE}.", table=f"a\nb{ESCAPE}", hint="x\ud800\r")
    assert str(error) == (
        "There is no \\x1b[2J\\x1b]0;owned\\x07. [table a\\nb\\x1b[2J\\x1b]0;owned\\x07] Hint: x\\ud800\\r"
    )
    assert visible("größe\n\tx") == "größe\n\tx"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.contract("U7")
def test_an_odd_argument_of_the_command_line_is_shown_escaped(lake: conroi.Lake, capsys: pytest.CaptureFixture[str]):
    assert main(["head", f"{lake.uri}/no\x1b[2Jtable"]) != 0
    said = capsys.readouterr()
    assert "\x1b" not in said.err + said.out
