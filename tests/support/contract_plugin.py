"""Remember how every test ended, and say which tests cite which statement of the contract.

`make contract` joins the two. A run of some tests changes only what is known of those.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tools.results import RESULTS_FILE, Outcome, Result, add_results
from tools.statements import load_statements

_WORSE = list(Outcome)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--contract-map", metavar="FILE", help="write the tests of each statement to FILE, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    is_xdist_worker = hasattr(config, "workerinput")
    if not is_xdist_worker:  # workers hand their reports to the one process that records
        config.pluginmanager.register(Recorder(config.rootpath / RESULTS_FILE))


@pytest.hookimpl(tryfirst=True)  # before soak tests are taken out
def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    tests_of = _tests_by_statement(items)
    unknown = tests_of.keys() - load_statements(config.rootpath).keys()
    if unknown:
        names = ", ".join(f"{statement} ({tests_of[statement][0]})" for statement in sorted(unknown))
        raise pytest.UsageError(f"docs/contract.md has no such statement: {names}")
    if file := config.getoption("--contract-map"):
        Path(file).write_text(json.dumps(tests_of), "utf-8")


class Recorder:
    """Gathers the outcomes of one run."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._results: dict[str, Result] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        before = self._results.get(report.nodeid)
        outcome, seconds = Outcome(report.outcome), report.duration
        if before is not None:
            outcome = max(before.outcome, outcome, key=_WORSE.index)
            seconds += before.seconds
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._results[report.nodeid] = Result(outcome, round(seconds, 3), now)

    def pytest_sessionfinish(self) -> None:
        if self._results:
            add_results(self._file, self._results)


def _tests_by_statement(items: Sequence[pytest.Item]) -> dict[str, list[str]]:
    tests_of: dict[str, list[str]] = {}
    for item in items:
        for statement in sorted({cited for mark in item.iter_markers("contract") for cited in mark.args}):
            tests_of.setdefault(statement, []).append(item.nodeid)
    return tests_of
