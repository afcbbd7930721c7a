"""The sixteen operations of a Lance transaction: their facts, their wire form, and what they do to a manifest.

>>> from conroi.operations import ReserveFragments, of, transaction
>>> made = transaction(ReserveFragments(2), read_version=3, uuid="4ac2…")
>>> made.file_name, of(made)
('3-4ac2….txn', ReserveFragments(num_fragments=2, unknown=b''))
"""

from __future__ import annotations

from conroi.format.transaction import Transaction
from conroi.operations.append import Append
from conroi.operations.base import Operation, Step, Unknown
from conroi.operations.build import build, transaction, with_operation
from conroi.operations.clone import Clone
from conroi.operations.create_index import CreateIndex
from conroi.operations.data_overlay import DataOverlay
from conroi.operations.data_replacement import DataReplacement
from conroi.operations.delete import Delete
from conroi.operations.folded import as_folded, folded, is_folded
from conroi.operations.mem_wal import UpdateMemWalState
from conroi.operations.merge import Merge
from conroi.operations.overwrite import Overwrite
from conroi.operations.project import Project
from conroi.operations.reserve_fragments import ReserveFragments
from conroi.operations.restore import Restore
from conroi.operations.rewrite import Rewrite
from conroi.operations.update import Update
from conroi.operations.update_bases import UpdateBases
from conroi.operations.update_config import UpdateConfig, update_map

__all__ = [
    "Append",
    "Clone",
    "CreateIndex",
    "DataOverlay",
    "DataReplacement",
    "Delete",
    "Merge",
    "Operation",
    "Overwrite",
    "Project",
    "ReserveFragments",
    "Restore",
    "Rewrite",
    "Step",
    "Unknown",
    "Update",
    "UpdateBases",
    "UpdateConfig",
    "UpdateMemWalState",
    "build",
    "folded",
    "is_folded",
    "of",
    "transaction",
    "update_map",
    "with_operation",
]

_KINDS = {
    "append": Append,
    "clone": Clone,
    "create_index": CreateIndex,
    "data_overlay": DataOverlay,
    "data_replacement": DataReplacement,
    "delete": Delete,
    "merge": Merge,
    "overwrite": Overwrite,
    "project": Project,
    "reserve_fragments": ReserveFragments,
    "restore": Restore,
    "rewrite": Rewrite,
    "update": Update,
    "update_bases": UpdateBases,
    "update_config": UpdateConfig,
    "update_mem_wal_state": UpdateMemWalState,
}


def of(transaction: Transaction) -> Operation:
    """The operation of a transaction, as facts; `Unknown` if it has none that this version knows."""
    field = transaction.wire.WhichOneof("operation")
    if field is None:
        return Unknown.from_wire(transaction.wire)
    return as_folded(_KINDS[field].from_wire(getattr(transaction.wire, field)), transaction.wire)
