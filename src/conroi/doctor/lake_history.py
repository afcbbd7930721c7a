"""Pins of a lake in every retained version: from its commit records, or from its rows where there are none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from conroi.catalog.catalog import Catalog
from conroi.catalog.manifest_rows import SCHEMA
from conroi.catalog.rows import Row, seen_on
from conroi.catalog.state import Changes, decode_records
from conroi.data.pylance import pylance_errors
from conroi.data.table_version import TableVersion
from conroi.doctor.findings import Findings
from conroi.doctor.versions import Line, VersionFacts
from conroi.errors import ConroiError
from conroi.format.on_disk import LAKE_MANIFEST
from conroi.snapshots.pin import Pin
from conroi.snapshots.snapshot import TableStorage, load_snapshot
from conroi.versions.listing import Listed

Rows = dict[str, Row]


@dataclass
class PinUse:
    """A table version that some versions of the lake pin."""

    pin: Pin
    row: Row
    first: int
    """The first retained version of the lake that pins it."""
    last: int
    is_on_branch: bool = False
    """Whether only a branch of the lake has it."""


@dataclass
class LakeHistory:
    """All retained versions of the lake."""

    version: int
    rows: list[Row]
    """The rows of the newest one that can be read; a damaged list may have two of one name."""
    pins: dict[tuple[str, Pin], PinUse] = field(default_factory=dict[tuple[str, Pin], PinUse])
    locations: dict[str, Row] = field(default_factory=dict[str, Row])
    """The newest row of every folder that some version of the lake has."""

    def follow(self, current: Rows, changes: Changes, version: int) -> None:
        """Apply the changes of the next version; updates `current`."""
        for key, row in changes.items():
            before = current.pop(key, None)
            if before is not None:
                self._had(before, version - 1)
            if row is not None:
                current[key] = row
                self._had(row, version)

    def end(self, current: Rows) -> None:
        """These are the rows of the newest version."""
        for row in current.values():
            self._had(row, self.version)

    def _had(self, row: Row, version: int) -> None:
        pin, location = pin_of(row), place_of(row)
        if row.is_table and location is not None:
            self.locations[location] = row
            if pin is not None:
                use = self.pins.setdefault((location, pin), PinUse(pin, row, version, version))
                use.last = max(use.last, version)

    def absorb(self, branch: LakeHistory) -> None:
        """Add the pins of a branch of the lake."""
        for key, use in branch.pins.items():
            self.pins.setdefault(key, replace(use, is_on_branch=True))
        for location, row in branch.locations.items():
            self.locations.setdefault(location, row)

    def pinned_versions(self, location: str) -> frozenset[int]:
        """The versions of a table that some version of the lake pins."""
        return frozenset(pin.version for where, pin in self.pins if where == location)


def pin_of(row: Row) -> Pin | None:
    """What the row pins; None if it pins nothing, or nothing that makes sense."""
    try:
        pin = row.pin
        return pin if pin is None or pin.final else None
    except (ConroiError, TypeError, AttributeError):
        return None


def place_of(row: Row) -> str | None:
    """The folder that has the pinned version: another one for a table that was never written on its branch."""
    try:
        return row.lineage[0][0] if row.is_inherited else row.location
    except ConroiError:
        return row.location


# ----------------------------------------------------------------------- a lake in its own folder


def read_history(
    files: TableStorage, listed: Listed, line: Line, findings: Findings, branch: str | None = None
) -> LakeHistory | None:
    """The history of a lake, or of a branch of it, by its list; None if no version of it can be read."""
    newest = _newest_readable(files, listed, line, findings)
    if newest is None:
        return None
    version, found = newest
    history = LakeHistory(version, found)
    current, at = dict[str, Row](), 0
    for facts in [line.facts[each] for each in sorted(line.facts) if each <= version]:
        changes = _changes(facts) if at and facts.version == at + 1 else None
        if changes is None:
            rows = _rows_or_none(files, listed, facts.version)
            if rows is None:  # its files are missing, or were collected since: the next one is read in full
                at = 0
                continue
            changes = {**dict.fromkeys(current), **_by_id(rows)}
        history.follow(current, changes, facts.version)
        at = facts.version
    if at == version:
        _compare(_seen_on(branch, current), _seen_on(branch, _by_id(found)), version, findings)
    history.end(_by_id(found))
    return history


def _newest_readable(
    files: TableStorage, listed: Listed, line: Line, findings: Findings
) -> tuple[int, list[Row]] | None:
    newest = max(listed.manifests, default=0)
    for version in sorted(line.facts, reverse=True):
        rows = _rows_or_none(files, listed, version)
        if rows is not None:
            if version != newest:
                what = f"Version {newest} of the list cannot be read; this is about version {version}."
                findings.add("lake-unreadable", what, table=LAKE_MANIFEST, version=newest)
            return version, rows
    findings.add("lake-unreadable", "No version of the list can be read.", table=LAKE_MANIFEST)
    return None


def _rows_or_none(files: TableStorage, listed: Listed, version: int) -> list[Row] | None:
    try:
        return list(_rows(files, listed, version))
    except ConroiError:
        return None


def _rows(files: TableStorage, listed: Listed, version: int) -> Iterator[Row]:
    """All rows of one version, whatever is wrong with them."""
    located = listed.manifests[version][0]
    pinned = TableVersion(files, load_snapshot(files.objects, located))
    with pylance_errors(files.root):
        table = pinned.dataset.scanner(columns=SCHEMA.names).to_table()
    columns = [table[name].to_pylist() for name in SCHEMA.names]
    for key, kind, location, metadata, bases in zip(*columns, strict=True):
        yield Row(key, kind, location, metadata, None if bases is None else tuple(bases))


def _by_id(rows: list[Row]) -> Rows:
    return {row.object_id: row for row in rows}


def _changes(facts: VersionFacts) -> Changes | None:
    """What a commit says that it changed; None if it does not say."""
    transaction = facts.transaction
    if transaction is None or transaction.read_version != facts.version - 1:
        return None
    try:
        records = decode_records(transaction.properties)
    except (ValueError, TypeError, AttributeError):
        return None
    return None if records is None else records[0]


def _seen_on(branch: str | None, rows: Rows) -> Rows:
    """A branch notes where its tables are when it first writes them, or something beside them."""
    return rows if branch is None else {key: seen_on(branch, row) for key, row in rows.items()}


def _compare(told: Rows, found: Rows, version: int, findings: Findings) -> None:
    names = sorted(key for key in {*told, *found} if told.get(key) != found.get(key))
    if names:
        what = f"The commits of the lake say something else about {', '.join(names[:5])} than its rows."
        findings.add("records-differ", what, table=LAKE_MANIFEST, version=version)


# ----------------------------------------------------------------------------- a lake in a database


def database_history(catalog: Catalog, findings: Findings) -> LakeHistory:
    """The history of a lake that a database has."""
    state = catalog.state()
    history = LakeHistory(state.version, list(state.rows.values()))
    commits = sorted(catalog.heads.history(state.version, None), key=lambda each: each.version)
    current: Rows = {}
    for number, commit in enumerate(commits):
        changes = commit.changes if number else None
        if changes is None:
            changes = {**dict.fromkeys(current), **catalog.heads.at(commit.version).rows}
        history.follow(current, changes, commit.version)
    history.end(dict(state.rows))
    for earlier, later in pairwise(commits):
        if later.version != earlier.version + 1:
            what = f"Version {earlier.version + 1} is missing, although {earlier.version} is there."
            findings.add("version-gap", what, version=earlier.version + 1)
    if commits:
        _compare(current, dict(state.rows), state.version, findings)
    return history
