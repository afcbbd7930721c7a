"""Progress bars: convert the running totals that the verbs of a lake report to increments."""

from __future__ import annotations

from collections.abc import Callable


def so_far(advance: Callable[[int], None]) -> Callable[[int], None]:
    """A callback for totals, from one for steps."""
    done = 0

    def told(count: int) -> None:
        nonlocal done
        advance(count - done)
        done = count

    return told
