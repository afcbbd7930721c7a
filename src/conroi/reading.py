"""Read methods of a table."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from conroi import history as past
from conroi.arguments import checked_calls
from conroi.commit.expiry import expired
from conroi.commit.files import TableFiles
from conroi.commit.forked import holder_of
from conroi.commit.snapshot import Snapshot
from conroi.data.pinned import Pinned
from conroi.data.rows import count_rows
from conroi.errors import about
from conroi.format.fields import key_columns
from conroi.format.naming import ManifestNaming
from conroi.maintenance.durations import Duration, lease_seconds
from conroi.operations.fragment_reuse import unindexed
from conroi.operations.indices import is_system
from conroi.refs.tags import Tags
from conroi.row_reader import RowReader
from conroi.stores.leases import Lease
from conroi.views.facts import table_facts
from conroi.views.grid import to_html
from conroi.views.listing import Listing
from conroi.views.pages import table_history_page, table_page


@checked_calls
class ReadableTable(RowReader):
    """One Lance table, pinned at one version."""

    def __init__(self, files: TableFiles, snapshot: Snapshot, earlier: Pinned | None = None) -> None:
        self._pinned = Pinned(files, snapshot, earlier)
        self._files = self._pinned.files

    lease: Lease | None = None
    """Lease on this version, if at(…, keep=…) was used."""

    def _name_for_errors(self, table: str | None) -> str:
        return self.name if table is None or table == self._files.root else table

    # ------------------------------------------------------------------------- facts

    @property
    def uri(self) -> str:
        """The location of the table."""
        return self._files.root

    @property
    def name(self) -> str:
        """The name of the table, also in errors: its name in its lake; of a standalone table, its address."""
        return self._files.name

    @property
    def version(self) -> int:
        """The version this table is pinned at."""
        return self._pinned.version

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        return self._pinned.schema

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key columns; empty if there is no key."""
        return key_columns(self._pinned.manifest.fields)

    @property
    def config(self) -> dict[str, str]:
        """The table's configuration."""
        return dict(self._pinned.manifest.head.config)

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the table."""
        return dict(self._pinned.manifest.head.table_metadata)

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether rows keep their id when they are updated or compacted."""
        return self._pinned.manifest.has_stable_row_ids

    @property
    def naming(self) -> ManifestNaming:
        """The naming scheme of the table's manifests."""
        return self._pinned.snapshot.naming

    @property
    def indices(self) -> dict[str, tuple[str, ...]]:
        """The indexed columns, by name of the index."""
        names = {field.id: field.name for field in self._pinned.manifest.fields}
        return {
            index.name: tuple(names.get(i, str(i)) for i in index.fields)
            for index in self._pinned.manifest.indices
            if not is_system(index)
        }

    @property
    def unindexed(self) -> dict[str, int]:
        """Number of rows not covered by each index, by its name; they are found by a scan. See optimize_indices()."""
        known = self._pinned.manifest.fragments_by_id
        lacking = unindexed(self._pinned.manifest)
        return {name: count_rows(known[number] for number in fragments) for name, fragments in lacking.items()}

    @property
    def pinned(self) -> Pinned:
        """Internal interface for reads of this very version."""
        return self._pinned

    # ------------------------------------------------------------------------- the past

    @property
    def _past(self) -> TableFiles:
        """The storage with the versions visible here; inside a transaction those of its snapshot."""
        return self._files

    def versions(self) -> list[int]:
        """The numbers of all existing versions, ascending."""
        return [located.version for located in self._past.versions.all()]

    def history(self, limit: int | None = None) -> list[past.Commit]:
        """The commits up to this version, newest first."""
        return Listing(past.history(self._past, limit, newest=self.version), table_history_page)

    @property
    def tags(self) -> Tags:
        """Tags: names for versions."""
        return Tags(self._past, self.version)

    def _taken(self, keep: Duration | None) -> Lease | None:
        """A lease on this version."""
        if keep is None:
            return None
        versions, version = self._files.versions, self.version
        objects = holder_of(self._files.objects, self._pinned.snapshot.located.path)
        return Lease(
            objects,
            version,
            lease_seconds(keep),
            self._files.environment,
            lambda: versions.locate(version) is not None,
            lambda: expired(objects, version),
        )

    def _find(self, version: int | None, tag: str | None, as_of: datetime | str | None) -> Snapshot:
        with about(self.uri):
            return past.find(self._past, version, tag, as_of)

    # ------------------------------------------------------------------------- looking at it

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r}, version={self.version}, {self.count_rows():,} rows)"

    def _repr_html_(self) -> str:
        return to_html(table_page(table_facts(self.uri, self), key_mark="🔑"))
