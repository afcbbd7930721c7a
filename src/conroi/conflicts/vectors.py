"""Deletion vector requests: conflict checks are pure, so they name the vectors that the caller must read."""

from __future__ import annotations

from collections.abc import Mapping

from pyroaring import BitMap

from conroi.format import lance_pb2 as pb

VectorKey = tuple[int, int, int, int]
"""Fragment id, read version, random id and base id: what makes a deletion file the one it is."""


def vector_key(fragment: pb.DataFragment) -> VectorKey:
    """The name under which the deletion vector of this state of a fragment is handed over."""
    file = fragment.deletion_file
    return fragment.id, file.read_version, file.id, file.base_id if file.HasField("base_id") else -1


def deleted_rows(fragment: pb.DataFragment, vectors: Mapping[VectorKey, BitMap]) -> BitMap:
    """The deleted rows of this state of a fragment; none if it has no deletion file."""
    return vectors[vector_key(fragment)] if fragment.HasField("deletion_file") else BitMap()
