"""Recursive-descent parser of schema text: `id int64 key, name string not null`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

import pyarrow as pa

from conroi.arguments import nearest
from conroi.cli.failures import UsageProblem

T = TypeVar("T")

NAMES = {
    "bigint": "int64",
    "integer": "int32",
    "int": "int32",
    "smallint": "int16",
    "tinyint": "int8",
    "real": "float32",
    "text": "string",
    "varchar": "string",
    "boolean": "bool",
    "date": "date32",
    "timestamp": "timestamp[us]",
    "time": "time64[us]",
    "blob": "binary",
}
"""Names of types in SQL, and what Arrow calls them. Arrow's own names are known as well."""
ARROW_NAMES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"),
    *("float", "double", "string", "large_string", "binary", "large_binary", "bool", "date32", "date64"),
)
EXAMPLES = (
    "Types are int64, double, string, bool, date, timestamp[us, tz=UTC], decimal(10, 2), list<string>, "
    "struct<a: int64>, float32[768] for a vector."
)
_SPACE = re.compile(r"(?:\s|#[^\n]*)*")
_NAME = re.compile(r'"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>[^\W\d][\w.]*)')
_NUMBER = re.compile(r"\d+")
_ZONE = re.compile(r"[\w/+:-]+")
_NOT_NULL = re.compile(r"not\s+null\b", re.IGNORECASE)
_KEY = re.compile(r"(?:primary\s+)?key\b", re.IGNORECASE)


def parsed_schema(text: str) -> tuple[pa.Schema, tuple[str, ...]]:
    """The columns, and the names of those that are marked as the key. Commas or new lines stand between columns."""
    return _checked(lambda: _Parser(text).schema())


def parsed_type(text: str) -> pa.DataType:
    """One type, such as `decimal(10, 2)`."""
    return _checked(lambda: _Parser(text).whole_type())


def _checked(parse: Callable[[], T]) -> T:
    try:
        return parse()
    except (RecursionError, OverflowError, pa.ArrowException) as error:
        raise UsageProblem(f"The schema cannot be made: {type(error).__name__}.", hint=EXAMPLES) from None


