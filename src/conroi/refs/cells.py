"""Compare-and-swap registers: small named values, on any storage with put-if-absent.

Each value that a name ever had is a numbered file of its own; the newest counts. A writer changes the value by creating
the next number, which only one of several concurrent writers can. A deleted name gets an empty value, so that numbers
are never reused and a writer that was paused always finds its number taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from conroi.errors import CorruptionError
from conroi.format.documents import decode_document, encode_document
from conroi.stores.objects import NameTaken, Objects

_DIGITS = 8

Value = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """A name, its value, and the number of that value; None if it has no value (any more)."""

    name: str
    value: Value | None
    number: int = 0


class Cells:
    """The registers in one folder."""

    def __init__(self, objects: Objects, folder: str) -> None:
        self._objects = objects
        self._folder = folder

    def read(self, name: str) -> Cell:
        """The current value."""
        numbers = [_number(path) for path in self._objects.list_names(f"{self._folder}/{name}")]
        return self._loaded(name, max(numbers, default=0))

    def all(self) -> Iterator[Cell]:
        """All names that have a value, in order."""
        newest: dict[str, int] = {}
        for path in self._objects.list_names(self._folder):
            name = path.removeprefix(f"{self._folder}/").partition("/")[0]
            newest[name] = max(newest.get(name, 0), _number(path))
        for name in sorted(newest):
            cell = self._loaded(name, newest[name])
            if cell.value is not None:
                yield cell

    def swap(self, cell: Cell, value: Value | None) -> bool:
        """Compare-and-swap: set the value, or (None) delete it; False if it changed since the cell was read."""
        path = self._path(cell.name, cell.number + 1)
        try:
            self._objects.put_if_absent(path, b"null" if value is None else encode_document(value, indent=2))
        except NameTaken:
            return False
        return True

    def _loaded(self, name: str, number: int) -> Cell:
        if not number:
            return Cell(name, None)
        data = self._objects.get(self._path(name, number))
        if data == b"null":
            return Cell(name, None, number)
        try:
            return Cell(name, decode_document(data, f"What {name!r} stands for").content, number)
        except CorruptionError as error:
            raise self._damaged(name, error) from error

    def _damaged(self, name: str, error: CorruptionError) -> CorruptionError:
        return CorruptionError(
            error.message,
            table=self._objects.root,
            hint=f"Look at the newest file in {self._folder}/{name}; deleting it brings the value before it back.",
        )

    def _path(self, name: str, number: int) -> str:
        return f"{self._folder}/{name}/{number:0{_DIGITS}d}.json"


def _number(path: str) -> int:
    stem = path.rpartition("/")[2].removesuffix(".json")
    return int(stem) if len(stem) == _DIGITS and stem.isdecimal() else 0
