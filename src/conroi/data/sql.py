"""SQL fragments: quoted identifiers, literals, parameters, and checks of expressions before Lance evaluates them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias, cast
from uuid import UUID

import pyarrow as pa

from conroi.errors import InvalidInputError


def quoted(column: str) -> str:
    """A column name (or dotted path) as it stands in an expression, whatever characters it has.

    >>> quoted("order id")
    '`order id`'
    """
    return ".".join(f"`{part}`" for part in column.split("."))


RESERVED = frozenset({"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"})
"""Columns that every Lance table has without showing them."""


def check_column_name(name: str, *, table: str) -> None:
    """Refuse a name that a column cannot have, or that no expression could ask for."""
    if not name or name in RESERVED or not {".", "`", "\0"}.isdisjoint(name):
        raise InvalidInputError(
            f"{name!r} cannot be the name of a column.",
            table=table,
            hint=f"Choose one without dots and backticks, and none of {', '.join(sorted(RESERVED))}.",
        )


Params: TypeAlias = Mapping[str, object]
"""Values by the names that stand for them in a text, `:name`; a list stands for what follows IN."""

_PARAMETER_TOKENS = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|::|:(?P<name>[A-Za-z_][A-Za-z0-9_]*)""",
    re.DOTALL,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_KINDS = "Give a number, a text, a bool, None, bytes, a date or time, a Decimal, a UUID or a pyarrow scalar."


@dataclass(frozen=True)
class Literal:
    """A Python value where an SQL expression is expected."""

    value: object


def as_literal(value: object) -> Literal:
    """A Python value where an SQL expression is expected, such as in update() and in the clauses of a merge.

    >>> import conroi
    >>> table = conroi.create_table("memory://literal-example", [{"name": "Ada"}])
    >>> table.update({"name": conroi.literal("O'Hara")}).to_arrow()["name"].to_pylist()
    ["O'Hara"]
    """
    literal(value)  # refused here, where it was written
    return Literal(value)


def bound(text: Any, params: Params | None, table: str | None = None) -> Any:
    """The SQL with each `:name` outside quotes and comments replaced by the literal of its value.

    >>> bound("id IN :ids AND name = :n", {"ids": [1, 2], "n": "O'Hara"})
    "id IN (1, 2) AND name = 'O''Hara'"
    """
    return text if params is None else all_bound([text], params, table)[0]


def all_bound(texts: Sequence[Any], params: Params, table: str | None = None) -> list[Any]:
    """The same for several texts of one statement, which share their parameters; what is no text stays as it is."""
    if not isinstance(params, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError("params is a mapping.", table=table, hint='Write params={"id": 3}.')
    used: set[str] = set()

    def replaced(token: re.Match[str]) -> str:
        name = token["name"]
        if name is None:
            return token.group()
        if name not in params:
            known = ", ".join(sorted(map(str, params))) or "none"
            raise InvalidInputError(
                f"The parameter :{name} has no value.", table=table, hint=f"Give it in params; there are: {known}."
            )
        used.add(name)
        return _list(params[name], table) if _is_list(params[name]) else literal(params[name], table)

    done = [_PARAMETER_TOKENS.sub(replaced, text) if isinstance(text, str) else text for text in texts]
    unused = sorted(str(name) for name in params if name not in used)
    if unused:
        raise InvalidInputError(
            f"The text has no parameter :{unused[0]}.", table=table, hint=f"Write :{unused[0]} where its value belongs."
        )
    return done


def bound_values(values: Any, where: Any, params: Params | None, table: str | None = None) -> tuple[Any, Any]:
    """Columns with their expressions, and a condition, that share their parameters."""
    if params is None or not isinstance(values, Mapping):
        return values, bound(where, params, table)
    given = cast("Mapping[str, object]", values)
    *texts, where = all_bound([*given.values(), where], params, table)
    return dict(zip(given, texts, strict=True)), where


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes | bytearray)


