"""Text files: delimiter, encoding and types of delimited text, given or guessed; JSON arrays as a stream of lines."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import IO, Any

import pyarrow as pa

from conroi.cli.failures import UsageProblem
from conroi.cli.schemas import parsed_type
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


CHUNK = 1 << 18
_MARKS = re.compile(rb'["\\\[\]{},\n\r]')
_BLANK = b" \t\n\r\xef\xbb\xbf"


class ArrayLines(io.RawIOBase):
    """The elements of the array in `source`, each on a line of its own. pa.ArrowInvalid if it is no whole array."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        self._source = source
        self._ready = b""
        self._depth = 0
        """0 before the array and after it, 1 between its elements."""
        self._is_in_text = False
        self._is_escaped = False
        self._is_begun = False
        self._is_ended = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        while not self._is_ended and (size < 0 or len(self._ready) < size):
            chunk = bytes(self._source.read(CHUNK))
            if not chunk:
                self._finish()
                break
            self._ready += self._lines(chunk)
        size = len(self._ready) if size < 0 else size
        given, self._ready = self._ready[:size], self._ready[size:]
        return given

    def _finish(self) -> None:
        self._is_ended = True
        if self._depth or not self._is_begun:
            raise pa.ArrowInvalid("the array does not end")

    def _lines(self, chunk: bytes) -> bytes:
        parts: list[bytes] = []
        done = 0
        for found in _MARKS.finditer(chunk):
            at = found.start()
            self._add(parts, chunk[done:at])
            parts.append(self._letter(found.group()))
            done = at + 1
        self._add(parts, chunk[done:])
        return b"".join(parts)

    def _add(self, parts: list[bytes], text: bytes) -> None:
        if not text:
            return
        if self._depth == 0 and text.strip(_BLANK):
            raise pa.ArrowInvalid("there is more than one array in it")
        self._is_escaped = False
        parts.append(text if self._depth else b"")

    def _letter(self, letter: bytes) -> bytes:
        """What one mark becomes."""
        if self._is_in_text:
            is_escaped = self._is_escaped
            self._is_escaped = letter == b"\\" and not is_escaped
            self._is_in_text = letter != b'"' or is_escaped
            return letter
        if letter in (b"\n", b"\r"):
            return b" " if self._depth else b""
        if letter in (b"[", b"{"):
            return self._opened(letter)
        if letter in (b"]", b"}"):
            self._depth -= 1
            return b"\n" if self._depth == 0 else letter
        if self._depth == 0:
            raise pa.ArrowInvalid("there is more than one array in it")
        self._is_in_text = letter == b'"'
        return b"\n" if letter == b"," and self._depth == 1 else letter

    def _opened(self, letter: bytes) -> bytes:
        if self._depth == 0 and (self._is_begun or letter != b"["):
            raise pa.ArrowInvalid("there is more than one array in it")
        is_first = not self._is_begun
        self._is_begun = True
        self._depth += 1
        return b"" if is_first else letter
