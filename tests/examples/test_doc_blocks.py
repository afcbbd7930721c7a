"""The Python blocks of README and docs run as they stand, in order, in an empty folder, and again in the same one."""

from __future__ import annotations

import os
import re
import sys
import traceback
from pathlib import Path

import pytest

from tests.support.processes import fork_context

REPOSITORY = Path(__file__).parents[2]
PAGES = [
    "docs/branches.md",
    "docs/doctor.md",
    "docs/export.md",
    "docs/lake.md",
    "docs/locks.md",
    "docs/maintenance.md",
    "docs/namespace.md",
    "docs/reading.md",
    "docs/stores.md",
]
"""Not spark.md, whose blocks need a Java machine."""
TIMEOUT_S = 200
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[str]:
    return _BLOCK.findall((REPOSITORY / page).read_text("utf-8"))


def run_program(program: str, folder: Path) -> tuple[int | None, str]:
    """The exit code of a Python program in a process of its own, and what it wrote to standard error."""
    process = fork_context().Process(target=_as_main, args=(program, str(folder)))
    process.start()
    process.join(TIMEOUT_S)
    if process.is_alive():
        process.kill()
    return process.exitcode, (folder / "errors.txt").read_text("utf-8")


def _as_main(program: str, folder: str) -> None:
    os.chdir(folder)
    with open("errors.txt", "w", encoding="utf-8") as errors, open("output.txt", "w", encoding="utf-8") as output:
        os.dup2(errors.fileno(), 2)
        os.dup2(output.fileno(), 1)
        sys.stdout, sys.stderr = output, errors
        sys.path.insert(0, "")
        main = type(sys)("__main__")
        sys.modules["__main__"] = main
        try:
            exec(compile(program, "<blocks>", "exec"), main.__dict__)
        except Exception:  # noqa: BLE001 (told before the file is closed)
            traceback.print_exc()
            sys.exit(1)


@pytest.mark.contract("E12")
@pytest.mark.parametrize("page", [*PAGES, "README.md"])
def test_the_blocks_of_a_page_run_as_they_stand(page: str, tmp_path: Path):
    assert blocks(page)
    for run in ("first", "second"):
        code, errors = run_program("\n".join(blocks(page)), tmp_path)
        assert code == 0, f"{run} run: {errors}"


@pytest.mark.contract("E12")
def test_a_block_that_fails_is_noticed(tmp_path: Path):
    assert _BLOCK.findall("```python\nx = 1\n```\n\n```\nno\n```\n\n```python\ny\n```\n") == ["x = 1\n", "y\n"]
    code, errors = run_program("import conroi\nconroi.no_such_name\n", tmp_path)
    assert code == 1
    assert "no_such_name" in errors
