"""Fault profiles: which faults a run offers and how often, drawn from its seed; every activation is counted.

=============  ========================================================================================================
lost_before    the request never reaches the storage, and the client gets no answer
lost_after     the storage executes it, and the answer is lost
late           the client gets no answer; the request lands afterwards, up to `LATEST_S` later
repeated       an idempotent request is sent twice, and the second one lands later
lost_read      a read without an answer
refused        the storage refuses a write: it has no effect (a full or read-only store)
slow           a request takes a hundred times as long
crash          the client dies at a request, which lands or not; its memory is gone, and it starts again
pause          the client stands still with all of its threads, for seconds or hours
clock_jump     the wall clock of the client jumps
outage         no request gets an answer for a while
=============  ========================================================================================================

From the beginning each client has clocks and a speed of its own, listings are answered page by page (so they are no
snapshot), and in some runs they come in no order.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LATEST_S = 20.0
"""So many seconds after its client gave up a request may still land. Garbage collection waits for longer."""

KINDS = (
    "lost_before",
    "lost_after",
    "late",
    "repeated",
    "lost_read",
    "refused",
    "slow",
    "crash",
    "pause",
    "clock_jump",
    "outage",
)
WRITES = frozenset(("lost_before", "lost_after", "late", "refused"))
_RATES: Mapping[str, Sequence[float]] = {
    "lost_before": (0.01, 0.05),
    "lost_after": (0.01, 0.05),
    "late": (0.01, 0.05),
    "repeated": (0.05, 0.2),
    "lost_read": (0.003, 0.02),
    "refused": (0.005, 0.02),
    "slow": (0.01, 0.1),
    "crash": (0.002, 0.008),
    "pause": (0.002, 0.008),
    "clock_jump": (0.005, 0.02),
    "outage": (0.0005, 0.002),
}
"""Share of the requests that meet the fault, in a run that offers it."""
_ON_COMMIT = 3.0
"""Multiplies the rates at the requests that decide a commit."""


@dataclass
class Faults:
    """What a run offers, and what has happened."""

    rates: Mapping[str, float]
    chance: random.Random
    is_active: bool = False
    activations: Counter[str] = field(default_factory=Counter[str])
    out_until: float = 0.0
    allowed: set[str] | None = None
    """Shrinking: the only kinds that still happen."""

    @classmethod
    def drawn(cls, seed: int) -> Faults:
        """A profile: some kinds of faults, each with a rate; one run in eight has none."""
        chance = random.Random(f"{seed} faults")  # noqa: S311  # to be repeatable is the point
        if chance.random() < 0.125:
            return cls({}, chance)
        kinds = [kind for kind in KINDS if chance.random() < 0.5]
        return cls({kind: chance.choice(_RATES[kind]) for kind in kinds}, chance)

    def choose(self, *, is_write: bool, may_repeat: bool, decides: bool) -> str | None:
        """The fault that this request meets; counted."""
        if not self.is_active or not self.rates:
            return None
        for kind, rate in self.rates.items():
            if (kind in WRITES and not is_write) or (kind == "lost_read" and is_write):
                continue
            if kind == "repeated" and not may_repeat:
                continue
            if self.chance.random() < rate * (_ON_COMMIT if decides else 1.0):
                if self.allowed is not None and kind not in self.allowed:
                    continue
                self.activations[kind] += 1
                return kind
        return None
