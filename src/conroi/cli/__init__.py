"""The command `conroi`: presentation only. `conroi --help` lists what it can do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

NEEDED = ("typer", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the answer is the exit code."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        print(  # noqa: T201
            f'The command line needs {" and ".join(missing)}: pip install "conroi[cli]".', file=sys.stderr
        )
        return 1
    from conroi.cli.app import run

    return run(arguments)
