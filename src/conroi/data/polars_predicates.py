"""Predicate pushdown from polars: translates polars predicates to Lance filters where both mean the same.

polars applies its predicate again to whatever a source yields, so a filter may let too many rows through, never too
few. An unrecognised expression is left to polars. polars has no stable serialized form of an expression: the form read
here is verified by the tests, and anything unexpected means that nothing is pushed down.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from conroi.data.literals import literal
from conroi.data.quoting import quoted
from conroi.errors import CorruptionError, InvalidInputError
from conroi.format.documents import parse_json

if TYPE_CHECKING:
    import polars as pl

_COMPARISONS = {"Eq": "=", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_JOINS = {"And": "AND", "LogicalAnd": "AND", "Or": "OR", "LogicalOr": "OR"}


def to_lance_filter(predicate: pl.Expr, schema: pa.Schema) -> str | None:
    """A filter of Lance that holds for every row for which the predicate holds; None if there is none to push down."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the form is not stable, as is said above
            tree = parse_json(predicate.meta.serialize(format="json"), "The predicate of polars")
        return _weaker(tree, schema)
    except (ValueError, TypeError, KeyError, AttributeError, CorruptionError, InvalidInputError):
        return None


def _weaker(node: Any, schema: pa.Schema) -> str | None:
    """A condition that the expression implies."""
    kind, body = _single(node)
    if kind == "BinaryExpr":
        join = _JOINS.get(body["op"])
        if join is None:
            return _comparison(body, schema)
        sides = [_weaker(body[side], schema) for side in ("left", "right")]
        known = [side for side in sides if side is not None]
        if join == "OR":
            return f"({known[0]} OR {known[1]})" if len(known) == 2 else None
        return " AND ".join(f"({side})" for side in known) or None
    if kind == "Function":
        return _function(body, schema)
    return None


def _comparison(body: Mapping[str, Any], schema: pa.Schema) -> str | None:
    operator = _COMPARISONS.get(body["op"])
    left, right = _single(body["left"]), _single(body["right"])
    if left[0] == "Literal" and right[0] == "Column" and operator is not None:
        left, right, operator = right, left, _MIRRORED[operator]
    if operator is None or left[0] != "Column" or right[0] != "Literal":
        return None
    return _compared(left[1], operator, _value(right[1]), schema)


def _function(body: Mapping[str, Any], schema: pa.Schema) -> str | None:
    family, name = _single(body["function"])
    arguments = [_single(each) for each in body["input"]]
    if family != "Boolean" or arguments[0][0] != "Column":
        return None
    column = arguments[0][1]
    if name in ("IsNull", "IsNotNull"):
        return f"{_name(column, schema)} IS {'NOT ' if name == 'IsNotNull' else ''}NULL"
    if isinstance(name, dict) and "IsBetween" in name:
        # Open and closed ends alike: polars leaves the ends out where they do not count.
        low, high = (_value(each[1]) for each in arguments[1:3])
        bounds = [_compared(column, ">=", low, schema), _compared(column, "<=", high, schema)]
        return " AND ".join(bound for bound in bounds if bound is not None) or None
    return None


def _compared(column: str, operator: str, value: object, schema: pa.Schema) -> str | None:
    """The comparison, where Lance and polars agree about it; NaN, the greatest number of polars, is let through."""
    type_, name = schema.field(column).type, _name(column, schema)
    is_bool, is_int = isinstance(value, bool), isinstance(value, int) and not isinstance(value, bool)
    fits = (
        (pa.types.is_integer(type_) and is_int and -(2**63) <= cast("int", value) < 2**63 and _in_range(value, type_))
        or ((pa.types.is_string(type_) or pa.types.is_large_string(type_)) and isinstance(value, str))
        or (pa.types.is_boolean(type_) and is_bool and operator in ("=", "!="))
    )
    if fits:
        return f"{name} {operator} {literal(value)}"
    if pa.types.is_float64(type_) and isinstance(value, int | float) and not is_bool and operator != "!=":
        number = float(value)
        if number == value and math.isfinite(number) and number != 0:
            return f"({name} {operator} {literal(number)} OR isnan({name}))"
    return None


def _in_range(value: object, type_: pa.DataType) -> bool:
    try:
        pa.scalar(cast("int", value), type_)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


def _name(column: str, schema: pa.Schema) -> str:
    schema.field(column)  # KeyError if there is none
    if "." in column or "`" in column:
        raise InvalidInputError(f"{column!r} cannot stand in a filter.", hint="It is left to polars.")
    return quoted(column)


def _value(given: Any) -> object:
    """The Python value of a literal; TypeError for kinds that are not pushed down."""
    form, content = _single(given)
    kind, value = _single(content)
    if form not in ("Dyn", "Scalar") or kind not in _PLAIN or not isinstance(value, _PLAIN[kind]):
        raise TypeError(kind)
    return value


_PLAIN: dict[str, type | tuple[type, ...]] = {
    "Int": int,
    **{f"{sign}nt{bits}": int for sign in ("I", "UI") for bits in (8, 16, 32, 64)},
    "Float": (int, float),
    "Float64": (int, float),
    "String": str,
    "Boolean": bool,
}


def _single(node: Any) -> tuple[str, Any]:
    """The one entry of a mapping, which is how a variant is written."""
    if isinstance(node, str):
        return node, None
    ((kind, body),) = node.items()
    return kind, body
