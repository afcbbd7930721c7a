"""Every name that conroi leaves on disk: folders, files, and the keys of properties, settings and metadata.

Processes of other releases share these names, so none of them changes. `tests/static/on_disk.txt` records what appears
on a real lake, and a static test keeps these names from being spelled anywhere else. How versions are numbered in file
names is in `conroi.format.naming`.
"""

from __future__ import annotations

# ------------------------------------------------------------------------------ folders and files of Lance

VERSIONS_DIR = "_versions"
TRANSACTIONS_DIR = "_transactions"
DELETIONS_DIR = "_deletions"
INDICES_DIR = "_indices"
DATA_DIR = "data"
VERSION_HINT_PATH = f"{VERSIONS_DIR}/latest_version_hint.json"
REFS_DIR = "_refs"
TAGS_DIR = f"{REFS_DIR}/tags"
BRANCH_REFS_DIR = f"{REFS_DIR}/branches"
TREE_DIR = "tree"
"""Folder of a table's branches, each with folders of its own like a table."""
TEMPORARY_PREFIX = ".tmp"
"""Prefix of the names of files that are being written, by conroi and by pylance."""
LAKE_MANIFEST = "__manifest"
"""The table of a lake that lists its tables."""
MERGES_ROW = "__merges"
"""The row of a lake that records what was merged into it; pylance takes it for an empty namespace."""

# ------------------------------------------------------------------------------ folders and files of conroi

OWN_DIR = "_conroi"
"""Folder of conroi's own records in lakes and tables; the only thing left of a collected table."""
BRANCHES_DIR = f"{OWN_DIR}/branches"
CLOCK_PREFIX = f"{OWN_DIR}/clock-"
"""A file that is written to learn the time of the storage."""
COLLECTED_DIR = f"{OWN_DIR}/swept"
CREATED_MARK = f"{OWN_DIR}/created"
"""Marker in the folder of a table: which table the lake created there."""
DROPPED_DIR = f"{OWN_DIR}/dropped"
EXPIRED_DIR = f"{OWN_DIR}/forgotten"
IDEMPOTENCY_DIR = f"{OWN_DIR}/keys"
LEASES_DIR = f"{OWN_DIR}/leases"
LOCKS_DIR = f"{OWN_DIR}/locks"
RELEASED_DIR = f"{OWN_DIR}/released"
"""Beside the lake's history: the folders of tables that were deregistered, one record each."""
REPLICA_DIR = f"{OWN_DIR}/lake"
"""The copy of a lake's history that is kept in a SQL store."""
RESERVED_DIR = f"{OWN_DIR}/reserved"
RESTORING_DIR = f"{OWN_DIR}/restoring"
"""A process that restores an old version says so here, as `{version}-{uuid}`; the markers stay until they are
collected.
"""
SHARED_DIR = f"{OWN_DIR}/shared"
"""Beside `__manifest`: a marker for each table folder that other Lance clients have opened."""
TAG_CLAIMS_DIR = f"{OWN_DIR}/tags"

# ------------------------------------------------------------------------------ properties of a commit

COMMIT_MESSAGE_PROPERTY = "__lance_commit_message"
OWN_PREFIX = "conroi."
"""Prefix of the keys that belong to conroi."""
AUTHOR_PROPERTY = "conroi.author"
BASE_PROPERTY = "conroi.base"
"""The version a repaired operation was first made on; its read version is then a newer one."""
FOLDED_PROPERTY = "conroi.folded"
"""The names of several changes that became one version, where Lance has no operation that does them all."""
IDEMPOTENCY_PROPERTY = "conroi.idempotency"
INSERT_PROPERTY = "conroi.insert"
LAYOUT_PROPERTY = "conroi.layout"
MEMBERS_PROPERTY = "conroi.members"
"""The commits that one version has, if there are several: see conroi.catalog.group_commit."""
MERGE_SOURCE_PROPERTY = "conroi.merge.source"
"""The branch that a commit merged."""
MERGE_VERSION_PROPERTY = "conroi.merge.version"
"""The version of that branch."""
RECORDS_PROPERTY = "conroi.records"
SPARK_JOB_PROPERTY = "conroi.spark.job"
STREAM_BATCH_PROPERTY = "conroi.stream.batch"
STREAM_QUERY_PROPERTY = "conroi.stream.query"
WRITER_PROPERTY = "conroi.writer"

# ------------------------------------------------------------------------------ metadata of a row of `__manifest`

ROW_INCARNATION = "conroi.incarnation"
"""The identity of a table, whatever its name and folder."""
ROW_LOCK = "conroi.lock"
ROW_MANIFEST = "conroi.manifest"
ROW_REPAIRED = "conroi.mended"
ROW_TRANSACTION = "conroi.transaction"
ROW_VERSION = "conroi.version"

# ------------------------------------------------------------------------------ settings, metadata, documents

ADDED_METADATA = "conroi.added"
"""In the metadata of a field that was added on a branch: a random id, since another branch may give another column the
same field id.
"""
AUTO_COMPACT_SETTING = "conroi.auto_compact"
"""The number of small fragments of about the same size above which writers compact them."""
CHECKSUM_KEY = "conroi.checksum"
DELETED_SETTING = "conroi.deleted"
"""The setting of a branch's `__manifest` that marks it as deleted: a writer that reads it, or loses a race to it,
stops.
"""
INSERTS_SETTING = "conroi.inserts"
"""The setting of the lake that holds its kind of insert locks."""
LAKE_TAG_PREFIX = "conroi."
"""Prefix of the tags of a table that protect versions which its lake needs: see conroi.catalog.lance_tags."""
LINEAGE_KEY = "conroi.lineage"
"""Where the branch of a lake, or of a table, started: which its name no longer tells."""
RELATIVE_BASE_PREFIX = "conroi:"
"""Prefix of the names of base paths that are relative to the table."""
RETYPED_METADATA = "conroi.retyped"
"""In the metadata of a field that replaced another one because its type was altered: the ids that it had, newest first.
By it a merge of branches knows that the two are one column.
"""
TAG_ID_KEY = "conroi.id"
