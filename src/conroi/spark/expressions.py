"""Translation of Spark expressions to Lance, where both mean the same.

Only expressions that surely mean the same are translated: everything else is left to Spark. The translation narrows a
scan before Spark filters again, and lets the tables' verbs run a statement without Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any, NoReturn

import pyarrow as pa
from sqlglot import exp

Node = exp.Expr


class NotSimple(Exception):
    """This part of an expression may mean something else to Lance, or nothing."""


class Kind(Enum):
    """Values that can be compared with each other."""

    INTEGER = "integer"
    DOUBLE = "double"
    TEXT = "text"
    BOOLEAN = "boolean"
    DATE = "date"
    NULL = "null"
    OTHER = "other"


@dataclass(frozen=True)
class Written:
    """An expression for Lance, and what it gives."""

    text: str
    kind: Kind
    bits: int = 64
    """How wide an integer is."""
    number: float | None = None
    """The value of a number that stands there."""


Resolve = Callable[[exp.Column], "tuple[str, pa.DataType] | None"]
"""How a column is written, and its type; None if it is none of ours."""

_BITS: dict[pa.DataType, int] = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_COMPARING: dict[type[Node], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_COUNTING: dict[type[Node], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_NUMBERS = (Kind.INTEGER, Kind.DOUBLE)
_PLAIN_PATTERN = re.compile(r"[^\\]*")


def simple(node: Node, resolve: Resolve) -> Written:
    """The expression for Lance; NotSimple if it might mean something else there."""
    return _Writer(resolve).write(node)


def simple_condition(node: Node, resolve: Resolve) -> str:
    """A condition for Lance; NotSimple if it might mean something else there, or is none."""
    written = simple(node, resolve)
    return written.text if written.kind is Kind.BOOLEAN else _refuse(node)


def _refuse(node: Node) -> NoReturn:
    raise NotSimple(node.sql("spark"))


def integer_bits(type_: pa.DataType) -> int:
    """How wide the integers of a column are; 0 if they are none."""
    return _BITS.get(type_, 0)


def column_kind(type_: pa.DataType) -> Kind:
    """What the values of a column can be compared with."""
    if type_ in _BITS:
        return Kind.INTEGER
    if type_ == pa.float64():
        return Kind.DOUBLE
    if type_ in (pa.string(), pa.large_string()):
        return Kind.TEXT
    if type_ == pa.bool_():
        return Kind.BOOLEAN
    return Kind.DATE if type_ == pa.date32() else Kind.OTHER


class _Writer:
    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve

    def write(self, node: Node) -> Written:
        for kinds, method in self._methods():
            if isinstance(node, kinds):
                return method(node)
        _refuse(node)

    def _methods(self) -> list[tuple[Any, Callable[[Any], Written]]]:
        return [
            (exp.Paren, lambda node: self.write(node.this)),
            (exp.Column, self._column),
            (exp.Literal, self._literal),
            (exp.Boolean, lambda node: Written("TRUE" if node.this else "FALSE", Kind.BOOLEAN)),
            (exp.Null, lambda _: Written("NULL", Kind.NULL)),
            (exp.Neg, self._negative),
            (tuple(_COUNTING), self._counting),
            (exp.Mod, self._remainder),
            (tuple(_COMPARING), self._comparing),
            ((exp.And, exp.Or), self._joining),
            (exp.Not, self._not),
            (exp.Is, self._is_null),
            (exp.In, self._among),
            (exp.Between, self._between),
            (exp.Like, self._like),
            (exp.DPipe, self._joined_text),
            (exp.Coalesce, self._first_present),
            (exp.Cast, self._cast),
        ]

    # ------------------------------------------------------------------------ values

    def _column(self, node: exp.Column) -> Written:
        found = self._resolve(node)
        if found is None:
            _refuse(node)
        text, type_ = found
        return Written(text, column_kind(type_), _BITS.get(type_, 64))

    def _literal(self, node: exp.Literal) -> Written:
        if node.is_string:
            return Written(_text(str(node.this)), Kind.TEXT)
        if str(node.this).isdecimal():
            number = int(node.this)
            return Written(str(number), Kind.INTEGER, number=number) if number < 1 << 63 else _refuse(node)
        try:
            return Written(str(node.this), Kind.DOUBLE, number=float(node.this))
        except ValueError:
            _refuse(node)  # with a letter for its type

    def _negative(self, node: exp.Neg) -> Written:
        inner = self.write(node.this)
        if inner.kind not in _NUMBERS:
            _refuse(node)
        return Written(f"(-{inner.text})", inner.kind, inner.bits, None if inner.number is None else -inner.number)

    def _counting(self, node: exp.Binary) -> Written:
        left, right = self.write(node.left), self.write(node.right)
        if left.kind not in _NUMBERS or right.kind not in _NUMBERS:
            _refuse(node)
        kind = Kind.DOUBLE if Kind.DOUBLE in (left.kind, right.kind) else Kind.INTEGER
        is_exact = kind is Kind.INTEGER or all(
            each.kind is Kind.DOUBLE or each.number is not None for each in (left, right)
        )
        if not is_exact:
            _refuse(node)
        return Written(f"({left.text} {_COUNTING[type(node)]} {right.text})", kind)

    def _remainder(self, node: exp.Mod) -> Written:
        left, right = self.write(node.left), self.write(node.right)
        if left.kind is not Kind.INTEGER or right.kind is not Kind.INTEGER or not right.number:
            _refuse(node)
        return Written(f"({left.text} % {right.text})", Kind.INTEGER)

    # ------------------------------------------------------------------------ conditions

    def _comparing(self, node: exp.Binary) -> Written:
        left, right = self._alike(node, self.write(node.left), self.write(node.right))
        text = f"({left.text} {_COMPARING[type(node)]} {right.text})"
        if left.kind is Kind.DOUBLE and right.number is not None:
            text = _with_nan(text, left, is_above=isinstance(node, exp.GT | exp.GTE), node=node)
        elif right.kind is Kind.DOUBLE and left.number is not None:
            text = _with_nan(text, right, is_above=isinstance(node, exp.LT | exp.LTE), node=node)
        return Written(text, Kind.BOOLEAN)

    def _alike(self, node: Node, left: Written, right: Written) -> tuple[Written, Written]:
        """Both, if comparing them means the same to both."""
        if Kind.DATE in (left.kind, right.kind):
            left, right = _as_date(node, left), _as_date(node, right)
        if left.kind is Kind.OTHER or Kind.NULL in (left.kind, right.kind):
            _refuse(node)
        if Kind.DOUBLE in (left.kind, right.kind):
            _check_doubles(node, left, right)
        elif left.kind is not right.kind:
            _refuse(node)
        for one, other in ((left, right), (right, left)):
            if one.kind is Kind.INTEGER and other.number is not None and abs(other.number) >= 1 << (one.bits - 1):
                _refuse(node)
        return left, right

    def _joining(self, node: exp.Binary) -> Written:
        left, right = self.write(node.left), self.write(node.right)
        if left.kind is not Kind.BOOLEAN or right.kind is not Kind.BOOLEAN:
            _refuse(node)
        return Written(f"({left.text} {'AND' if isinstance(node, exp.And) else 'OR'} {right.text})", Kind.BOOLEAN)

    def _not(self, node: exp.Not) -> Written:
        inner = self.write(node.this)
        return Written(f"(NOT {inner.text})", Kind.BOOLEAN) if inner.kind is Kind.BOOLEAN else _refuse(node)

    def _is_null(self, node: exp.Is) -> Written:
        if not isinstance(node.expression, exp.Null):
            _refuse(node)
        return Written(f"({self.write(node.this).text} IS NULL)", Kind.BOOLEAN)

    def _among(self, node: exp.In) -> Written:
        values: list[Node] = node.expressions
        if not values or node.args.get("query") is not None:
            _refuse(node)
        left = self.write(node.this)
        texts = [self._alike(node, left, self.write(value))[1].text for value in values]
        return Written(f"({left.text} IN ({', '.join(texts)}))", Kind.BOOLEAN)

    def _between(self, node: exp.Between) -> Written:
        if node.args.get("symmetric"):
            _refuse(node)
        low = self.write(exp.GTE(this=node.this.copy(), expression=node.args["low"].copy()))
        high = self.write(exp.LTE(this=node.this.copy(), expression=node.args["high"].copy()))
        return Written(f"({low.text} AND {high.text})", Kind.BOOLEAN)

    def _like(self, node: exp.Like) -> Written:
        left, pattern = self.write(node.this), node.expression
        is_plain = isinstance(pattern, exp.Literal) and pattern.is_string and _PLAIN_PATTERN.fullmatch(pattern.this)
        if left.kind is not Kind.TEXT or not is_plain:
            _refuse(node)
        return Written(f"({left.text} LIKE {_text(pattern.this)})", Kind.BOOLEAN)

    # ------------------------------------------------------------------------ more values

    def _joined_text(self, node: exp.DPipe) -> Written:
        left, right = self.write(node.left), self.write(node.right)
        if left.kind is not Kind.TEXT or right.kind is not Kind.TEXT:
            _refuse(node)
        return Written(f"({left.text} || {right.text})", Kind.TEXT)

    def _first_present(self, node: exp.Coalesce) -> Written:
        parts = [self.write(part) for part in (node.this, *node.expressions)]
        kind = _one_kind(node, parts)
        return Written(f"coalesce({', '.join(part.text for part in parts)})", kind)

    def _cast(self, node: exp.Cast) -> Written:
        inner, wanted = self.write(node.this), node.to.this
        if inner.kind is Kind.TEXT and wanted == exp.DataType.Type.DATE and isinstance(node.this, exp.Literal):
            return _as_date(node, inner)
        to = {exp.DataType.Type.DOUBLE: Kind.DOUBLE, exp.DataType.Type.BIGINT: Kind.INTEGER}.get(wanted)
        if inner.kind is not Kind.INTEGER or to is None:
            _refuse(node)
        return Written(f"CAST({inner.text} AS {'DOUBLE' if to is Kind.DOUBLE else 'BIGINT'})", to)


def _one_kind(node: Node, parts: list[Written]) -> Kind:
    kinds = {part.kind for part in parts} - {Kind.NULL}
    if len(kinds) != 1 or Kind.OTHER in kinds:
        _refuse(node)
    return kinds.pop()


def _as_date(node: Node, written: Written) -> Written:
    """A date; text that is surely one becomes one."""
    if written.kind is Kind.DATE:
        return written
    text = written.text.strip("'")
    try:
        is_date = written.kind is Kind.TEXT and date.fromisoformat(text).isoformat() == text
    except ValueError:
        is_date = False
    return Written(f"CAST('{text}' AS DATE)", Kind.DATE) if is_date else _refuse(node)


def _check_doubles(node: Node, left: Written, right: Written) -> None:
    """Zeros with a sign and numbers that are none compare differently; a number that stands there is neither."""
    has_number = any(each.number is not None and each.number != 0 for each in (left, right))
    both = all(each.kind in _NUMBERS for each in (left, right))
    is_column_integer = any(each.kind is Kind.INTEGER and each.number is None for each in (left, right))
    if not both or not has_number or is_column_integer:
        _refuse(node)


def _with_nan(text: str, value: Written, *, is_above: bool, node: Node) -> str:
    """To Spark what is not a number is above all numbers; to Lance that depends on its sign."""
    if isinstance(node, exp.EQ | exp.NEQ):
        return text
    return f"({text} OR isnan({value.text}))" if is_above else f"({text} AND NOT isnan({value.text}))"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def same_name(name: str, names: Sequence[str]) -> str | None:
    """The name as it is written in the table, found as Spark finds it: in any letters."""
    if name in names:
        return name
    alike = [each for each in names if each.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else None