class _Parser:
    """Reads one text from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def schema(self) -> tuple[pa.Schema, tuple[str, ...]]:
        fields: list[pa.Field[Any]] = []
        key: list[str] = []
        while not self._is_at_end():
            field = self._field(self._name("a column"))
            if self._skip(_KEY):
                key.append(field.name)
                field = self._constrained(field).with_nullable(False)
            fields.append(field)
            if not self._is_at_end() and not self._take(","):
                self._expect_new_line(field.name)
        if not fields:
            self._fail("The schema names no column.")
        names = [field.name for field in fields]
        for name in {name for name in names if names.count(name) > 1}:
            self._fail(f"The schema names the column {name} twice.")
        return pa.schema(fields), tuple(key)

    def whole_type(self) -> pa.DataType:
        found = self._type("the value")
        if not self._is_at_end():
            self._fail(f"{self._rest()} stands behind a type.")
        return found

    def _field(self, name: str) -> pa.Field[Any]:
        self._take(":")
        return self._constrained(pa.field(name, self._type(name)))

    def _constrained(self, field: pa.Field[Any]) -> pa.Field[Any]:
        return field.with_nullable(False) if self._skip(_NOT_NULL) else field

    def _type(self, name: str) -> pa.DataType:
        word = self._name(f"the type of {name}").lower()
        found = self._nested(word) or self._with_arguments(word) or self._simple(word, name)
        while self._take("["):  # float32[768], a vector
            found = pa.list_(found, self._number())
            self._expect("]")
        return found

    def _nested(self, word: str) -> pa.DataType | None:
        if word not in ("list", "large_list", "fixed_size_list", "struct"):
            return None
        self._expect("<")
        fields = [self._element(is_named=word == "struct")]
        while word == "struct" and self._take(","):
            fields.append(self._element(is_named=True))
        self._expect(">")
        if word == "struct":
            return pa.struct(fields)
        if word == "fixed_size_list":
            self._expect("[")
            size = self._number()
            self._expect("]")
            return pa.list_(fields[0], size)
        return pa.list_(fields[0]) if word == "list" else pa.large_list(fields[0])

    def _element(self, *, is_named: bool) -> pa.Field[Any]:
        """A field of a struct, or what a list holds: `string`, or `item: string` as Arrow writes it."""
        before = self._at
        name = self._name("a field" if is_named else "what a list holds")
        if is_named or self._peek(":"):
            return self._field(name)
        self._at = before
        return self._constrained(pa.field("item", self._type("what a list holds")))

    def _with_arguments(self, word: str) -> pa.DataType | None:
        if word in ("decimal", "decimal128", "decimal256", "numeric"):
            self._expect("(")
            precision = self._number()
            scale = self._number() if self._take(",") else 0
            self._expect(")")
            try:
                return (pa.decimal256 if word == "decimal256" else pa.decimal128)(precision, scale)
            except ValueError as error:
                self._fail(f"{word}({precision}, {scale}) is no type: {error}.")
        if word in ("timestamp", "duration", "time32", "time64") and self._take("["):
            unit = self._name("a unit")
            zone = self._zone() if self._take(",") else None
            self._expect("]")
            if word == "timestamp" and zone is not None and unit in ("s", "ms", "us", "ns"):
                return pa.timestamp(cast("Any", unit), zone)
            return self._simple(f"{word}[{unit}]", "a column")
        return None

    def _zone(self) -> str:
        mark = self._at
        if self._name("a time zone").lower() != "tz" or not self._take("="):
            self._at = mark
        return self._match(_ZONE, "a time zone").group()

    def _simple(self, word: str, name: str) -> pa.DataType:
        try:
            return cast("Any", pa).type_for_alias(NAMES.get(word, word))
        except ValueError:
            near = nearest(word, (*ARROW_NAMES, *NAMES, "list", "struct", "decimal"))
            raise UsageProblem(f"{word!r}, the type of {name}, is not known.", hint=f"{near}{EXAMPLES}") from None

    # ------------------------------------------------------------------------ letters

    def _is_at_end(self) -> bool:
        self._skip(_SPACE)
        return self._at >= len(self._text)

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        if pattern is not _SPACE:
            self._skip(_SPACE)
        found = pattern.match(self._text, self._at)
        if found is None:
            return False
        self._at = found.end()
        return True

    def _match(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        self._skip(_SPACE)
        found = pattern.match(self._text, self._at)
        if found is None:
            self._fail(f"The schema should say {what} where it says {self._rest()}.")
        self._at = found.end()
        return found

    def _name(self, what: str) -> str:
        found = self._match(_NAME, what)
        return found["plain"] or found["quoted"].replace('""', '"')

    def _number(self) -> int:
        return int(self._match(_NUMBER, "a number").group())

    def _peek(self, letter: str) -> bool:
        self._skip(_SPACE)
        return self._text.startswith(letter, self._at)

    def _take(self, letter: str) -> bool:
        is_there = self._peek(letter)
        self._at += is_there
        return is_there

    def _expect(self, letter: str) -> None:
        if not self._take(letter):
            self._fail(f"The schema should say {letter!r} where it says {self._rest()}.")

    def _expect_new_line(self, name: str) -> None:
        """Columns may stand on lines of their own, without a comma."""
        before = self._text[: self._at]
        if "\n" not in before[len(before.rstrip()) :] and "#" not in before.rpartition("\n")[2]:
            self._fail(f"The schema says {self._rest()} behind the column {name}.")

    def _rest(self) -> str:
        rest = self._text[self._at : self._at + 20].strip()
        return repr(rest) if rest else "nothing more"

    def _fail(self, problem: str) -> NoReturn:
        raise UsageProblem(
            problem, hint=f"Write columns as NAME TYPE [not null] [key], with commas between them. {EXAMPLES}"
        )
