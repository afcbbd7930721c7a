"""Failures of a command: one sentence, a hint in the words of the command line, and an exit code."""

from __future__ import annotations

import re
import sys
import traceback
from typing import Any

from conroi.cli.output import to_json
from conroi.errors import ConflictError, ConroiError, ExpectedVersionMismatch, MergeConflict, visible


class UsageProblem(Exception):
    """What was typed makes no command. `hint` says what to type; by default, that --help shows it."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


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


_AGAIN = "Run the command again."

SENTENCES: tuple[tuple[str, str], ...] = (
    (r"Run it again on version (\d+|that is newest): lake\.run\(work\) does so .* by themselves\.", _AGAIN),
    (r"(?:Run the work again in|Begin) a new transaction; lake\.run\(function\) does that for you\.", _AGAIN),
    (r"Do the work again on the newest version: lake\.run\(function\) .* as the work takes\.", _AGAIN),
    (r"(run the work again) in a new transaction\.(?: lake\.run\(function\) does that for you\.)?", r"run it again."),
    (r"Open a newer version of the lake; inside a transaction, begin a new one\.", "Give a newer version of the lake."),
    (
        r"Allow .*, write bigger batches, .* until then\.",
        "Run the command again when fewer others write, or load more rows at once.",
    ),
    (r"on version (\d+) with more retries", r"on version \1"),
    (r" lake\.run\(\) ran the work (\d+) times\.", r" It was tried \1 times."),
    (
        r"Look at error\.conflicts; merge again with prefer=.* decides each\.",
        "Merge again with --prefer source or --prefer target.",
    ),
    (r"Use the lake itself, as conroi\.connect\(\) gave it\.", "Leave out the version behind the @."),
    (r"Call (?:gc|expire)\(\) on the main lake, as conroi\.connect\(\) gave it\.", "Give the lake without its branch."),
    (r"connect\(\) without create=False makes a lake there\.", "`conroi init` makes a lake there."),
    (r"conroi\.connect\(uri\) makes a new lake\.", "`conroi init` makes a new lake."),
    (
        r"Open it with (?:lake|tx)\[name\](?:, inside a transaction with tx\[name\])?[;,] or choose another name\.",
        "Choose another name; `conroi tables` lists those that there are.",
    ),
    (r"; lake\[name\] opens the table that has this name now\.", "."),
    (
        r"Rows are changed by the verbs of a table .*",
        "Rows are changed by `conroi load`, `conroi update` and `conroi delete`.",
    ),
    (r"A text value is conroi\.literal\(.*", "A text value stands in quotes: --set \"name='new'\"."),
    (r'A text needs quotes inside the expression: "(.*)"\.', r"A text needs quotes inside the expression: \1."),
    (r"Write params=\{.*", "Write the values themselves into the condition."),
    (r"To hold a version for long, (?:tag it, or )?open it with (?:keep=|at\(version, keep=[^)]*\))", "A tag keeps it"),
    (r"latest\(\) gives the newest, versions\(\) lists", "without @ it is the newest, and versions() lists"),
    (
        r"Give one of version, tag and as_of; latest\(\) gives the newest\.",
        "Give a version, tag or moment after the @.",
    ),
    (
        r"evolve_schema=True in append\(\) and merge\(\) adds (?:new ones|them)",
        "`conroi load --evolve` adds new ones",
    ),
    (r"To go ahead regardless, leave out strict and expect, .*", ""),
    (r"try again, or wait longer with wait_s\.", "try again later."),
    (r"let gc\(\) spare younger files: a larger min_age", "let `conroi gc` spare younger files: a larger --min-age"),
    (
        r"Use merge\(\) to update rows that are there",
        "Load with --mode merge --on KEY to update rows that are there",
    ),
    (r"needs store=\.", "needs --store."),
    (r"open it with allow_bases=\[['\"]?([^'\"\]]*)['\"]?\]", r"give --allow-base \1"),
)
"""What is said in one place of the library, or in a few, and what it is here."""

COMMANDS: tuple[tuple[str, str], ...] = (
    (r"lake\.history\(\)", "`conroi log`"),
    (r"versions\(\) lists", "`conroi log` of a lake, and `conroi history` of a table, list"),
    (r"(?:table\.)?history\(\)", "`conroi history`"),
    (r"versions\(\)", "`conroi history`"),
    (r"lake\.tables\(\)", "`conroi tables`"),
    (r"lake\.namespaces\(\)", "`conroi tables`"),
    (r"lake\.create_table\([^()]*\)|create_table\(\)", "`conroi create`"),
    (r"lake\.rename_table\(\)|rename_table\(\)", "`conroi rename`"),
    (r"lake\.drop_table\(\)|drop_table\(\)", "`conroi drop`"),
    (r"lake\.branches\.create\(name\)", "`conroi branch create`"),
    (r"branches\.delete\('([^']*)', tags='drop'\)", r"conroi branch delete LAKE \1 --drop-tags"),
    (r"lake\.begin\(idempotency_key=…\)", "`conroi load --once KEY`"),
    (r"lake\.branches\b", "`conroi branch`"),
    (r"lake\.diff\(a, b\)", "`conroi diff`"),
    (r"tags\.move\(\)", "`conroi tag move`"),
    (r"lake\.at\(version=…\)", "LAKE@41"),
    (r"lake\.table\(name, version\)", "LAKE/TABLE@7"),
    (r"at\(version=…\)", "LAKE/TABLE@7"),
    (r"lake\.doctor\(deep=True\)", "`conroi doctor --deep`"),
    (r"(?:lake\.|table\.)?doctor\(\)", "`conroi doctor`"),
    (r"run doctor\b", "run `conroi doctor`"),
    (r"lake\.mend\(name, discard=True\)", "`conroi mend --discard`"),
    (r"(?:lake\.)?mend\((?:name)?\)", "`conroi mend`"),
    (r"(?:lake\.)?expire\(\)", "`conroi expire`"),
    (r"(?:lake\.)?gc\(\)", "`conroi gc`"),
    (r"lake\.locks\(\)", "`conroi locks`"),
    (r"delete\(\"true\"\)", "`conroi delete --where true`"),
    (r"(?:its )?restore\(\)", "`conroi restore`"),
    (r"update\(\)", "`conroi update`"),
    (r"compact\(\)", "`conroi compact`"),
    (r"(?:table\.)?clone\(uri(?:, deep=True)?\)|lake\[name\]\.clone\(\)", "`conroi copy`"),
    (r"append\(\)|insert\(\)", "`conroi load`"),
    (r"merge\(\)", "`conroi load --mode merge`"),
    (r"conroi\.connect\(uri, (store|locks)=\"([^\"]*)\"\)", r"--\1 \2"),
    (r"\b(store|locks)=\"([^\"]*)\"", r"--\1 \2"),
    (r"\b(store|locks)=(?![\w\"])", r"--\1"),
    (r"\bstorage_options=\{'(\w+)': '([^']*)'\}", r"--storage-option \1=\2"),
    (r"stable_row_ids=True", "--stable-row-ids"),
)
"""A call, and the command for it."""

_BEFORE = r"(?<![\w.`])"
_CALL = re.compile(_BEFORE + r"[A-Za-z_][\w.]*\((?:[^()]|\([^()]*\))*\)(?! in Python)")
_SENTENCES = [(re.compile(pattern), words) for pattern, words in SENTENCES]
_COMMANDS = [(re.compile(_BEFORE + pattern), words) for pattern, words in COMMANDS]
_TYPES = re.compile(r"(?:decimal|CAST)\(.*")


def message_in_commands(text: str) -> str:
    """A message, in which only known sentences are translated: the rest may be what was typed."""
    for pattern, words in _SENTENCES:
        text = pattern.sub(words, text)
    return text


def in_commands(hint: str) -> str:
    """The hint with Python calls as commands and options; a call that has none is said to be Python."""
    text = message_in_commands(hint)
    for pattern, words in _COMMANDS:
        text = pattern.sub(words, text)
    return _CALL.sub(lambda found: found[0] if _TYPES.match(found[0]) else f"{found[0]} in Python", text).strip()
