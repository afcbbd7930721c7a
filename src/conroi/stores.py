"""Public names of external manifest stores and commit locks.

`attach` and `detach` move a table into and out of an external manifest store. `postgres_lock` and `dynamodb_lock`
create locks for `commit_lock=`.
"""

from conroi.catalog.attachment import attach, detach
from conroi.locks.dynamodb import dynamodb_lock
from conroi.locks.file import FileLock
from conroi.locks.postgres import postgres_lock

__all__ = ["FileLock", "attach", "detach", "dynamodb_lock", "postgres_lock"]
