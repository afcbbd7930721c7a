"""Storage: objects (files), version stores with conditional puts, and commit locks.

`attach` and `detach` move a table into and out of an external manifest store. `postgres_lock` and `dynamodb_lock`
create locks for `commit_lock=`.
"""

from conroi.stores.attaching import attach, detach
from conroi.stores.dynamodb_locks import dynamodb_lock
from conroi.stores.file_lock import FileLock
from conroi.stores.postgres_locks import postgres_lock

__all__ = ["FileLock", "attach", "detach", "dynamodb_lock", "postgres_lock"]
