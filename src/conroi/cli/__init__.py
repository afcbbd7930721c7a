"""Command line `conroi`: presentation only. `conroi --help` lists the commands."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import NoReturn

NEEDED = ("typer", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the answer is the exit code."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        print(  # noqa: T201
            f'The command line needs {" and ".join(missing)}: pip install "conroi[cli]".', file=sys.stderr
        )
        return 1
    from conroi.cli.commands import run

    code = run(arguments)
    if code and arguments is None:
        _end_now(code)
    return code


def _end_now(code: int) -> NoReturn:
    """End the process without waiting for threads of other libraries.

    A reader of pyarrow that was given up after an error may still be reading ahead. The interpreter, on its way out,
    would take its thread apart, and the process would abort with another exit code than the documented one.
    """
    atexit._run_exitfuncs()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # removes temporary folders
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
