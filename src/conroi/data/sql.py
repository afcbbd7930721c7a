"""SQL that users hand in."""

from __future__ import annotations

import re

from conroi.errors import InvalidInputError

# Text, names and comments, in which a parenthesis is none; and parentheses.
_TOKENS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|[()]""", re.DOTALL)
_STEPS = {"(": 1, ")": -1}


def enclosed(text: str, table: str) -> str:
    """The expression in parentheses, so that all of it counts.

    pylance reads one expression and ignores what follows it: of `id = 1 AN region = 'EU'` it would take `id = 1`.

    >>> enclosed("id = 1", "t")
    '(id = 1)'
    """
    depth = 0
    for token in _TOKENS.finditer(text):
        depth += _STEPS.get(token.group(), 0)
        if depth < 0:
            raise InvalidInputError(
                f"{text!r} closes a parenthesis that it did not open.", table=table, hint="Take one ) out."
            )
    return f"({text}\n)" if "--" in text else f"({text})"
