"""Where the bytes are, and how a new version becomes real.

`attach` and `detach` move a table under an external store and out of it; `postgres_lock` and `dynamodb_lock` make locks
for `commit_lock=`.
"""

from conroi.stores.attaching import attach, detach
from conroi.stores.dynamodb_locks import dynamodb_lock
from conroi.stores.file_lock import FileLock
from conroi.stores.postgres_locks import postgres_lock

__all__ = ["FileLock", "attach", "detach", "dynamodb_lock", "postgres_lock"]
