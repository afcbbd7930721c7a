"""Inserts under an insert lock: one worker at a time inserts into a table, over all processes and hosts of a lake."""

from __future__ import annotations

from conroi.inserts.insert_locks import InsertLock, Locks, Mode, locks_of
from conroi.inserts.lock_back_ends import LockInfo

__all__ = ["InsertLock", "LockInfo", "Locks", "Mode", "locks_of"]
