"""Usage errors of the command line: exit code 2."""

from __future__ import annotations


class UsageProblem(Exception):
    """What was typed makes no command. `hint` says what to type; by default, that --help shows it."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
