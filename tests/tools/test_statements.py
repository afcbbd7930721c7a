from __future__ import annotations

from pathlib import Path

import pytest

from tools.statements import finished_issues, load_statements

REPOSITORY = Path(__file__).parents[2]
LAST = {"T": 30, "K": 7, "X": 13, "P": 14, "W": 18, "L": 12, "S": 23, "M": 10, "B": 16, "N": 8, "H": 8}
LAST.update({"U": 13, "V": 5, "I": 7, "E": 13, "C": 9})


def test_the_contract_has_every_statement_of_each_section_in_order():
    expected = [f"{letter}{number}" for letter, last in LAST.items() for number in range(1, last + 1)]
    assert list(load_statements(REPOSITORY)) == expected


def test_finished_issues_finish_something():
    planned = {issue for statement in load_statements(REPOSITORY).values() for issue in statement.issues}
    assert finished_issues(REPOSITORY) <= planned


def test_a_statement_written_twice_is_refused(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "contract.md").write_text("| T1 | a | 2 |\n| T1 | b | 2 |\n")
    with pytest.raises(ValueError, match="T1 twice"):
        load_statements(tmp_path)
