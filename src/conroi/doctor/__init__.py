"""Integrity checker: verifies all parts of a lake or a table, reports findings, and repairs what is safe.

Every check runs in turn; an exception about one subject becomes a finding. The checks, by module:

surroundings   software and storage
folder         one folder: a table, `__manifest`, or a branch; it calls the next three, and checks tags and branches
versions       manifests, gaps, clocks, key, hint
contents       files that are referenced, and leftovers
rows           data files, deletion vectors, row ids, keys, indices
lake_history   what all versions of a lake pin
lake_rows      rows of `__manifest`, their pins, records of a store

`kinds` has the catalogue of findings.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from conroi.catalog.catalog import Catalog
from conroi.catalog.folders import MARKER, Released, created_in, marker, released
from conroi.catalog.manifest_store import ManifestStore
from conroi.catalog.names import shown
from conroi.catalog.opening import manifest_files, open_catalog
from conroi.catalog.rows import Row, table_of
from conroi.catalog.tables import LakeTableStorage
from conroi.data.writer import Progress
from conroi.doctor.findings import Diagnosis, Finding, Findings
from conroi.doctor.folder import examine
from conroi.doctor.lake_history import LakeHistory, database_history, read_history
from conroi.doctor.lake_rows import PinChecks, check_branches, check_lake_rows, check_records, head_of, recorded_head
from conroi.doctor.subject import Examination, Subject, look_around
from conroi.environment import SYSTEM, Environment
from conroi.errors import ConroiError, NotFoundError
from conroi.format.on_disk import DELETED_SETTING, LAKE_MANIFEST, OWN_DIR, TREE_DIR
from conroi.snapshots.branch_names import BranchNames
from conroi.snapshots.pin import Pin
from conroi.snapshots.snapshot import TableStorage
from conroi.storage import open_objects
from conroi.storage.base_paths import allow_bases as name_bases
from conroi.versions.external import ExternalVersions
from conroi.versions.folder import FolderVersions
from conroi.versions.listing import Folders

__all__ = ["Diagnosis", "Finding", "diagnose", "examine_lake", "examine_table"]

OWN_FOLDERS = frozenset({LAKE_MANIFEST, OWN_DIR})
"""Folders of a lake that are no tables."""


def examine_table(
    files: TableStorage, *, fix: bool = False, deep: bool = False, progress: Progress | None = None
) -> Diagnosis:
    """One table: by itself or, if it is one of a lake, what the lake's examination finds about it."""
    if isinstance(files, LakeTableStorage) and files.catalog is not None:
        return _examine_in_lake(files, files.catalog, fix=fix, deep=deep, progress=progress)
    findings = Findings()
    environment = look_around(files.objects, files.environment, findings)
    if environment is None:
        return findings.diagnosis({})
    examination = Examination(Folders(files.objects), files.environment, deep, progress, findings)
    _name_irregular(examination)
    subject = Subject(examination, files, examination.folders.at(""), name=None)
    versions = files.versions if isinstance(files.versions, ExternalVersions) else None
    if versions is not None:
        subject = replace(subject, head=recorded_head(versions, subject.listed))
        check_records(subject, versions)
    examine(subject)
    return _done(examination, environment, fix=fix)


def _examine_in_lake(
    files: LakeTableStorage, catalog: Catalog, *, fix: bool, deep: bool, progress: Progress | None
) -> Diagnosis:
    object_id, main = files.row(catalog.state()).object_id, catalog.main
    return examine_lake(main, main.manifest, only=object_id, fix=fix, deep=deep, progress=progress)


