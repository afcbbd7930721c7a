"""The statements of docs/contract.md, and which of them must hold by now."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

CONTRACT_FILE = Path("docs", "contract.md")
_ROW = re.compile(r"^\| (?P<id>[A-Z]\d+) \| (?P<summary>.+) \| (?P<issues>\d+(?:, \d+)*) \|$")


@dataclass(frozen=True, slots=True)
class Statement:
    """One line of the contract."""

    id: str
    summary: str
    issues: tuple[int, ...]


def load_statements(root: Path) -> dict[str, Statement]:
    """All statements by id, in the order of the page."""
    statements: dict[str, Statement] = {}
    for line in (root / CONTRACT_FILE).read_text("utf-8").splitlines():
        row = _ROW.match(line)
        if row is None:
            continue
        if row["id"] in statements:
            raise ValueError(f"{CONTRACT_FILE} has {row['id']} twice")
        issues = tuple(int(number) for number in row["issues"].split(", "))
        statements[row["id"]] = Statement(row["id"], row["summary"], issues)
    return statements


def finished_issues(root: Path) -> frozenset[int]:
    """The issues whose statements need a passing test."""
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    return frozenset(settings["tool"]["conroi"]["finished-issues"])
