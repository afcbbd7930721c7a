"""Insert locks: mutual exclusion of inserts into one table, across all processes and hosts of a lake."""

from conroi.locks.held import LockInfo
from conroi.locks.insert_lock import InsertLock
from conroi.locks.locks import Locks, Mode, locks_of

__all__ = ["InsertLock", "LockInfo", "Locks", "Mode", "locks_of"]
