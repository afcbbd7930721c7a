"""What each part of pylance's Python API does to a table, read from pylance 12, 13 and 14 and their documentation.

COMMITS: by this a version, a tag, a branch or a deletion becomes visible to others. Only conroi may do that.
HARMLESS: reads, or writes files that no reader sees before a commit.

A name that not every supported release has stands in SINCE or UNTIL as well. A name that is in no list fails the test,
so a newer pylance cannot bring in a new way to commit unnoticed.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Surface:
    """One module or class of pylance: its path, and every public name in it that can be called or read."""

    path: str
    commits: frozenset[str]
    harmless: frozenset[str]

    def public_names(self) -> set[str]:
        """The names that the installed pylance has here; of a module its own functions and classes."""
        module_name, _, class_name = self.path.partition(":")
        module = importlib.import_module(module_name)
        if class_name:
            return {name for name in dir(getattr(module, class_name)) if not name.startswith("_")}
        return {name for name, value in vars(module).items() if not name.startswith("_") and _is_pylance(value)}


def surface(path: str, *, commits: str = "", harmless: str = "") -> Surface:
    return Surface(path, frozenset(commits.split()), frozenset(harmless.split()))


def _is_pylance(value: object) -> bool:
    """Whether a function or class is pylance's own; what comes from its Rust part names no module, or an odd one."""
    module = getattr(value, "__module__", None) or "lance"
    return (inspect.isroutine(value) or inspect.isclass(value)) and module.partition(".")[0] not in _STANDARD_MODULES


_STANDARD_MODULES = sys.stdlib_module_names - {"builtins"}


_DATASET_COMMITS = """
    add_bases add_columns alter_columns cleanup_old_versions commit commit_batch commit_existing_index_segments
    create_branch create_index deep_clone delete delete_config_keys drop drop_columns drop_index initialize_mem_wal
    mem_wal_writer merge migrate_manifest_paths_v2 replace_field_metadata replace_schema_metadata restore shallow_clone
    truncate_table update update_config update_field_metadata update_metadata update_schema_metadata
"""

_DATASET_HARMLESS = """
    all_files base_paths branches checkout_latest checkout_version config count_rows data_storage_version delta
    describe_indices explain_cleanup_old_versions fragment_ids get_fragment get_fragments get_ivf_model get_transactions
    get_version has_stable_row_ids index_statistics initial_storage_options io_stats_incremental io_stats_snapshot
    lance_schema latest_storage_options latest_version max_field_id mem_wal_index_details merge_existing_index_segments
    merge_index_metadata metadata prewarm_index read_blob_ranges read_blobs read_transaction remap_row_addrs scanner
    schema schema_metadata session sql storage_options_accessor tags take take_blobs tracked_files uri validate version
    version_refs versions
"""

