from __future__ import annotations

from tools.contract import Standing, report, standings
from tools.results import Outcome, Result
from tools.statements import Statement

NOW = "2026-01-02T03:04:05+00:00"


def standing_of(*outcomes: Outcome | None, is_due: bool = True) -> Standing:
    tests = {
        f"test_{number}": None if outcome is None else Result(outcome, 0.5, NOW)
        for number, outcome in enumerate(outcomes)
    }
    return Standing(Statement("T1", "one writer wins", (2,)), is_due, tests)


def test_a_finished_statement_without_a_test_is_broken():
    assert standing_of().is_broken
    assert "MISSING T1: no test cites it" in report([standing_of()], verbose=False)


def test_a_finished_statement_with_only_skipped_tests_is_broken():
    assert standing_of(Outcome.SKIPPED, Outcome.SKIPPED).is_broken


def test_a_finished_statement_whose_tests_never_ran_is_broken():
    assert standing_of(None, None).is_broken


def test_one_failed_test_breaks_a_statement_that_others_hold():
    assert standing_of(Outcome.PASSED, Outcome.FAILED).is_broken


def test_one_passed_test_holds_a_statement_beside_skipped_and_unrun_ones():
    assert not standing_of(Outcome.SKIPPED, Outcome.PASSED, None).is_broken


def test_a_statement_of_a_later_issue_is_never_broken():
    assert not standing_of(is_due=False).is_broken
    assert not standing_of(Outcome.FAILED, is_due=False).is_broken


def test_a_statement_of_two_issues_is_due_when_the_first_is_finished():
    shared, later = Statement("T4", "tries again", (2, 3)), Statement("T6", "any two", (3,))
    found = standings([shared, later], frozenset({2}), {"T4": ["a"]}, {"a": Result(Outcome.PASSED, 1.0, NOW)})
    assert [standing.is_due for standing in found] == [True, False]
    assert [standing.state for standing in found] == ["passed", "no test"]


def test_the_verbose_report_names_each_test_with_its_result():
    lines = report([standing_of(Outcome.PASSED, None)], verbose=True).splitlines()
    assert "passed    test_0 (0.50 s, 2026-01-02 03:04)" in lines[2]
    assert "never run test_1" in lines[3]