def _list(values: Any, table: str | None) -> str:
    parts = [literal(value, table) for value in values]
    if not parts:
        raise InvalidInputError(
            "An empty list cannot stand behind IN.", table=table, hint='It holds no value: write "false" instead.'
        )
    return f"({', '.join(parts)})"


def literal(value: object, table: str | None = None) -> str:
    """One value as SQL of exactly its type.

    >>> literal(3), literal("it's"), literal(b"\\x00"), literal(None)
    ('3', "'it''s'", "X'00'", 'NULL')
    """
    if isinstance(value, Literal):
        value = value.value
    if isinstance(value, pa.Scalar):
        return _arrow(cast("pa.Scalar[Any]", value), table)
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        value = cast("Any", value).item()
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _integer(value, table)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"CAST('{_odd_float(value)}' AS DOUBLE)"
    if isinstance(value, str):
        return _text(value, table)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"X'{bytes(value).hex()}'"
    if isinstance(value, UUID):
        return f"'{value}'"
    if isinstance(value, Decimal):
        return _decimal(value, table)
    if isinstance(value, datetime | date | time | timedelta):
        return _temporal(value)
    raise InvalidInputError(f"A {type(value).__name__} cannot be written as a value.", table=table, hint=_KINDS)


def _text(value: str, table: str | None) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(
            f"The text {value!r} is no Unicode text.", table=table, hint="It has half of a character; decode it anew."
        ) from None
    return "'" + value.replace("'", "''") + "'"


def _integer(value: int, table: str | None) -> str:
    if not -(2**63) <= value < 2**64:
        raise InvalidInputError(
            f"{value} does not fit into 64 bits.", table=table, hint="Give a Decimal, or compare with a text."
        )
    # The parser reads the smallest number as a float.
    return str(value) if value > -(2**63) else f"CAST('{value}' AS BIGINT)"


def _odd_float(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decimal(value: Decimal, table: str | None) -> str:
    if not value.is_finite():
        raise InvalidInputError(f"{value} is no number that a decimal column holds.", table=table, hint="Give a float.")
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "it is finite"
    scale = max(0, -exponent)
    text = f"{value:f}"
    precision = max(sum(letter.isdigit() for letter in text.lstrip("-").lstrip("0.")), scale, 1)
    if precision > 38:
        raise InvalidInputError(
            f"{value} has more than 38 digits.", table=table, hint="Decimals of 38 digits are the longest."
        )
    return f"CAST('{text}' AS DECIMAL({precision}, {scale}))"


def _temporal(value: datetime | date | time | timedelta) -> str:
    if isinstance(value, datetime):
        zone = "None" if value.tzinfo is None else 'Some("UTC")'
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        return f"arrow_cast({(moment - _EPOCH) // _MICROSECOND}, 'Timestamp(Microsecond, {zone})')"
    if isinstance(value, date):
        return f"CAST('{value.isoformat()}' AS DATE)"
    if isinstance(value, timedelta):
        return f"arrow_cast({value // _MICROSECOND}, 'Duration(Microsecond)')"
    return f"arrow_cast('{value.replace(tzinfo=None).isoformat()}', 'Time64(Microsecond)')"


def _arrow(value: pa.Scalar[Any], table: str | None) -> str:
    """A pyarrow scalar; times keep their unit, which Python has no type for."""
    type_ = value.type
    if not value.is_valid:
        return "NULL"
    if pa.types.is_timestamp(type_):
        unit = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}[type_.unit]
        zone = "None" if type_.tz is None else 'Some("UTC")'
        return f"arrow_cast({cast('Any', value).value}, 'Timestamp({unit}, {zone})')"
    return literal(value.as_py(), table)


def expression(value: object, table: str) -> str:
    """A string is an SQL expression; any other value stands for itself, and so does conroi.literal("text")."""
    if not isinstance(value, str):
        return literal(value, table)
    if value.strip():
        return enclosed(value, table)
    raise InvalidInputError(
        f"{value!r} is not an expression.",
        table=table,
        hint='Write an SQL expression as a string. A text value is conroi.literal("new"), or "\'new\'" with quotes.',
    )


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
