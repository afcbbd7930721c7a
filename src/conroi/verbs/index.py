"""Index creation: pylance builds the index files, conroi commits them."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from pyroaring import BitMap

from conroi.commit.change import Plan
from conroi.data.arrow_types import index_from_pylance
from conroi.data.pylance import has_sections, pylance_errors
from conroi.data.table_version import TableVersion, path_of, paths_of_fields
from conroi.errors import (
    AlreadyExistsError,
    CorruptionError,
    InvalidInputError,
    NotFoundError,
    StoreError,
    UnsupportedError,
)
from conroi.format import lance_pb2 as pb
from conroi.format.fields import fields_by_path
from conroi.format.manifest import count_rows
from conroi.format.naming import index_dir
from conroi.operations import CreateIndex
from conroi.operations.indices import covered_fragments, unindexed, with_coverage_of_today

SCALAR_KINDS = ("BTREE", "BITMAP", "LABEL_LIST", "NGRAM", "ZONEMAP", "BLOOMFILTER")
TEXT_KINDS = ("INVERTED", "FTS")
ROWS_PER_PARTITION = 4096
"""So many vectors go into one partition where the index does not say any more how many it had."""
VECTOR_KINDS = ("IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_HNSW_FLAT", "IVF_HNSW_PQ", "IVF_HNSW_SQ", "IVF_RQ")


def create_index(
    pinned: TableVersion, column: str, kind: str, *, name: str | None = None, replace: bool = False, **options: Any
) -> Plan:
    """Build an index over all rows of the version; `options` go to pylance (num_partitions, metric, …)."""
    kind = kind.upper()
    if kind not in (*SCALAR_KINDS, *TEXT_KINDS, *VECTOR_KINDS):
        raise InvalidInputError(
            f"There is no kind of index called {kind}.",
            table=pinned.root,
            hint=f"Scalar: {', '.join(SCALAR_KINDS)}; text: INVERTED; vector: {', '.join(VECTOR_KINDS)}.",
        )
    path = path_of(pinned, column)
    name = name or f"{'.'.join(path)}_idx"
    replaced = tuple(index for index in pinned.manifest.indices if index.name == name)
    if replaced and not replace:
        raise _taken(pinned, name, replaced[0])
    # Of a table without rows the index covers nothing yet; optimize_indices() brings in what comes.
    fragments = [fragment.id for fragment in pinned.manifest.fragments]
    if not fragments and kind == "BITMAP":  # pylance builds one only from rows
        raise InvalidInputError(
            "The table has no rows, and an index of kind BITMAP is built from rows.",
            table=pinned.root,
            hint="Append rows first, or make a BTREE.",
        )
    built = _build(pinned, path, kind, name, fragments, options)
    return Plan(pinned.staged(CreateIndex(new_indices=(built,), removed_indices=replaced)))


def _taken(pinned: TableVersion, name: str, index: pb.IndexMetadata) -> AlreadyExistsError:
    names = {field.id: path for path, field in fields_by_path(pinned.manifest.fields).items()}
    columns = ", ".join(names.get(number, str(number)) for number in index.fields)
    return AlreadyExistsError(
        f"The table has an index {name!r} already: {_kind_of(index)} on {columns}.",
        table=pinned.root,
        hint="Give the new one another name with name=…, and the table has both. replace=True drops the existing one.",
    )


def _build(
    pinned: TableVersion, path: Sequence[str], kind: str, name: str, fragments: list[int], options: Mapping[str, Any]
) -> pb.IndexMetadata:
    column = ".".join(f"`{part}`" for part in path)
    with _tokenizer_errors(pinned, options.get("base_tokenizer")), pylance_errors(pinned.root):
        index = pinned.dataset.create_index_uncommitted(
            column, "INVERTED" if kind == "FTS" else kind, name=name, replace=True, fragment_ids=fragments, **options
        )
        if any(file.path.startswith("staging/") for file in index.files or ()):
            index = pinned.dataset.merge_existing_index_segments([index])
    metadata = index_from_pylance(index)
    metadata.name = name
    metadata.dataset_version = pinned.version  # pylance may know a version inside a transaction by another number
    folder = index_dir(UUID(index.uuid))
    pinned.files.objects.sync([f"{folder}/{file.path}" for file in metadata.files])
    return metadata


@contextmanager
def _tokenizer_errors(pinned: TableVersion, tokenizer: object) -> Generator[None]:
    """A model that a tokenizer needs is no part of the table, so it is not the table that lacks a file."""
    try:
        yield
    except (CorruptionError, InvalidInputError, StoreError) as error:
        if not isinstance(tokenizer, str) or "/" not in tokenizer:
            raise
        raise InvalidInputError(
            f"The tokenizer {tokenizer!r} cannot be loaded: {error.message}",
            table=pinned.root,
            hint="Install its language model where Lance looks for it: in LANCE_LANGUAGE_MODEL_HOME, or by `python -m "
            f"lance.download {tokenizer.partition('/')[0]}`.",
        ) from error


# ------------------------------------------------------------------------- what no index covers


def optimize_indices(pinned: TableVersion, names: Sequence[str] | None = None) -> Plan | None:
    """Index the rows that indices do not cover: all indices, or those of these names; None if there are no such rows.

    Scalar and text indices are built anew, as one segment: readers before pylance 14 know no other. Vector indices get
    a segment for the rows that they lack.
    """
    lacking = unindexed(pinned.manifest)
    for name in names or ():
        if name not in lacking:
            raise no_such_index(pinned, name)
    new: list[pb.IndexMetadata] = []
    gone: list[pb.IndexMetadata] = []
    for name in lacking if names is None else dict.fromkeys(names):
        if lacking[name]:
            built, replaced = _completed(pinned, name, lacking[name])
            new.append(built)
            gone += replaced
    if not new:
        return None
    operation = CreateIndex(new_indices=tuple(new), removed_indices=tuple(gone))
    return Plan(pinned.staged(operation), counts={"indices_optimized": len(new)})


def _completed(pinned: TableVersion, name: str, lacking: BitMap) -> tuple[pb.IndexMetadata, list[pb.IndexMetadata]]:
    """What the index needs to cover everything, and the segments that go for it."""
    segments = [index for index in pinned.manifest.indices if index.name == name]
    kind, options = _settings_of(pinned, segments)
    names = {field.id: path for path, field in paths_of_fields(pinned).items()}
    path = names[segments[0].fields[0]]
    everything = [fragment.id for fragment in pinned.manifest.fragments]
    if kind in VECTOR_KINDS and len(lacking) < len(everything):
        there = BitMap(everything)
        today = [index for index in with_coverage_of_today(pinned.manifest) if index.name == name]
        pairs = zip(segments, today, strict=True)
        useless = [index for index, now in pairs if there.isdisjoint(covered_fragments(now) or BitMap())]
        try:
            return _build(pinned, path, kind, name, list(lacking), options), useless
        except (InvalidInputError, StoreError):  # too few rows to train on: with all there are enough
            pass
    return _build(pinned, path, kind, name, everything, options), segments


def _settings_of(pinned: TableVersion, segments: Sequence[pb.IndexMetadata]) -> tuple[str, dict[str, Any]]:
    """The kind of an index, and what pylance is to be told to build it as it was."""
    index = segments[-1]
    kind = _KINDS.get(_kind_of(index))
    if kind is not None and kind not in _WITH_SETTINGS:
        return kind, {}
    if not has_sections(pinned.files.objects, pinned.snapshot):
        raise UnsupportedError(
            f"The settings of the index {index.name!r} are not known before the version has its final name.",
            table=pinned.root,
            version=pinned.version,
            hint="Call optimize_indices() after the transaction, on the table itself.",
        )
    with pylance_errors(pinned.root):
        told: dict[str, Any] = pinned.dataset.stats.index_stats(index.name)
        described = [each for each in pinned.dataset.describe_indices() if each.name == index.name]
    facts: dict[str, Any] = told["indices"][-1]  # empty for an index that has no rows left
    details: dict[str, Any] = described[0].details or {}
    if kind in ("ZONEMAP", "BLOOMFILTER"):
        return kind, {key: facts[key] for key in _WITH_SETTINGS[kind] if key in facts}
    if kind == "INVERTED":
        return kind, {key: details[key] for key in _WITH_SETTINGS[kind] if details.get(key) is not None}
    if "metric_type" not in details:
        raise UnsupportedError(
            f"The index {index.name!r} does not record how it was built.",
            table=pinned.root,
            version=pinned.version,
            hint="Drop it and make it again.",
        )
    rows = count_rows(pinned.manifest.fragments)
    return _vector_settings(details, facts.get("num_partitions") or max(1, rows // ROWS_PER_PARTITION))


def _vector_settings(details: Mapping[str, Any], partitions: int) -> tuple[str, dict[str, Any]]:
    options: dict[str, Any] = {"num_partitions": partitions, "metric": details["metric_type"].lower()}
    graph: Mapping[str, Any] = details.get("hnsw") or {}
    if graph:
        options |= {"m": graph["max_connections"], "ef_construction": graph["construction_ef"]}
    codes: Mapping[str, Any] = details.get("compression") or {}
    for key in ("num_bits", "num_sub_vectors"):
        if key in codes:
            options[key] = codes[key]
    return f"IVF_{'HNSW_' if graph else ''}{codes.get('type', 'flat').upper()}", options


def _kind_of(index: pb.IndexMetadata) -> str:
    """What the details call it, such as `BTree`."""
    return index.index_details.type_url.rpartition(".")[2].removesuffix("IndexDetails") or "an index"


_KINDS = {
    "BTree": "BTREE",
    "Bitmap": "BITMAP",
    "LabelList": "LABEL_LIST",
    "NGram": "NGRAM",
    "ZoneMap": "ZONEMAP",
    "BloomFilter": "BLOOMFILTER",
    "Inverted": "INVERTED",
}
_WITH_SETTINGS = {
    "ZONEMAP": ("rows_per_zone",),
    "BLOOMFILTER": ("number_of_items", "probability"),
    "INVERTED": (
        "base_tokenizer",
        "language",
        "with_position",
        "max_token_length",
        "lower_case",
        "stem",
        "remove_stop_words",
        "custom_stop_words",
        "ascii_folding",
        "min_ngram_length",
        "max_ngram_length",
        "prefix_only",
    ),
}
"""What pylance says of such an index and takes again."""


def no_such_index(pinned: TableVersion, name: str) -> NotFoundError:
    """The error for an index that does not exist."""
    names = sorted({index.name for index in pinned.manifest.indices})
    return NotFoundError(
        f"The table has no index {name!r}.",
        table=pinned.root,
        version=pinned.version,
        hint=f"It has {', '.join(names)}." if names else "It has none.",
    )
