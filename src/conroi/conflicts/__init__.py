"""Conflict resolution of optimistic concurrency control: the conflict matrix, the rebase, the explanation. Pure."""

from conroi.conflicts.matrix import are_unrelated
from conroi.conflicts.outcome import Outcome
from conroi.conflicts.reason import Reason, Verdict, Winner
from conroi.conflicts.rebase import Rebase
from conroi.conflicts.staged import Staged
from conroi.conflicts.vectors import vector_key

__all__ = ["Outcome", "Reason", "Rebase", "Staged", "Verdict", "Winner", "are_unrelated", "vector_key"]
