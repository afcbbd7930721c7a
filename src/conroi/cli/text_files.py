"""Delimited text files: delimiter, encoding and types, given or inferred; what was inferred is reported."""

from __future__ import annotations

import codecs
import csv
import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import IO, Any

import pyarrow as pa

from conroi.cli.schemas import parsed_type
from conroi.cli.usage import UsageProblem
from conroi.errors import InvalidInputError

LOOKED_AT = 1000
"""So many lines of a file are looked at for a guess."""
_DELIMITERS = (";", "\t", "|")
_LEADING_ZERO = re.compile(r"0\d+")


@dataclass(frozen=True)
class TextOptions:
    """How a text file is read."""

    delimiter: str | None = None
    encoding: str | None = None
    types: Mapping[str, str] = field(default_factory=dict[str, str])
    """The types of columns by name, as --schema takes them: int64, string, date32."""

    def checked(self) -> TextOptions:
        """The options, if they can be used; UsageProblem if not."""
        delimiter = {"tab": "\t", "\\t": "\t"}.get(self.delimiter or "", self.delimiter)
        if delimiter is not None and len(delimiter) != 1:
            raise UsageProblem(f"The delimiter {self.delimiter!r} is not one character. A tab is --delimiter tab.")
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise UsageProblem(
                    f"The encoding {self.encoding!r} is not known. Try utf-8, latin-1, cp1252."
                ) from None
        for name, type_ in self.types.items():
            try:
                parsed_type(type_)
            except UsageProblem as error:
                raise UsageProblem(f"--type {name}: {error}", hint=error.hint) from None
        return replace(self, delimiter=delimiter)

    def arrow_types(self) -> dict[str, pa.DataType]:
        """The types that were given."""
        return {name: parsed_type(type_) for name, type_ in self.types.items()}


def parsed_types(texts: Sequence[str]) -> dict[str, str]:
    """`id=int64` as a mapping."""
    pairs = [text.partition("=") for text in texts]
    if any(not name or not type_ for name, _, type_ in pairs):
        raise UsageProblem("A type is given as --type COLUMN=TYPE, such as --type zip=string.")
    return {name: type_ for name, _, type_ in pairs}


def guessed(
    path: str, options: TextOptions, known: Sequence[str] = (), shown: str | None = None
) -> tuple[TextOptions, list[str]]:
    """The options with what was not given filled in from the first lines, and a sentence about each guess.

    `known` are columns whose type the table says, and `shown` is what the file is called.
    """
    named = path if shown is None else shown
    notes: list[str] = []
    lines = _first_lines(path, options.encoding or "utf-8", named)
    if not lines:
        return options, notes
    if options.delimiter is None:
        found = next((each for each in _DELIMITERS if each in lines[0] and "," not in lines[0]), ",")
        if found != ",":
            letter = "tab" if found == "\t" else found
            notes.append(f"{named}: taken as separated by {letter!r}; --delimiter says otherwise.")
        options = replace(options, delimiter=found)
    assert options.delimiter is not None
    names, *rows = list(csv.reader(lines, delimiter=options.delimiter)) or [[]]
    unknown = [name for name in options.types if name not in names]
    if unknown:
        raise UsageProblem(f"{named} has no column {unknown[0]!r}.", hint=f"It has {', '.join(names)}.")
    zeros = [
        name
        for number, name in enumerate(names)
        if name not in options.types
        and name not in known
        and any(_LEADING_ZERO.fullmatch(row[number]) for row in rows if number < len(row))
    ]
    if zeros:
        notes.append(
            f"{named}: {', '.join(zeros)} kept as text for its leading zeros; --type {zeros[0]}=int64 says otherwise."
        )
        options = replace(options, types={**options.types, **dict.fromkeys(zeros, "string")})
    return options, notes


def _first_lines(path: str, encoding: str, named: str) -> list[str]:
    """The first lines; none if they cannot be read: then the reader says why."""
    opener: Any = gzip.open if path.endswith(".gz") else open
    try:
        file: IO[str]
        with opener(path, "rt", encoding=encoding, newline="") as file:
            return list(islice(file, LOOKED_AT))
    except OSError:
        return []
    except UnicodeError:
        with opener(path, "rb") as raw:
            where = next((f", see line {number}" for number, line in enumerate(raw, 1) if _is_odd(line, encoding)), "")
    raise InvalidInputError(
        f"{named} is not in the encoding {encoding}{where}.",
        hint="Say which it is: --encoding latin-1, cp1252, utf-16, …",
    )


def _is_odd(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeError:
        return True
    return False
