"""Randomized exponential backoff after a lost commit race, scaled by the duration of the writer's own attempt."""

from __future__ import annotations

from conroi.environment import Environment

FREE_RETRIES = 2
"""So many times a loser goes round again at once: most losses are to one neighbour that is already done."""
MOST_DOUBLINGS = 5
LONGEST_S = 2.0
"""A pause is there to part those who race. An attempt that took long, perhaps because it waited itself, is no reason to
wait still longer."""


def pause_s(environment: Environment, lost_attempts: int, attempt_s: float) -> float:
    """The pause before the next attempt, in seconds."""
    if lost_attempts <= FREE_RETRIES:
        return 0.0
    doublings = min(lost_attempts - FREE_RETRIES, MOST_DOUBLINGS)
    return environment.uniform(0.0, min(attempt_s * (1 << doublings), LONGEST_S))
