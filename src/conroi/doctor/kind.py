"""Definition of a kind of finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of finding."""

    slug: str
    severity: Severity
    means: str
    hint: str
    is_fixable: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Kinds that concern the same thing."""

    title: str
    kinds: tuple[Kind, ...]
