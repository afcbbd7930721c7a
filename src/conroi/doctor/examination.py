"""Examination of a lake or table: every check in turn; an exception about one subject becomes a finding."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType

from conroi.catalog.branches import DELETED
from conroi.catalog.catalog import Catalog
from conroi.catalog.folders import MARKER, Released, created_in, marker, released
from conroi.catalog.manifest_store import ManifestStore
from conroi.catalog.names import shown
from conroi.catalog.opening import manifest_files, open_catalog
from conroi.catalog.rows import Row, table_of
from conroi.catalog.tables import LakeTableStorage
from conroi.data.writer import Progress
from conroi.doctor.contents import Contents, check_contents
from conroi.doctor.findings import Diagnosis, Findings
from conroi.doctor.lake_history import LIST, LakeHistory, database_history, read_history
from conroi.doctor.lake_rows import PinChecks, check_branches, check_lake_rows, check_records, head_of, recorded_head
from conroi.doctor.lines import Line, LineReader
from conroi.doctor.rows import check_rows
from conroi.doctor.subject import Examination, Subject
from conroi.doctor.surroundings import check_leftovers, look_around
from conroi.doctor.versions import Refs, check_refs, check_versions, read_refs
from conroi.environment import SYSTEM, Environment
from conroi.errors import ConroiError, NotFoundError
from conroi.maintenance.reachability import LAKE_BRANCH
from conroi.snapshots.branch_names import BranchNames, lance_ref_path
from conroi.snapshots.pin import Pin
from conroi.snapshots.table_storage import TableStorage
from conroi.storage.base_paths import allow_bases as name_bases
from conroi.storage.factory import open_objects, opened_below
from conroi.versions.external import ExternalVersions
from conroi.versions.folder import FolderVersions
from conroi.versions.listing import TREE_DIR, Folders, Listed

NOTES = "_conroi"
"""Folder of conroi's own records in lakes and tables; the only thing left of a collected table."""
OWN_FOLDERS = frozenset({LIST, NOTES})
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
    with findings.going_on("Reading the lake's history", table=LIST):
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
        examination.findings.keep({shown(only), LIST})
    return _done(examination, environment, fix=fix)


def _name_irregular(examination: Examination) -> None:
    for path, kind in sorted(examination.folders.irregular.items()):
        examination.findings.add("irregular-file", f"{path} is {kind}.", path=path)


def _done(examination: Examination, environment: dict[str, str], *, fix: bool) -> Diagnosis:
    if fix:
        examination.findings.fix()
    return examination.findings.diagnosis(environment)


# ------------------------------------------------------------------------------------ one folder


@dataclass(frozen=True)
class Examined:
    """A folder that was examined: the table itself, and each of its branches by its folder below."""

    subject: Subject
    line: Line
    branches: dict[str, tuple[Subject, Line]]


def examine(
    subject: Subject,
    *,
    is_list: bool = False,
    pinned: Mapping[str, Set[Pin]] = MappingProxyType({}),
    live: Set[str] | None = None,
) -> Examined:
    """One folder: its line of versions and its branches, their files, tags and leftovers.

    `pinned` says what the lake pins, by the folder of a branch; '' is the table itself. `live` are the branches of the
    lake; None for a table that stands alone.
    """
    refs = Refs()
    with subject.going_on("Reading tags and branches"):
        refs = read_refs(subject.objects, subject.listed)
    subject = _with_pins(replace(subject, kept=refs.kept_on(None)), pinned.get("", frozenset()))
    line, referred = _examine_line(subject, is_list=is_list)
    with subject.going_on("Looking at tags and branches"):
        check_refs(subject, refs)
    branches: dict[str, tuple[Subject, Line]] = {}
    for folder in subject.listed.branches:
        if folder not in pinned and _has_ended(subject, folder.removeprefix(f"{TREE_DIR}/"), live):
            _note_ended(subject, folder)
            continue
        on_branch = _branch(subject, folder, refs.kept_on(folder.removeprefix(f"{TREE_DIR}/")))
        on_branch = _with_pins(on_branch, pinned.get(folder, frozenset()))
        branch_line, also_referred = _examine_line(on_branch, is_list=is_list)
        branches[folder] = on_branch, branch_line
        referred |= also_referred
    for each in (subject, *(on_branch for on_branch, _ in branches.values())):
        with each.going_on("Looking for leftovers"):
            check_leftovers(each, referred)
    return Examined(subject, line, branches)


