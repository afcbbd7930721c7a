"""Storage options: one set of names and values for obstore and for pylance."""

from __future__ import annotations

from collections.abc import Mapping

from conroi.errors import InvalidInputError


class StorageOptions(dict[str, str]):
    """A dict that pylance takes as it is, and that never shows its values."""

    def __repr__(self) -> str:
        return "StorageOptions(" + ", ".join(f"{name}=…" for name in sorted(self)) + ")"

    __str__ = __repr__


def read_options(given: Mapping[str, str]) -> StorageOptions:
    """Lower the names, turn the values into text, and refuse what is neither."""
    options = StorageOptions()
    for name, value in given.items():
        lowered = str(name).lower()
        if lowered in options:
            raise InvalidInputError(f"The storage option {lowered} is given twice", hint="names ignore case; keep one")
        options[lowered] = _text(lowered, value)
    return options


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise InvalidInputError(
        f"The storage option {name} must be text, not {type(value).__name__}", hint="put str() around it"
    )
