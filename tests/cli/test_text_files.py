"""Text files with other delimiters and encodings, and numbers that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

import conroi
from tests.cli.conftest import Run

pytestmark = pytest.mark.contract("E13")


def test_a_semicolon_file_in_latin_1_with_leading_zeros(cli: Run, lake: conroi.Lake, tmp_path: Path) -> None:
    Path("people.csv").write_bytes("id;name;zip\n1;Müller;00123\n2;José;04567\n".encode("latin-1"))
    bad = cli("load", "lake/people", "people.csv", "--create")
    assert bad.code == 1
    assert "people.csv is not in the encoding utf-8, see line 2." in bad.err
    assert "--encoding latin-1" in bad.err
    ran = cli("load", "lake/people", "people.csv", "--create", "--encoding", "latin-1")
    assert ran.code == 0, ran.err
    assert "separated by ';'" in ran.err
    assert "zip kept as text" in ran.err
    assert lake["people"].to_arrow().to_pylist() == [
        {"id": 1, "name": "Müller", "zip": "00123"},
        {"id": 2, "name": "José", "zip": "04567"},
    ]


def test_delimiter_and_types_that_are_given_are_not_guessed(cli: Run, lake: conroi.Lake) -> None:
    Path("a.csv").write_text("id|zip\n1|007\n")
    options = ["--delimiter", "|", "--type", "zip=int32", "--type", "id=string"]
    ran = cli("load", "lake/a", "a.csv", "--create", *options)
    assert (ran.code, "kept as text" in ran.err) == (0, False), ran.err
    assert lake["a"].to_arrow().to_pylist() == [{"id": "1", "zip": 7}]
    assert str(lake["a"].schema.field("zip").type) == "int32"
    Path("b.csv").write_text("id\tzip\n2\t3\n")
    assert cli("load", "lake/a", "b.csv", "--delimiter", "tab").code == 0
    assert lake["a"].count_rows() == 2


@pytest.mark.parametrize(
    "options", [["--delimiter", ";;"], ["--encoding", "klingon"], ["--type", "zip"], ["--type", "zip=nothing"]]
)
def test_options_that_cannot_be_used_are_refused(cli: Run, lake: conroi.Lake, options: list[str]) -> None:
    Path("a.csv").write_text("id,zip\n1,2\n")
    before = lake.version
    assert cli("load", "lake/a", "a.csv", "--create", *options).code == 2
    assert lake.version == before


def test_a_type_for_a_column_that_is_not_there_is_refused(cli: Run, lake: conroi.Lake) -> None:
    Path("people.csv").write_text("id,name\n1,Ada\n")
    bad = cli("load", "lake/people", "people.csv", "--create", "--type", "idd=int32")
    assert (bad.code, "people" in lake) == (2, False)
    assert "has no column 'idd'" in bad.err
    assert "It has id, name." in bad.err