def _has_ended(subject: Subject, branch: str, live: Set[str] | None) -> bool:
    """Whether it was a branch of the lake and was deleted: its remaining files may be incomplete."""
    is_ours = live is not None and LAKE_BRANCH.fullmatch(branch) is not None
    return is_ours and branch not in (live or ()) and lance_ref_path(branch) not in subject.listed.files


def _note_ended(subject: Subject, folder: str) -> None:
    files = [info for path, info in subject.listed.files.items() if path.startswith(f"{folder}/")]
    what = f"{len(files):,} files ({sum(info.size for info in files):,} bytes) of a branch that was deleted."
    if all(map(subject.examination.is_old, files)):
        subject.add("orphan-files", what, path=folder)


def _with_pins(subject: Subject, pins: Set[Pin]) -> Subject:
    """The pinned versions are retained, also those that exist only under staged names."""
    staged = [pin.published for pin in pins if pin.manifest in subject.listed.staged]
    also = [located for located in staged if located != subject.head]
    return replace(subject, kept=subject.kept | {pin.version for pin in pins}, also=tuple(also))


def _examine_line(subject: Subject, *, is_list: bool) -> tuple[Line, set[str]]:
    line, contents = Line(), Contents()
    with subject.going_on("Reading the manifests"):
        line = LineReader(subject, keep_transactions=is_list).read()
    subject.examination.looked_at("versions", len(line.facts))
    with subject.going_on("Looking at the versions"):
        check_versions(subject, line)
    with subject.going_on("Looking at the files"):
        contents = check_contents(subject, line)
    with subject.going_on("Looking at the rows"):
        check_rows(subject, line, contents, has_names=is_list)
    return line, contents.referred


def _branch(subject: Subject, folder: str, kept: frozenset[int]) -> Subject:
    """The same table on a branch: a folder with versions of its own."""
    objects = opened_below(subject.objects, folder)
    files = TableStorage(
        objects, FolderVersions(objects, environment=subject.files.environment), subject.files.environment
    )
    start = f"{folder}/"
    below = {path[len(start) :]: info for path, info in subject.listed.files.items() if path.startswith(start)}
    name = f"{subject.name or 'table'}@{folder.removeprefix(f'{TREE_DIR}/')}"
    return Subject(subject.examination, files, Listed(below), name, subject.is_in_lake, is_branch=True, kept=kept)


# ---------------------------------------------------------------------------------------- a lake


def _examine_list(examination: Examination, manifest: TableStorage) -> LakeHistory | None:
    """The lake's own table, and the history in it, that of its branches included."""
    subject = Subject(examination, manifest, examination.folders.at(LIST), LIST)
    examined = examine(subject, is_list=True, live=_live_branches(manifest))
    history = read_history(manifest, examined.subject.listed, examined.line, examination.findings)
    for folder, (on_branch, line) in examined.branches.items():
        if line.head is None or DELETED in line.head.manifest.head.config:
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
        return frozenset(path.removeprefix("tree/").partition("/")[0] for path in manifest.objects.list_names("tree"))
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
        is_collected = all(path.startswith(f"{NOTES}/") for path in examination.folders.at(folder).files)
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
    if has_store and LIST in examination.folders.names:
        what = f"A store has the history of this lake, but its folder has a {LIST} too."
        examination.findings.add("lake-marker", what, path=LIST)


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