def examine_lake(
    catalog: Catalog,
    manifest: TableStorage | None,
    *,
    only: str | None = None,
    fix: bool = False,
    deep: bool = False,
    progress: Progress | None = None,
) -> Diagnosis:
    """All tables of a lake, or the one with this id; `manifest` is its list, None if a database has it."""
    findings = Findings()
    environment = look_around(catalog.root, catalog.environment, findings)
    if environment is None:
        return findings.diagnosis({})
    examination = Examination(Folders(catalog.root), catalog.environment, deep, progress, findings)
    _check_marker(catalog, examination, has_store=manifest is None)
    _name_irregular(examination)
    history: LakeHistory | None = None
    with findings.going_on("Reading the lake's history", table=LAKE_MANIFEST):
        if manifest is None:
            history = database_history(catalog, examination.findings)
        else:
            history = _examine_list(examination, manifest)
    if history is not None:
        with findings.going_on("Examining the tables"):
            _examine_tables(examination, catalog, history, only)
    if deep:
        with findings.going_on("Examining the branches"):
            check_branches(catalog, examination)
    if only is not None:
        examination.findings.keep({shown(only), LAKE_MANIFEST})
    return _done(examination, environment, fix=fix)


def _name_irregular(examination: Examination) -> None:
    for path, kind in sorted(examination.folders.irregular.items()):
        examination.findings.add("irregular-file", f"{path} is {kind}.", path=path)


def _done(examination: Examination, environment: dict[str, str], *, fix: bool) -> Diagnosis:
    if fix:
        examination.findings.fix()
    return examination.findings.diagnosis(environment)


# ---------------------------------------------------------------------------------------- a lake


def _examine_list(examination: Examination, manifest: TableStorage) -> LakeHistory | None:
    """The lake's own table, and the history in it, that of its branches included."""
    subject = Subject(examination, manifest, examination.folders.at(LAKE_MANIFEST), LAKE_MANIFEST)
    examined = examine(subject, is_list=True, live=_live_branches(manifest))
    history = read_history(manifest, examined.subject.listed, examined.line, examination.findings)
    for folder, (on_branch, line) in examined.branches.items():
        if line.head is None or DELETED_SETTING in line.head.manifest.head.config:
            continue
        branch = folder.removeprefix(f"{TREE_DIR}/")
        found = read_history(on_branch.files, on_branch.listed, line, examination.findings, branch)
        if history is not None and found is not None:
            history.absorb(found)
    return history


def _live_branches(manifest: TableStorage | None) -> frozenset[str]:
    """What pylance calls the branches of the lake."""
    if manifest is None:
        return frozenset()
    try:
        names = [branch.lance_name for branch in BranchNames(manifest.objects).all()]
    except ConroiError:  # one that cannot be read is found by others; here no branch counts as deleted
        return frozenset(
            path.removeprefix(f"{TREE_DIR}/").partition("/")[0] for path in manifest.objects.list_names(TREE_DIR)
        )
    return frozenset(name for name in names if name is not None)


def _examine_tables(examination: Examination, catalog: Catalog, history: LakeHistory, only: str | None) -> None:
    tables = check_lake_rows(catalog, history, examination.folders, examination.findings)
    live = _live_branches(catalog.manifest)
    gone = released(catalog)
    living = {row.location: row for row in tables if row.location is not None}
    for location, last in sorted(history.locations.items()):
        row = living.get(location, last)
        is_wanted = table_of(location) == location and (only is None or row.object_id == only)
        if is_wanted and examination.folders.at(location).files:
            if gone.has(location, tables):
                what = f"The table in {location} was deregistered; older versions of the lake still list it."
                examination.findings.add("folder-left-alone", what, path=location)
            else:
                with examination.findings.going_on("Examining the table", table=shown(row.object_id)):
                    _examine_folder(examination, catalog, history, location, row, live, is_gone=location not in living)
    if only is None:
        _find_strays(examination, catalog, gone, {location.partition("/")[0] for location in history.locations})


