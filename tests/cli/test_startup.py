from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from conroi.cli.commands import app
from conroi.version import __version__
from tests.cli.conftest import ENTRY_POINT, Run

HEAVY = ("pyarrow", "lance", "numpy", "obstore", "duckdb", "google.protobuf", "rich", "conroi.lake")


def verbs() -> list[tuple[str, ...]]:
    """Every command with its words, those of groups too."""
    command: object = typer.main.get_command(app)
    found: list[tuple[str, ...]] = []
    for name, each in getattr(command, "commands").items():  # noqa: B009
        inner = getattr(each, "commands", None)
        found += [(name, word) for word in inner] if inner else [(name,)]
    return found


def loaded_by(code: str) -> set[str]:
    """What a new process has imported after this code."""
    script = f"{code}\nimport sys\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stderr.splitlines())


def test_help_imports_nothing_heavy() -> None:
    loaded = loaded_by("from conroi.cli import main\nassert main(['--help']) == 0")
    assert "conroi.cli.commands" in loaded
    assert not [name for name in HEAVY if name in loaded]


def test_the_check_for_heavy_imports_can_fail() -> None:
    loaded = loaded_by("import conroi\nconroi.connect")
    assert "pyarrow" in loaded
    assert "conroi.lake" in loaded


def test_the_front_door_is_whole_although_it_opens_late() -> None:
    code = "import conroi, conroi.commit.loop\nassert callable(conroi.commit)\nassert conroi.format.decode_transaction"
    assert "conroi.lake" in loaded_by(
        f"{code}\nmissing = [n for n in conroi.__all__ if not hasattr(conroi, n)]\nassert not missing"
    )


def test_the_entry_point_starts(process: Run) -> None:
    ran = process("--version")
    assert (ran.code, ran.out) == (0, f"conroi {__version__}\n")
    ran = process("--help")
    assert ran.code == 0
    assert "Many Lance tables that move as one." in ran.out


def test_a_first_session_in_processes_of_its_own(process: Run) -> None:
    assert process("init", "lake").code == 0
    assert process("tables", CONROI_LAKE="lake").out == "There are no tables yet.\n"
    assert process("log", "lake", "--json").rows[0]["version"] == 1
    assert process("head", "lake/nope").code == 1
    assert process("head").code == 2


@pytest.mark.parametrize("verb", verbs(), ids=" ".join)
def test_every_verb_has_help_with_examples(cli: Run, verb: tuple[str, ...]) -> None:
    ran = cli(*verb, "--help")
    assert ran.code == 0
    assert f"conroi {' '.join(verb)} " in ran.out
    assert "Examples:" in ran.out
    assert "--json" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 100


def test_help_lists_every_verb_with_a_whole_sentence(cli: Run) -> None:
    text = cli("--help").out
    for name in {verb[0] for verb in verbs()}:
        line = next(line for line in text.splitlines() if line.startswith(f"  {name} "))
        assert line.endswith("."), line
        assert not line.endswith("..."), line


def test_the_verbs_of_the_issue_are_all_there() -> None:
    wanted = """init tables show schema head count sql log diff history tag restore branch merge load export compact
    create drop rename copy delete update
    expire gc doctor mend locks explain-conflict"""
    assert {verb[0] for verb in verbs()} == set(wanted.split())


def test_without_the_extra_it_says_so_in_one_sentence() -> None:
    script = "import sys; sys.modules['typer'] = None\nfrom conroi.cli import main\nsys.exit(main(['--help']))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == 'The command line needs typer: pip install "conroi[cli]".\n'


def test_a_wrong_verb_or_option_is_wrong_usage(cli: Run) -> None:
    assert cli("juggle").code == 2
    assert cli("tables", "--juggle").code == 2
    assert cli().code == 2
    assert cli("tag").code == 2


def test_the_shell_can_complete_it() -> None:
    """typer looks for a shell among the parents of the process, so one is started."""
    ran = subprocess.run(
        ["bash", "-c", f"{shlex.quote(str(ENTRY_POINT))} --show-completion; exit $?"], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "_CONROI_COMPLETE" in ran.stdout


def test_the_module_runs_too() -> None:
    assert os.access(ENTRY_POINT, os.X_OK)
    done = subprocess.run([sys.executable, "-m", "conroi.cli", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"conroi {__version__}\n"


def test_a_command_that_fails_does_not_wait_for_threads_of_other_libraries(tmp_path: Path) -> None:
    """A reader of pyarrow that was given up made the process abort, with exit code 134."""
    program = (
        "import sys, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "from conroi.cli import main\n"
        "sys.argv = ['conroi', 'head', 'no-lake/t']\n"
        "sys.exit(main())\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 1
    assert "There is no lake at no-lake" in ran.stderr
