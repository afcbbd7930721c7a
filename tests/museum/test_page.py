"""docs/museum.md and the tests agree: every accident has its test, every test its row, and the versions are current."""

from __future__ import annotations

import ast
import importlib.metadata
import re
from pathlib import Path

from tests.support.source import REPOSITORY

PAGE = REPOSITORY / "docs" / "museum.md"
COLUMNS = ["accident", "source", "what went wrong", "here", "conroi", "test"]
PEERS = {"pylance", "lancedb", "pyiceberg", "deltalake", "duckdb-extension-ducklake"}


def table() -> list[dict[str, str]]:
    lines = [line.strip("| \n").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert lines[0] == COLUMNS
    return [dict(zip(COLUMNS, line, strict=True)) for line in lines[1:]]


def stories() -> set[str]:
    """All tests of this folder but those of the page."""
    found: set[str] = set()
    for file in Path(__file__).parent.glob("test_*.py"):
        if file != Path(__file__):
            functions = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef))
            found |= {function.name for function in functions if function.name.startswith("test_")}
    return found


def test_every_accident_has_its_test_and_every_test_its_row() -> None:
    named = [row["test"].strip("`") for row in table()]
    assert sorted(named) == sorted(stories())


def test_there_are_at_least_ten_accidents_of_others() -> None:
    sources = [row["source"] for row in table() if row["source"] not in ("our own", "seen here")]
    assert len(sources) >= 10
    assert all(re.fullmatch(r"[\w-]+#\d+", each) for source in sources for each in source.split(", "))


def test_the_versions_are_the_installed_ones() -> None:
    said = re.findall(r"([a-z][\w-]+) (\d+\.\d+\.\d+)", " ".join(row["here"] for row in table()))
    assert {name for name, _ in said} == PEERS
    assert set(said) == {(name, importlib.metadata.version(name)) for name in PEERS}
