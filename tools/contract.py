"""Print every statement of the contract with its tests; fail if one that must hold has no passing test.

::

    python -m tools.contract        a line for each statement
    python -m tools.contract -v     … and for each of its tests
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.results import RESULTS_FILE, Outcome, Result, load_results
from tools.statements import Statement, finished_issues, load_statements

NO_TEST = "no test"
NEVER_RUN = "never run"


@dataclass(frozen=True, slots=True)
class Standing:
    """A statement, whether it must hold by now, and its tests with their last results (None: never run)."""

    statement: Statement
    is_due: bool
    tests: Mapping[str, Result | None]

    @property
    def state(self) -> str:
        """One failure outweighs all passes; skipped tests show nothing."""
        if not self.tests:
            return NO_TEST
        outcomes = {result.outcome for result in self.tests.values() if result is not None}
        for outcome in (Outcome.FAILED, Outcome.PASSED, Outcome.SKIPPED):
            if outcome in outcomes:
                return outcome.value
        return NEVER_RUN

    @property
    def is_broken(self) -> bool:
        return self.is_due and self.state != Outcome.PASSED

    @property
    def last_run(self) -> str:
        return max((result.finished_at for result in self.tests.values() if result is not None), default="")


def standings(
    statements: Iterable[Statement],
    finished: frozenset[int],
    tests_of: Mapping[str, Sequence[str]],
    results: Mapping[str, Result],
) -> list[Standing]:
    """Where each statement stands."""
    return [
        Standing(
            statement,
            is_due=not finished.isdisjoint(statement.issues),
            tests={test: results.get(test) for test in tests_of.get(statement.id, ())},
        )
        for statement in statements
    ]


def report(all_standings: Sequence[Standing], *, verbose: bool) -> str:
    """The table, and below it what is missing."""
    lines = [f"{'id':<4} {'tests':>5}  {'last result':<27}  what holds"]
    for standing in all_standings:
        lines.append(_line(standing))
        if verbose:
            lines.extend(_test_line(test, result) for test, result in standing.tests.items())
    due = [standing for standing in all_standings if standing.is_due]
    broken = [standing for standing in due if standing.is_broken]
    lines.append("")
    lines.append(f"{len(all_standings)} statements, {len(due)} must hold by now, {len(due) - len(broken)} of these do.")
    lines.extend(f"MISSING {standing.statement.id}: {_missing(standing.state)}" for standing in broken)
    return "\n".join(lines)


def collect(root: Path) -> dict[str, list[str]]:
    """The tests that cite each statement, as pytest finds them."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder, "tests.json")
        command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", f"--contract-map={found}"]
        run = subprocess.run(command, cwd=root, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if run.returncode not in (0, 5):  # 5: there are no tests
            raise SystemExit(f"pytest could not collect the tests:\n{run.stdout[-4000:]}{run.stderr[-2000:]}")
        return json.loads(found.read_text("utf-8"))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; the exit code says whether all that must hold does."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.contract", description="The contract, its tests, and their last results."
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="name the tests")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="the project's folder")
    options = parser.parse_args(arguments)
    root: Path = options.root
    all_standings = standings(
        load_statements(root).values(), finished_issues(root), collect(root), load_results(root / RESULTS_FILE)
    )
    print(report(all_standings, verbose=options.verbose))
    return int(any(standing.is_broken for standing in all_standings))


def _line(standing: Standing) -> str:
    statement, state = standing.statement, standing.state
    if state == NO_TEST and not standing.is_due:
        last = f"issue {statement.issues[0]}, not yet"
    else:
        last = f"{state} {_minute(standing.last_run)}".strip()
    return f"{statement.id:<4} {len(standing.tests):>5}  {last:<27}  {statement.summary}"


def _test_line(test: str, result: Result | None) -> str:
    if result is None:
        return f"       {NEVER_RUN:<9} {test}"
    return f"       {result.outcome.value:<9} {test} ({result.seconds:.2f} s, {_minute(result.finished_at)})"


def _missing(state: str) -> str:
    return {
        NO_TEST: "no test cites it",
        NEVER_RUN: "its tests have never run here; run make test",
        Outcome.SKIPPED.value: "its tests were all skipped",
        Outcome.FAILED.value: "a test of it failed; make contract ARGS=-v names it",
    }[state]


def _minute(finished_at: str) -> str:
    return finished_at[:16].replace("T", " ")


if __name__ == "__main__":
    sys.exit(main())
