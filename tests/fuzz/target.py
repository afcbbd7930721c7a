"""A reader of foreign bytes, and inputs that it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A reader, and inputs that it takes."""

    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")
