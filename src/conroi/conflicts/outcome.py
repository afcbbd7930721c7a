"""Outcomes of a conflict check: compatible, rebased, retryable, or incompatible."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """Outcome of a conflict check: what happens to my change after a concurrent commit."""

    COMPATIBLE = "C"
    """It is committed unchanged on top of the other one."""
    REBASED = "B"
    """It is committed after a small adjustment that loses nothing of either side."""
    RETRYABLE = "R"
    """It is still valid, but must be computed again on the newer version."""
    INCOMPATIBLE = "I"
    """The concurrent commit removed what it changes; the user has to decide."""

    @property
    def lands(self) -> bool:
        """Whether my change can be committed on top of the other one."""
        return self in (Outcome.COMPATIBLE, Outcome.REBASED)
