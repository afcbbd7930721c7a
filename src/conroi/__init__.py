"""conroi: transactions over Lance tables.

>>> import conroi
>>> orders = conroi.create_table("memory://orders-front", [{"id": 1, "amount": 5.0}], key="id")
>>> orders.append([{"id": 2, "amount": 7.5}]).count_rows()
2
"""

from conroi.commit.change import CommitResult
from conroi.environment import Environment
from conroi.errors import (
    AlreadyExistsError,
    ClosedError,
    CommitStateUnknown,
    ConflictError,
    ConroiError,
    CorruptionError,
    DuplicateKeyError,
    ExpectedVersionMismatch,
    ForkedTableError,
    IncompatibleConflict,
    InsertInterrupted,
    InvalidInputError,
    LocksRequired,
    LockTimeout,
    NotFoundError,
    RetryableConflict,
    StoreError,
    StoreUnavailable,
    TooMuchContention,
    UnsupportedError,
)
from conroi.format.naming import ManifestNaming
from conroi.format.transaction import Transaction as LanceTransaction
from conroi.history import Commit
from conroi.lake import Lake, LakeCommit, connect
from conroi.merging.builder import MergeResult
from conroi.opening import commit, create_table, open_table
from conroi.retrying import retry
from conroi.table import Table
from conroi.table_transaction import TableTransaction
from conroi.transaction import Transaction, TransactionResult
from conroi.version import __version__

__all__ = [
    "AlreadyExistsError",
    "ClosedError",
    "Commit",
    "CommitResult",
    "CommitStateUnknown",
    "ConflictError",
    "ConroiError",
    "CorruptionError",
    "DuplicateKeyError",
    "Environment",
    "ExpectedVersionMismatch",
    "ForkedTableError",
    "IncompatibleConflict",
    "InsertInterrupted",
    "InvalidInputError",
    "Lake",
    "LakeCommit",
    "LanceTransaction",
    "LockTimeout",
    "LocksRequired",
    "ManifestNaming",
    "MergeResult",
    "NotFoundError",
    "RetryableConflict",
    "StoreError",
    "StoreUnavailable",
    "Table",
    "TableTransaction",
    "TooMuchContention",
    "Transaction",
    "TransactionResult",
    "UnsupportedError",
    "__version__",
    "commit",
    "connect",
    "create_table",
    "open_table",
    "retry",
]
