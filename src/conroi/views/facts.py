"""Table metadata for display, collected without reading rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conroi.format import lance_pb2 as pb
    from conroi.reading import ReadableTable


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """One column."""

    name: str
    type: str
    is_nullable: bool
    is_key: bool


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One table at one version, from its manifest alone."""

    name: str
    uri: str
    version: int
    rows: int
    deleted_rows: int
    """Rows that are in the files and are gone: compact() takes them out."""
    fragments: int
    bytes: int | None
    """Of the data files; None if one of them does not say."""
    columns: tuple[ColumnFacts, ...]
    key: tuple[str, ...]
    indices: dict[str, tuple[str, ...]]
    has_stable_row_ids: bool
    config: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def table_facts(name: str, table: ReadableTable) -> TableFacts:
    """The facts of a table."""
    fragments = table.pinned.manifest.fragments
    return TableFacts(
        name=name,
        uri=table.uri,
        version=table.version,
        rows=table.count_rows(),
        deleted_rows=sum(each.deletion_file.num_deleted_rows for each in fragments),
        fragments=len(fragments),
        bytes=_bytes(fragments),
        columns=tuple(
            ColumnFacts(each.name, str(each.type), each.nullable, each.name in table.key) for each in table.schema
        ),
        key=table.key,
        indices=table.indices,
        has_stable_row_ids=table.has_stable_row_ids,
        config=table.config,
    )


def _bytes(fragments: Sequence[pb.DataFragment]) -> int | None:
    sizes = [file.file_size_bytes for fragment in fragments for file in fragment.files]
    return sum(sizes) if all(sizes) else None