def _examine_folder(
    examination: Examination,
    catalog: Catalog,
    history: LakeHistory,
    location: str,
    row: Row,
    live: Set[str],
    *,
    is_gone: bool,
) -> None:
    listed, objects = examination.folders.at(location), catalog.objects(location)
    pin = None if is_gone else row.pin
    subject = Subject(
        examination,
        TableStorage(objects, FolderVersions(objects, environment=catalog.environment), catalog.environment),
        listed,
        shown(row.object_id),
        is_in_lake=True,
        is_gone=is_gone,
        head=None if pin is None else head_of(pin, listed),
    )
    examined = examine(subject, pinned=_pins_below(history, location), live=live)
    PinChecks(catalog, history, examined.subject, examined.line, row).run()
    for folder, (on_branch, line) in examined.branches.items():
        row_there = history.locations.get(f"{location}/{folder}")
        if row_there is not None:
            PinChecks(catalog, history, on_branch, line, row_there).run()


def _pins_below(history: LakeHistory, location: str) -> dict[str, set[Pin]]:
    """What is pinned in the folder of a table: '' is the table itself, others are its branches."""
    found: dict[str, set[Pin]] = {}
    for where, pin in history.pins:
        if table_of(where) == location:
            found.setdefault(where.removeprefix(location).strip("/"), set()).add(pin)
    return found


def _find_strays(examination: Examination, catalog: Catalog, gone: Released, used: Set[str]) -> None:
    """Folders of the lake that no version of it has."""
    for folder in examination.folders.names:
        is_collected = all(path.startswith(f"{OWN_DIR}/") for path in examination.folders.at(folder).files)
        if folder in used or folder in OWN_FOLDERS or is_collected:
            continue
        if examination.is_settled(examination.folders.newest_in(folder)):
            size = examination.folders.size_of(folder)
            what = f"No version of the lake has a table in the folder {folder} ({size:,} bytes)."
            is_ours = created_in(catalog.opened(folder), folder) is not None and not gone.has(folder, ())
            examination.findings.add("orphan-folder" if is_ours else "folder-left-alone", what, path=folder)


def _check_marker(catalog: Catalog, examination: Examination, *, has_store: bool) -> None:
    try:
        kept = marker(catalog.root)
    except ConroiError as error:
        examination.findings.add("lake-marker", error.message, path=MARKER, hint=error.hint)
        return
    if not has_store and kept is not None:
        what = f"{MARKER} says that a {kept.history} store has the history, but this lake was opened without one."
        examination.findings.add("lake-marker", what, path=MARKER)
    if has_store and kept is None:
        what = f"{MARKER} is gone, so opening the lake without its store creates an empty one."
        hint = "Open the lake once with store=, which writes it again."
        examination.findings.add("lake-marker", what, path=MARKER, hint=hint)
    if has_store and LAKE_MANIFEST in examination.folders.names:
        what = f"A store has the history of this lake, but its folder has a {LAKE_MANIFEST} too."
        examination.findings.add("lake-marker", what, path=LAKE_MANIFEST)


def diagnose(
    uri: str | os.PathLike[str],
    *,
    store: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    allow_bases: Sequence[str] = (),
    fix: bool = False,
    deep: bool = False,
    progress: Progress | None = None,
    environment: Environment = SYSTEM,
) -> Diagnosis:
    """As `conroi.connect(uri).doctor()`, also where connect() fails because of what doctor is to find."""
    if store is not None:
        catalog, _ = open_catalog(
            uri,
            store=store,
            storage_options=storage_options,
            durable=False,
            allow_bases=allow_bases,
            create=False,
            environment=environment,
        )
        return examine_lake(catalog, None, fix=fix, deep=deep, progress=progress)
    root = open_objects(uri, storage_options)
    name_bases(root, allow_bases)
    files = manifest_files(root, storage_options, durable=False, environment=environment)
    if next(iter(files.objects.list_names("")), None) is None:
        raise NotFoundError(
            f"There is no lake at {root.root}.",
            table=root.root,
            hint="Check the path; a lake whose history is in a database needs store=.",
        )
    catalog = Catalog(root, ManifestStore(files), environment, storage_options=storage_options)
    catalog.manifest = files
    return examine_lake(catalog, files, fix=fix, deep=deep, progress=progress)
