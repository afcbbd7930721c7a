"""Verbs of a table, one module per subject: do the data work on one version, and return the operation to commit.

Nothing here commits. A verb returns a `Plan`; the table (or a transaction) passes it to the commit loop, and calls the
verb again on a newer version after a retryable conflict.
"""

from conroi.verbs.append import Appending
from conroi.verbs.columns import add_columns, alter_columns, drop_columns, rename_columns
from conroi.verbs.compact import compact, sort
from conroi.verbs.create import clone
from conroi.verbs.index import create_index, optimize_indices
from conroi.verbs.key_declaration import declare_key
from conroi.verbs.overwrite import overwrite, overwrite_where
from conroi.verbs.settings import (
    add_base,
    drop_index,
    reserve_fragments,
    restore,
    set_config,
    set_metadata,
    update_mem_wal_state,
)
from conroi.verbs.update import delete, replace_column_data, update

__all__ = [
    "Appending",
    "add_base",
    "add_columns",
    "alter_columns",
    "clone",
    "compact",
    "create_index",
    "declare_key",
    "delete",
    "drop_columns",
    "drop_index",
    "optimize_indices",
    "overwrite",
    "overwrite_where",
    "rename_columns",
    "replace_column_data",
    "reserve_fragments",
    "restore",
    "set_config",
    "set_metadata",
    "sort",
    "update",
    "update_mem_wal_state",
]
