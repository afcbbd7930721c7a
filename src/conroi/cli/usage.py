"""A command that was typed wrongly: exit code 2."""

from __future__ import annotations


class UsageProblem(Exception):
    """What was typed makes no command."""
