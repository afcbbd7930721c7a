"""Conflict resolution of optimistic concurrency control: the conflict matrix, the rebase, the explanation. Pure."""

from conroi.conflicts.facts import Staged
from conroi.conflicts.matrix import are_unrelated
from conroi.conflicts.reason import ConcurrentCommit, Reason, Verdict
from conroi.conflicts.rebase import Rebase
from conroi.conflicts.row_merge import vector_key
from conroi.conflicts.rules import Outcome

__all__ = ["ConcurrentCommit", "Outcome", "Reason", "Rebase", "Staged", "Verdict", "are_unrelated", "vector_key"]
