"""Conflict resolution of optimistic concurrency control: the conflict matrix, the rebase, the explanation. Pure."""

from conroi.conflicts.facts import Staged
from conroi.conflicts.matrix import are_unrelated
from conroi.conflicts.reason import Reason, Verdict, Winner
from conroi.conflicts.rebase import Rebase
from conroi.conflicts.row_merge import vector_key
from conroi.conflicts.rule import Outcome

__all__ = ["Outcome", "Reason", "Rebase", "Staged", "Verdict", "Winner", "are_unrelated", "vector_key"]
