"""The whole way: a small project of its own, pytest with the plugin, then the command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.contract import main
from tools.results import RESULTS_FILE, Outcome, load_results

REPOSITORY = Path(__file__).parents[2]

CONTRACT = """
| id | what holds | issue |
|---|---|---|
| T1 | the first | 2 |
| T2 | the second | 2, 3 |
| T3 | the third | 3 |
"""

SETTINGS = """
[tool.conroi]
finished-issues = [2]
[tool.pytest.ini_options]
testpaths = ["checks"]
addopts = ["-m", "not soak"]
markers = ["contract(*ids): x", "soak: x"]
"""

BOTH_HOLD = """
import pytest

@pytest.mark.contract("T1", "T2")
@pytest.mark.parametrize("n", [1, 2])
def test_both(n):
    pass

@pytest.mark.soak
@pytest.mark.contract("T3")
def test_long():
    pass
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of one test file, with our plugin."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "contract.md").write_text(CONTRACT)
    (tmp_path / "pyproject.toml").write_text(SETTINGS)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.support.contract_plugin"]\n')
    write_checks(tmp_path, BOTH_HOLD)
    return tmp_path


def write_checks(project: Path, source: str) -> None:
    (project / "checks").mkdir(exist_ok=True)
    (project / "checks" / "test_it.py").write_text(source)


def run_pytest(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in the project, with a folder for temporary files of its own.

    In the shared one it would remove what earlier runs of the whole suite left there, which can take minutes.
    """
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTEST_DEBUG_TEMPROOT"] = str(project)
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # importing them takes longer than the tests
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def test_statements_hold_after_their_tests_passed(project: Path, capsys: pytest.CaptureFixture[str]):
    assert run_pytest(project).returncode == 0
    assert main(["--root", str(project)]) == 0
    assert "3 statements, 2 must hold by now, 2 of these do." in capsys.readouterr().out


def test_statements_do_not_hold_before_their_tests_ran(project: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["--root", str(project)]) == 1
    assert "MISSING T1: its tests have never run here" in capsys.readouterr().out


def test_tests_on_other_processes_are_recorded_once(project: Path):
    assert run_pytest(project, "-p", "xdist", "-n", "2").returncode == 0
    results = load_results(project / RESULTS_FILE)
    assert sorted(results) == ["checks/test_it.py::test_both[1]", "checks/test_it.py::test_both[2]"]


def test_a_run_of_one_test_keeps_what_is_known_of_the_others(project: Path):
    run_pytest(project)
    run_pytest(project, "checks/test_it.py::test_both[1]")
    run_pytest(project, "-m", "soak")
    assert len(load_results(project / RESULTS_FILE)) == 3


def test_a_failing_test_breaks_its_statement(project: Path, capsys: pytest.CaptureFixture[str]):
    write_checks(project, BOTH_HOLD.replace("    pass\n", "    assert n == 1\n", 1))
    assert run_pytest(project).returncode == 1
    assert main(["--root", str(project), "-v"]) == 1
    assert "failed    checks/test_it.py::test_both[2]" in capsys.readouterr().out


def test_an_expected_failure_and_an_error_in_setup_are_not_passes(project: Path):
    write_checks(
        project,
        "import pytest\n"
        "@pytest.fixture\ndef broken():\n    raise ValueError\n"
        "@pytest.mark.contract('T1')\ndef test_error(broken):\n    pass\n"
        "@pytest.mark.contract('T2')\n@pytest.mark.xfail\ndef test_expected():\n    assert False\n",
    )
    run_pytest(project)
    outcomes = [result.outcome for _, result in sorted(load_results(project / RESULTS_FILE).items())]
    assert outcomes == [Outcome.FAILED, Outcome.SKIPPED]
    assert main(["--root", str(project)]) == 1


def test_a_removed_test_no_longer_holds_its_statement(project: Path):
    run_pytest(project)
    write_checks(project, BOTH_HOLD.replace('"T1", ', ""))
    assert main(["--root", str(project)]) == 1


def test_a_statement_that_does_not_exist_stops_the_run(project: Path):
    write_checks(project, BOTH_HOLD.replace("T3", "T33"))
    run = run_pytest(project)
    assert run.returncode == 4
    assert "no such statement: T33 (checks/test_it.py::test_long)" in run.stderr


def test_tests_that_cannot_be_collected_stop_the_report(project: Path):
    write_checks(project, "import no_such_module\n")
    with pytest.raises(SystemExit, match="no_such_module"):
        main(["--root", str(project)])
