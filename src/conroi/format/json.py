"""JSON documents with a checksum: one reader, with typed getters, for every small text file that conroi writes.

The checksum is one more key, which other programs skip; pylance drops it when it rewrites a tag or a branch. A document
without one was written by other software, or by an older conroi, and is accepted as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import xxhash

from conroi.errors import CorruptionError
from conroi.format.on_disk import CHECKSUM_KEY

MOST_BYTES = 64 * 1024 * 1024
_LARGEST = (1 << 63) - 1


def encode_document(content: Mapping[str, Any], *, indent: int | None = None) -> bytes:
    """The content with its checksum."""
    separators = None if indent else (",", ":")
    return json.dumps({**content, CHECKSUM_KEY: _checksum(content)}, indent=indent, separators=separators).encode()


def parse_json(text: bytes | str, what: str) -> Any:
    """The value of a JSON text; CorruptionError if it is none, or one that no program of ours writes."""
    if len(text) > MOST_BYTES:
        raise damaged(what, f"it has {len(text):,} bytes")
    try:
        return json.loads(text)
    except RecursionError:
        raise damaged(what, "it is nested too deep") from None
    except ValueError as error:  # no JSON, no UTF-8, or a number with thousands of digits
        raise damaged(what, str(error)[:200]) from error


def parse_object(text: bytes | str, what: str) -> dict[str, Any]:
    """The JSON object in a text."""
    found: Any = parse_json(text, what)
    if not isinstance(found, dict):
        raise damaged(what, "it is not a JSON object")
    return found  # pyright: ignore[reportUnknownVariableType]


def parse_texts(text: bytes | str, what: str) -> dict[str, str]:
    """The JSON object in a text, whose values are texts."""
    found = parse_object(text, what)
    if not all(isinstance(value, str) for value in found.values()):
        raise damaged(what, "one of its values is not a text")
    return found


def decode_document(data: bytes | str, what: str) -> Document:
    """The document in these bytes, compared with its checksum."""
    content = parse_object(data, what)
    noted = content.pop(CHECKSUM_KEY, None)
    if noted is not None and noted != _checksum(content):
        raise damaged(what, "its checksum does not match")
    return Document(content, what)


class Document:
    """The content of one, with getters that raise CorruptionError for what is missing or of another kind."""

    def __init__(self, content: dict[str, Any], what: str) -> None:
        self.content = content
        self._what = what

    def text(self, name: str) -> str:
        """A text."""
        found = self.content.get(name)
        if not isinstance(found, str):
            raise damaged(self._what, f"its {name!r} is not a text")
        return found

    def optional_text(self, name: str) -> str | None:
        """A text, or None if there is none."""
        return None if self.content.get(name) is None else self.text(name)

    def integer(self, name: str, *, low: int = 0, high: int = _LARGEST) -> int:
        """A whole number between these."""
        return self._number(self.content.get(name), name, low, high)

    def pairs(self, name: str) -> list[tuple[str, int]]:
        """A list of a text and a number each."""
        found = [self._pair(each, name) for each in self.listed(name)]
        if not all(isinstance(text, str) for text, _ in found):
            raise damaged(self._what, f"its {name!r} is not a list of names and numbers")
        return [(text, self._number(number, name, 0, _LARGEST)) for text, number in found]

    def ranges(self, name: str) -> list[tuple[int, int]]:
        """A list of ranges of numbers, each by its first and last."""
        found = [self._pair(each, name) for each in self.listed(name)]
        checked = [tuple(self._number(end, name, 0, _LARGEST) for end in each) for each in found]
        if any(low > high for low, high in checked):
            raise damaged(self._what, f"a range of its {name!r} ends before it begins")
        return [(low, high) for low, high in checked]

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        found = self.listed(name)
        if not all(isinstance(each, str) for each in found):
            raise damaged(self._what, f"its {name!r} is not a list of texts")
        return found

    def text_map(self, name: str) -> dict[str, str]:
        """An object whose values are texts."""
        found = self.content.get(name)
        if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):  # pyright: ignore[reportUnknownVariableType]
            raise damaged(self._what, f"its {name!r} is not an object of texts")
        return found  # pyright: ignore[reportUnknownVariableType]

    def documents(self, name: str) -> list[Document]:
        """A list of objects."""
        found = self.listed(name)
        if not all(isinstance(each, dict) for each in found):
            raise damaged(self._what, f"its {name!r} is not a list of objects")
        return [Document(each, self._what) for each in found]

    def listed(self, name: str) -> list[Any]:
        """A list of anything."""
        found = self.content.get(name)
        if not isinstance(found, list):
            raise damaged(self._what, f"its {name!r} is not a list")
        return found  # pyright: ignore[reportUnknownVariableType]

    def _pair(self, found: object, name: str) -> tuple[Any, Any]:
        if not isinstance(found, list) or len(found) != 2:  # pyright: ignore[reportUnknownArgumentType]
            raise damaged(self._what, f"its {name!r} is not a list of pairs")
        return found[0], found[1]  # pyright: ignore[reportUnknownVariableType]

    def _number(self, found: object, name: str, low: int, high: int) -> int:
        if isinstance(found, bool) or not isinstance(found, int) or not low <= found <= high:
            raise damaged(self._what, f"its {name!r} is not a number from {low} to {high}")
        return found


def damaged(what: str, how: str) -> CorruptionError:
    """The error for a document that cannot be read."""
    return CorruptionError(
        f"{what} is damaged: {how}.", hint="Restore the file from a copy; doctor() says what is affected."
    )


def _checksum(content: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return ""
    return xxhash.xxh64(text.encode("utf-8", "surrogatepass")).hexdigest()