SURFACES = (
    surface(
        "lance",
        commits="write_dataset ShardWriter",
        harmless="""
            DescribeTableRequest LanceNamespace
            Blob BlobArray BlobColumn BlobDescriptor BlobDescriptorArrayBuilder BlobFile CleanupCandidateFile
            CleanupExplanation CleanupReferencedBranch CleanupStats CompactedSsTable DataStatistics DatasetBasePath
            DedicatedBlobWriter ExecutionPlan FFILanceTableProvider FieldStatistics FragmentMetadata FtsToken Index
            IndexFile IndexProgress LanceDataset LanceFragment LanceOperation LanceScanner LsmPointLookupPlanner
            LsmScanner LsmVectorSearchPlanner MergeInsertBuilder PackedBlobWriter ScanStatistics Session ShardSnapshot
            ShardingField ShardingSpec Transaction batch_udf blob_array blob_field bytes_read_counter dataset
            evaluate_sharding_spec iops_counter json_to_schema sanitize_ts schema_to_json set_logger simd_info tokenize
        """,
    ),
    surface(
        "lance:LanceDataset",
        commits=_DATASET_COMMITS + " create_scalar_index from_pydantic_model insert",
        harmless=_DATASET_HARMLESS
        + """
            centroids create_index_uncommitted filter has_index head join join_asof list_indices merge_insert
            new_file_session optimize partition_expression replace_schema sample slice sort_by stats to_batches
            to_pandas to_table
        """,
    ),
    surface(  # behind LanceDataset._ds
        "lance.lance:_Dataset",
        commits=_DATASET_COMMITS
        + """
            add_columns_from_reader add_columns_with_schema commit_transaction create_tag delete_branch delete_tag
            optimize_indices replace_branch_metadata replace_tag_metadata update_field_metadata_by_path update_tag
        """,
        harmless=_DATASET_HARMLESS
        + """
            branches_ordered count_deleted_rows count_fragments current_version data_stats find_duplicate_pairs
            find_duplicate_pairs_in_partition get_ivf_partition_info get_table_metadata
            hamming_clustering_for_ivf_partition hamming_clustering_for_range hamming_clustering_for_sample
            index_cache_entry_count index_cache_hit_rate num_small_files read_blobs_by_addresses read_blobs_by_indices
            read_index_partition serialized_manifest tags_ordered take_blobs_by_addresses take_blobs_by_indices
            take_rows take_scan
        """,
    ),
    surface(
        "lance.dataset:MergeInsertBuilder",
        commits="execute execute_batches",
        harmless="""
            analyze_plan analyze_plan_batches conflict_retries data_storage_version execute_uncommitted
            execute_uncommitted_batches explain_plan mark_sstables_as_compacted retry_timeout target_all_bases
            target_bases use_index when_matched_delete when_matched_fail when_matched_update_all
            when_not_matched_by_source_delete when_not_matched_insert_all write_mode
        """,
    ),
    surface(
        "lance.dataset:DatasetOptimizer",
        commits="compact_files disable_auto_cleanup enable_auto_cleanup optimize_indices",
    ),
    surface(
        "lance.dataset:Tags",
        commits="create delete replace_metadata update",
        harmless="get_version list list_ordered",
    ),
    surface("lance.dataset:Branches", commits="delete replace_metadata", harmless="list list_ordered"),
    surface("lance.optimize:Compaction", commits="commit execute", harmless="plan"),
    surface("lance.optimize:CompactionPlan", harmless="from_json json num_tasks read_version tasks"),
    surface("lance.optimize:CompactionTask", harmless="execute fragments from_json json read_version"),
    surface(
        "lance:LanceFragment",  # its verbs return new metadata and leave the commit to the caller
        harmless="""
            count_rows create create_from_file data_files delete delete_rows deletion_file fragment_id head merge
            merge_columns metadata num_deletions open_session partition_expression physical_rows physical_schema scanner
            schema take to_batches to_pandas to_table update_columns validate
        """,
    ),
    surface(
        "lance.optimize",
        harmless="Compaction CompactionMetrics CompactionOptions CompactionPlan CompactionTask RewriteResult",
    ),
    surface(
        "lance.dataset",
        commits="write_dataset",
        harmless="""
            AlterColumn AutoCleanupConfig BatchUDF BatchUDFCheckpoint Bitmap BlobFile Branch Branches BulkCommitResult
            CleanupExplanation CleanupStats ColumnOrdering Compaction CompactionMetrics DataFile DataStatistics
            DatasetBasePath DatasetDelta DatasetOptimizer DatasetStats DeleteResult DocumentGranularity ExecuteResult
            FieldStatistics FragmentMetadata FullTextQuery IOStats Index IndexConfig IndexFile IndexInformation
            IndexSegment LanceDataset LanceFragment LanceOperation LanceScanner LanceSchema LanceStats
            MergeInsertBuilder MinHashQuery PySearchFilter RecordBatch ScanStatistics ScannerBuilder Schema Session
            SqlQuery SqlQueryBuilder SupportedDistributedIndices Tag Tags Transaction UpdateResult VectorIndexReader
            VectorSearchQuery Version VersionRef batch_udf model_to_dict normalize_transform serialize_row_addrs
            td_to_micros
        """,
    ),
    surface(
        "lance.fragment",
        harmless="""
            BatchUDF Bitmap DataFile DeletionFile FragmentMetadata FragmentSession FragmentWriteProgress LanceFragment
            NoopFragmentWriteProgress RowDatasetVersionMeta RowIdMeta RowIdSequence Session normalize_transform
            write_fragments
        """,
    ),
    surface(
        "lance.file",
        harmless="""
            LanceBufferDescriptor LanceColumnMetadata LanceFileMetadata LanceFileReader LanceFileSession
            LanceFileStatistics LanceFileWriter LancePageMetadata ListResult ReaderResults stable_version
        """,
    ),
)

SINCE = {
    13: {
        "lance:LanceDataset": {"base_paths"},
        "lance.lance:_Dataset": {"find_duplicate_pairs", "find_duplicate_pairs_in_partition"},
        "lance.dataset:MergeInsertBuilder": {"data_storage_version"},
        "lance.dataset": {"MinHashQuery"},
    },
    14: {
        "lance:LanceDataset": {"fragment_ids", "get_version"},
        "lance.lance:_Dataset": {"current_version", "fragment_ids"},
    },
}
"""Names that a release brought."""
UNTIL = {12: {"lance": {"DescribeTableRequest", "LanceNamespace"}}}
"""Names that the release after this one no longer has."""


def absent(path: str, release: int) -> set[str]:
    """The listed names of this module or class that this release of pylance does not have."""
    not_yet = [names.get(path, set()) for since, names in SINCE.items() if release < since]
    gone = [names.get(path, set()) for until, names in UNTIL.items() if release > until]
    return set[str]().union(*not_yet, *gone)


COMMITTING_NAMES = frozenset[str]().union(*(known.commits for known in SURFACES))

# Other parts of pylance are not listed above, so it was not reviewed whether they commit: they may not be imported.
EXAMINED_MODULES = frozenset(
    {
        "lance",
        "lance.blob",  # types of columns
        "lance.commit",  # error types
        "lance.dataset",
        "lance.file",
        "lance.fragment",
        "lance.optimize",
        "lance.progress",  # callbacks
        "lance.query",  # full text queries, as values
        "lance.schema",  # schemas, as values
        "lance.types",  # type aliases
        "lance.udf",  # functions over batches
    }
)
