"""Indices: built by pylance, committed by us."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from conroi.data.convert import index_from_pylance
from conroi.data.pinned import Pinned
from conroi.data.pylance import pylance_errors
from conroi.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from conroi.format import lance_pb2 as pb
from conroi.format.naming import index_dir
from conroi.operations import CreateIndex
from conroi.verbs.plan import Plan

SCALAR_KINDS = ("BTREE", "BITMAP", "LABEL_LIST", "NGRAM", "ZONEMAP", "BLOOMFILTER")
TEXT_KINDS = ("INVERTED", "FTS")
VECTOR_KINDS = ("IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_HNSW_FLAT", "IVF_HNSW_PQ", "IVF_HNSW_SQ", "IVF_RQ")


def create_index(
    pinned: Pinned, column: str, kind: str, *, name: str | None = None, replace: bool = False, **options: Any
) -> Plan:
    """Build an index over all rows of the version; `options` go to pylance (num_partitions, metric, …)."""
    kind = kind.upper()
    if kind not in (*SCALAR_KINDS, *TEXT_KINDS, *VECTOR_KINDS):
        raise InvalidInputError(
            f"There is no kind of index called {kind}.",
            table=pinned.root,
            hint=f"Scalar: {', '.join(SCALAR_KINDS)}; text: INVERTED; vector: {', '.join(VECTOR_KINDS)}.",
        )
    pinned.field(column.partition(".")[0])
    name = name or f"{column}_idx"
    replaced = tuple(index for index in pinned.manifest.indices if index.name == name)
    if replaced and not replace:
        raise AlreadyExistsError(
            f"The table has an index {name!r} already.", table=pinned.root, hint="Pass replace=True to build it anew."
        )
    fragments = [fragment.id for fragment in pinned.manifest.fragments]
    if not fragments:
        raise InvalidInputError("The table has no rows to index.", table=pinned.root, hint="Append rows first.")
    built = _build(pinned, column, kind, name, fragments, options)
    return Plan(pinned.staged(CreateIndex(new_indices=(built,), removed_indices=replaced)))


def _build(
    pinned: Pinned, column: str, kind: str, name: str, fragments: list[int], options: dict[str, Any]
) -> pb.IndexMetadata:
    with pylance_errors(pinned.root):
        index = pinned.dataset.create_index_uncommitted(
            column, "INVERTED" if kind == "FTS" else kind, name=name, replace=True, fragment_ids=fragments, **options
        )
        if any(file.path.startswith("staging/") for file in index.files or ()):
            index = pinned.dataset.merge_existing_index_segments([index])
    metadata = index_from_pylance(index)
    metadata.name = name
    folder = index_dir(UUID(index.uuid))
    pinned.files.objects.sync([f"{folder}/{file.path}" for file in metadata.files])
    return metadata


def no_such_index(pinned: Pinned, name: str) -> NotFoundError:
    """The error for an index that is not there."""
    names = sorted({index.name for index in pinned.manifest.indices})
    return NotFoundError(
        f"The table has no index {name!r}.",
        table=pinned.root,
        version=pinned.version,
        hint=f"It has {', '.join(names)}." if names else "It has none.",
    )
