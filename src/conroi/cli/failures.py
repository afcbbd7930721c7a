"""Failure output of a command: one sentence, a hint, and an exit code."""

from __future__ import annotations

import sys
import traceback
from typing import Any

from conroi.cli.hints import in_commands, message_in_commands
from conroi.cli.output import to_json
from conroi.cli.usage import UsageProblem
from conroi.errors import ConflictError, ConroiError, ExpectedVersionMismatch, MergeConflict, visible

OK, FAILED, USAGE, CONFLICT = 0, 1, 2, 3
INTERRUPTED, PIPE_CLOSED = 130, 141


def exit_code(error: BaseException) -> int:
    """0 ok, 1 error, 2 usage, 3 conflict; 130 and 141 as a shell has it for Ctrl-C and a closed pipe."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return PIPE_CLOSED
    if isinstance(error, UsageProblem):
        return USAGE
    return CONFLICT if isinstance(error, ConflictError) else FAILED


def tell(error: BaseException, *, as_json: bool, debug: bool) -> None:
    """Say it on stderr."""
    if isinstance(error, BrokenPipeError):
        return  # the reader of the pipe has gone
    if debug:
        traceback.print_exception(error)
    facts = failure_facts(error)
    if as_json:
        text = to_json({"error": facts})
    else:
        hint = facts["hint"]
        text = visible(f"conroi: {facts['message']}" + (f"\nhint: {hint}" if hint else ""))
    print(text, file=sys.stderr)  # noqa: T201


def failure_facts(error: BaseException) -> dict[str, Any]:
    """An error as facts; what `conroi explain-conflict` reads again."""
    facts: dict[str, Any] = {"type": type(error).__name__, "message": _sentence(error), "hint": _hint(error)}
    if isinstance(error, ConroiError):
        facts |= {"table": error.table, "version": error.version}
    if isinstance(error, ConflictError):
        facts |= {"base_version": error.base_version, "reason": _reason_facts(error)}
    if isinstance(error, MergeConflict):
        facts |= {"conflicts": [each.to_dict() for each in error.conflicts]}
    return facts


def _sentence(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "Stopped. Nothing is committed but what was reported."
    if isinstance(error, ConroiError):
        where = "" if error.table is None or error.table in error.message else f" [{error.table}]"
        return f"{message_in_commands(error.message)}{where}"
    if isinstance(error, UsageProblem):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return f"{type(error).__name__}: {error}"


def _hint(error: BaseException) -> str | None:
    if isinstance(error, ConroiError):
        return in_commands(error.hint) if error.hint else None
    if isinstance(error, UsageProblem):
        return error.hint or "The same command with --help shows how it is written."
    is_known = isinstance(error, KeyboardInterrupt) or (isinstance(error, OSError) and error.filename is not None)
    return None if is_known else "Run it again with --debug to see where this happened."


def _reason_facts(error: ConflictError) -> dict[str, Any] | None:
    reason = error.reason
    if reason is None:
        return None
    winner = reason.winner
    return {
        "rule": reason.rule,
        "outcome": reason.outcome.name.lower(),
        "mine": reason.mine,
        "theirs": reason.theirs,
        "fragments": list(reason.fragments),
        "rows": reason.rows,
        "names": list(reason.names),
        "winner": None
        if winner is None
        else {
            "version": winner.version,
            "writer": winner.writer,
            "author": winner.author,
            "message": winner.message,
            "transaction": winner.transaction.uuid,
        },
        "is_retryable": error.is_retryable if isinstance(error, ExpectedVersionMismatch) else None,
    }
