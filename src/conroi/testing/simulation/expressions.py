"""Filters and expressions of the stand-in for data files: a small part of SQL, evaluated with pyarrow.

Columns, numbers, texts, true, false, null; + - * /, comparisons, IN, IS NULL, AND, OR, NOT, concat(). Anything else is
refused, so that a simulation never computes something else than pylance would.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

Columns = Callable[[str], Any]
Expression = Callable[[Columns], Any]

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<text>'(?:[^']|'')*')|(?P<name>[A-Za-z_][\w]*|`[^`]+`)
    |(?P<sign><=|>=|<>|!=|=|<|>|\+|-|\*|/|\(|\)|,))""",
    re.VERBOSE,
)
_COMPARISONS = {
    "=": "equal",
    "<>": "not_equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_SUMS = {"+": "add", "-": "subtract"}
_PRODUCTS = {"*": "multiply", "/": "divide"}


@lru_cache(maxsize=4096)
def parsed(text: str) -> tuple[Expression, frozenset[str]]:
    """The expression, and the columns that it names; NotImplementedError for anything that is not known here."""
    parser = _Parser(text)
    return parser.whole(), frozenset(parser.columns)


def call(function: str, *arguments: Any) -> Any:
    """A compute function by its name."""
    return cast("Any", pc).call_function(function, list(arguments))


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._unknown()
            self._tokens.append((cast("str", found.lastgroup), found[cast("str", found.lastgroup)]))
            at = found.end()
        self._at = 0
        self.columns: set[str] = set()

    def _unknown(self) -> NotImplementedError:
        return NotImplementedError(f"the stand-in for data files does not know the expression {self._text!r}")

    def whole(self) -> Expression:
        found = self._either()
        if self._at < len(self._tokens):
            raise self._unknown()
        return found

    def _next_is(self, *words: str) -> str | None:
        if self._at < len(self._tokens):
            kind, text = self._tokens[self._at]
            if kind in ("sign", "name") and text.lower() in words:
                self._at += 1
                return text.lower()
        return None

    def _need(self, word: str) -> None:
        if self._next_is(word) is None:
            raise self._unknown()

    def _either(self) -> Expression:
        found = self._both()
        while self._next_is("or"):
            found = _applied("or_kleene", found, self._both())
        return found

    def _both(self) -> Expression:
        found = self._negated()
        while self._next_is("and"):
            found = _applied("and_kleene", found, self._negated())
        return found

    def _negated(self) -> Expression:
        return _applied("invert", self._negated()) if self._next_is("not") else self._compared()

    def _compared(self) -> Expression:
        left = self._sum()
        sign = self._next_is(*_COMPARISONS)
        if sign is not None:
            return _applied(_COMPARISONS[sign], left, self._sum())
        if self._next_is("is"):
            is_negated = self._next_is("not") is not None
            self._need("null")
            return _applied("is_valid" if is_negated else "is_null", left)
        is_negated = self._next_is("not") is not None
        if self._next_is("in"):
            self._need("(")
            several = [self._sum()]
            while self._next_is(","):
                several.append(self._sum())
            self._need(")")
            found = _applied("equal", left, several[0])
            for each in several[1:]:
                found = _applied("or_kleene", found, _applied("equal", left, each))
            return _applied("invert", found) if is_negated else found
        if is_negated:
            raise self._unknown()
        return left

    def _sum(self) -> Expression:
        found = self._product()
        while sign := self._next_is(*_SUMS):
            found = _applied(_SUMS[sign], found, self._product())
        return found

    def _product(self) -> Expression:
        found = self._single()
        while sign := self._next_is(*_PRODUCTS):
            found = _applied(_PRODUCTS[sign], found, self._single())
        return found

    def _single(self) -> Expression:
        if self._next_is("("):
            found = self._either()
            self._need(")")
            return found
        if self._next_is("-"):
            return _applied("negate", self._single())
        if self._at >= len(self._tokens):
            raise self._unknown()
        kind, text = self._tokens[self._at]
        self._at += 1
        if kind == "number":
            return _constant(pa.scalar(float(text) if "." in text else int(text)))
        if kind == "text":
            return _constant(pa.scalar(text[1:-1].replace("''", "'")))
        if kind != "name":
            raise self._unknown()
        if text.lower() in ("true", "false"):
            return _constant(pa.scalar(text.lower() == "true"))
        if text.lower() == "null":
            return _constant(pa.nulls(1)[0])
        if self._next_is("("):
            return self._function(text.lower())
        name = text.strip("`")
        self.columns.add(name)
        return _column(name)

    def _function(self, name: str) -> Expression:
        arguments = [self._either()]
        while self._next_is(","):
            arguments.append(self._either())
        self._need(")")
        if name != "concat":
            raise self._unknown()
        ends = _constant(pa.scalar(""))
        texts = [_cast(each) for each in arguments]
        return _applied("binary_join_element_wise", *texts, ends)


def _column(name: str) -> Expression:
    def value(columns: Columns) -> Any:
        return columns(name)

    return value


def _cast(expression: Expression) -> Expression:
    def text(columns: Columns) -> Any:
        return cast("Any", pc.cast)(expression(columns), pa.string())

    return text


def _constant(value: Any) -> Expression:
    return lambda _: value


def _applied(function: str, *expressions: Expression) -> Expression:
    return lambda columns: call(function, *(each(columns) for each in expressions))
