"""Randomized exponential backoff after a lost commit race, scaled by the duration of the writer's own attempt."""

from __future__ import annotations

from conroi.environment import Environment

FREE_RETRIES = 2
"""Number of retries without a pause: most races are lost to one other writer that has already finished."""
MOST_DOUBLINGS = 5
LONGEST_S = 2.0
"""Upper bound of a pause, in seconds. Only desynchronizes racing writers: a slow attempt does not justify a longer
pause.
"""


def pause_s(environment: Environment, lost_attempts: int, attempt_s: float) -> float:
    """The pause before the next attempt, in seconds."""
    if lost_attempts <= FREE_RETRIES:
        return 0.0
    doublings = min(lost_attempts - FREE_RETRIES, MOST_DOUBLINGS)
    return environment.uniform(0.0, min(attempt_s * (1 << doublings), LONGEST_S))
