"""Conversion of pylance's fragment and index metadata to the wire format."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from google.protobuf.any_pb2 import Any as AnyMessage
from pyroaring import BitMap

from conroi.format import lance_pb2 as pb
from conroi.format.documents import parse_object

if TYPE_CHECKING:
    from lance import Index
    from lance.fragment import FragmentMetadata


def fragment_from_pylance(fragment: FragmentMetadata) -> pb.DataFragment:
    """An uncommitted fragment that pylance wrote: its files and row count."""
    return fragment_from_json(cast("Mapping[str, Any]", fragment.to_json()))


def fragment_from_json(facts: Mapping[str, Any] | str) -> pb.DataFragment:
    """The same from the JSON form that executors send."""
    if isinstance(facts, str):
        facts = parse_object(facts, "The description of a fragment")
    return pb.DataFragment(
        id=facts["id"],
        files=[_data_file(each) for each in facts["files"]],
        physical_rows=facts["physical_rows"] or 0,
    )


def _data_file(facts: Mapping[str, Any]) -> pb.DataFile:
    return pb.DataFile(
        path=facts["path"],
        fields=facts["fields"],
        column_indices=facts["column_indices"],
        file_major_version=facts["file_major_version"],
        file_minor_version=facts["file_minor_version"],
        file_size_bytes=facts["file_size_bytes"] or 0,
        base_id=facts.get("base_id"),
    )


def index_from_pylance(index: Index) -> pb.IndexMetadata:
    """An uncommitted index (or a segment of one) that pylance built."""
    metadata = pb.IndexMetadata(
        uuid=pb.UUID(uuid=uuid.UUID(index.uuid).bytes),
        fields=index.fields,
        name=index.name,
        dataset_version=index.dataset_version,
        fragment_bitmap=BitMap(index.fragment_ids).serialize(),
        index_version=index.index_version,
        base_id=index.base_id,
        files=[pb.IndexFile(path=file.path, size_bytes=file.size_bytes) for file in index.files or ()],
        covering_fields=index.covering_fields or (),
    )
    if index.created_at is not None:
        metadata.created_at = int(index.created_at.timestamp() * 1000)
    if index.index_details is not None:
        type_url, value = index.index_details
        metadata.index_details.CopyFrom(AnyMessage(type_url=type_url, value=value))
    return metadata
