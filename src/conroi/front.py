"""Public API: every name that `import conroi` provides.

`conroi/__init__.py` imports this module lazily, at the first access to one of them, so that `conroi --help` and other
uses that need none of them start fast.
"""

from conroi import export
from conroi.branches.diff import LakeDiff
from conroi.branches.results import LakeMerge
from conroi.commit.change import CommitResult
from conroi.data.sql import as_literal as literal
from conroi.doctor.findings import Diagnosis, Finding
from conroi.environment import Environment
from conroi.errors import (
    AlreadyExistsError,
    BaseVersionExpired,
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
    MergeConflict,
    NotFoundError,
    RetryableConflict,
    StoreError,
    StoreUnavailable,
    TooMuchContention,
    UnknownArgumentError,
    UnsupportedError,
    UntestedPylanceWarning,
    VersionExpired,
)
from conroi.format.naming import ManifestNaming
from conroi.format.transaction import Transaction as LanceTransaction
from conroi.history import Commit
from conroi.lake import Lake
from conroi.lake_history import LakeCommit
from conroi.lake_snapshot import LakeSnapshot
from conroi.maintenance.reports import Collected, Expired
from conroi.merge.builder import MergeResult
from conroi.opening import commit, connect, create_table, open_table
from conroi.query import QueryResult
from conroi.retry_policy import retry
from conroi.snapshots.branch_names import Branch
from conroi.table import Table
from conroi.table_transaction import TableTransaction
from conroi.transaction import Transaction, TransactionResult
from conroi.version import __version__
from conroi.versions.retention import Lease, LeaseInfo

__all__ = [
    "AlreadyExistsError",
    "BaseVersionExpired",
    "Branch",
    "ClosedError",
    "Collected",
    "Commit",
    "CommitResult",
    "CommitStateUnknown",
    "ConflictError",
    "ConroiError",
    "CorruptionError",
    "Diagnosis",
    "DuplicateKeyError",
    "Environment",
    "ExpectedVersionMismatch",
    "Expired",
    "Finding",
    "ForkedTableError",
    "IncompatibleConflict",
    "InsertInterrupted",
    "InvalidInputError",
    "Lake",
    "LakeCommit",
    "LakeDiff",
    "LakeMerge",
    "LakeSnapshot",
    "LanceTransaction",
    "Lease",
    "LeaseInfo",
    "LockTimeout",
    "LocksRequired",
    "ManifestNaming",
    "MergeConflict",
    "MergeResult",
    "NotFoundError",
    "QueryResult",
    "RetryableConflict",
    "StoreError",
    "StoreUnavailable",
    "Table",
    "TableTransaction",
    "TooMuchContention",
    "Transaction",
    "TransactionResult",
    "UnknownArgumentError",
    "UnsupportedError",
    "UntestedPylanceWarning",
    "VersionExpired",
    "__version__",
    "commit",
    "connect",
    "create_table",
    "export",
    "literal",
    "open_table",
    "retry",
]
