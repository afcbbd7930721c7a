"""Validation of SQL text given by users."""

from __future__ import annotations

import re

from conroi.errors import InvalidInputError

# Text, names and comments, in which a parenthesis is none; casts, parameters and parentheses.
_TOKENS = re.compile(
    r"""'(?:[^']|'')*'|(?P<quoted>(?<!\.)"(?:[^"]|"")*")|"(?:[^"]|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|::"""
    r"""|(?<![\w\])]):(?P<parameter>[A-Za-z_]\w*)|[()]""",
    re.DOTALL,
)
_STEPS = {"(": 1, ")": -1}


def enclosed(text: str, table: str) -> str:
    """The expression in parentheses, so that all of it counts.

    pylance reads one expression and ignores what follows it: of `id = 1 AN region = 'EU'` it would take `id = 1`. It
    takes what is in double quotes for text, where SQL and all other engines mean a column: that is refused.

    >>> enclosed("id = 1", "t")
    '(id = 1)'
    """
    depth = 0
    for token in _TOKENS.finditer(text):
        if token["quoted"] is not None:
            name = token.group()[1:-1]
            raise InvalidInputError(
                f"{token.group()} is in double quotes, which mean a column in SQL and a text in Lance.",
                table=table,
                hint=f"Write `{name}` for the column, '{name}' for the text.",
            )
        if token["parameter"] is not None:
            name = token["parameter"]
            raise InvalidInputError(
                f"The parameter :{name} has no value.", table=table, hint=f'Pass params={{"{name}": …}}.'
            )
        depth += _STEPS.get(token.group(), 0)
        if depth < 0:
            raise InvalidInputError(
                f"{text!r} closes a parenthesis that it did not open.", table=table, hint="Take one ) out."
            )
    return f"({text}\n)" if "--" in text else f"({text})"
