"""Duration syntax: `7d`, `12h`, `30m`, `45s`, or a timedelta."""

from __future__ import annotations

import re
from datetime import timedelta

from conroi.errors import InvalidInputError
from conroi.stores.leases import LONGEST_S

Duration = timedelta | str
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")


def lease_seconds(keep: Duration) -> float:
    """The duration of a lease in seconds; InvalidInputError if it is invalid."""
    seconds = seconds_of(keep, "keep")
    if not 1 <= seconds <= LONGEST_S:
        raise InvalidInputError(
            f"keep={keep!r} is no time for a lease.",
            hint="Give from a second to 400 days; tag a version that must stay for longer.",
        )
    return seconds


def seconds_of(duration: Duration, name: str) -> float:
    """The seconds; `name` is the argument, for the message.

    >>> seconds_of("1.5h", "min_age"), seconds_of(timedelta(days=1), "min_age")
    (5400.0, 86400.0)
    """
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    else:
        found = _TEXT.fullmatch(duration.strip().lower()) if isinstance(duration, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        seconds = -1.0 if found is None else float(found[1]) * _UNITS_S[found[2]]
    if seconds < 0:
        raise InvalidInputError(
            f"{name}={duration!r} is not an age.", hint='Give text such as "7d", "12h" or "30m", or a timedelta.'
        )
    return seconds
