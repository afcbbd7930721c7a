"""Examination of one folder: its line of versions and its branches, their files and rows, tags and leftovers."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from urllib.parse import unquote

from conroi.doctor.contents import Contents, check_contents, check_leftovers
from conroi.doctor.rows import check_rows
from conroi.doctor.subject import Subject
from conroi.doctor.versions import Line, LineReader, check_versions
from conroi.errors import CorruptionError, NotFoundError
from conroi.format.json import decode_document
from conroi.format.on_disk import BRANCH_REFS_DIR, TAGS_DIR, TREE_DIR
from conroi.maintenance.reachability import LAKE_BRANCH
from conroi.snapshots.branch_names import lance_ref_path
from conroi.snapshots.pin import Pin
from conroi.snapshots.snapshot import TableStorage
from conroi.storage import opened_below
from conroi.storage.objects import Objects
from conroi.versions.folder import FolderVersions
from conroi.versions.listing import Listed


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


# ------------------------------------------------------------------------------ tags and branches


@dataclass
class Refs:
    """What the refs of a table say."""

    tags: dict[str, tuple[str | None, int]] = field(default_factory=dict[str, "tuple[str | None, int]"])
    """The branch (None is the main line) and version of each tag."""
    branches: dict[str, tuple[str | None, int]] = field(default_factory=dict[str, "tuple[str | None, int]"])
    """The parent and the version at which each branch left it."""
    unreadable: list[str] = field(default_factory=list[str])

    def kept_on(self, branch: str | None) -> frozenset[int]:
        """The versions that tags and branches retain."""
        return frozenset(
            version for where, version in (*self.tags.values(), *self.branches.values()) if where == branch
        )


def read_refs(objects: Objects, listed: Listed) -> Refs:
    """All tags and branches of a table."""
    refs = Refs()
    for path in sorted(listed.files):
        folder, _, file_name = path.rpartition("/")
        if folder not in (TAGS_DIR, BRANCH_REFS_DIR) or not file_name.endswith(".json"):
            continue
        name = unquote(file_name.removesuffix(".json"))
        try:
            content = decode_document(objects.get(path), path)
            if folder == TAGS_DIR:
                refs.tags[name] = (content.optional_text("branch"), content.integer("version", high=(1 << 64) - 1))
            else:
                refs.branches[name] = (content.optional_text("parentBranch"), content.integer("parentVersion"))
        except NotFoundError:
            continue  # deleted since it was listed
        except CorruptionError:
            refs.unreadable.append(path)
    return refs


def check_refs(subject: Subject, refs: Refs) -> None:
    """Findings about the tags and branches of a table."""
    listed = subject.listed
    for path in refs.unreadable:
        kind = "unreadable-tag" if path.startswith(TAGS_DIR) else "unreadable-branch"
        subject.add(kind, f"The file {path} cannot be read.", path=path)
    for tag, (branch, version) in refs.tags.items():
        if not _has(subject, branch, version):
            where = "" if branch is None else f" of the branch {branch!r}"
            subject.add("tag-nowhere", f"The tag {tag!r} names version {version}{where}.", version=version)
    for branch in refs.branches:
        if f"{TREE_DIR}/{branch}" not in listed.branches:
            subject.add("branch-nowhere", f"The branch {branch!r} has no folder.", path=f"{TREE_DIR}/{branch}")
    for folder in listed.branches:
        if folder.removeprefix(f"{TREE_DIR}/") not in refs.branches:
            subject.add("branch-unnamed", f"There is a folder {folder}, and no branch of that name.", path=folder)
    subject.examination.looked_at("tags", len(refs.tags))
    subject.examination.looked_at("branches", len(refs.branches))


def _has(subject: Subject, branch: str | None, version: int) -> bool:
    if branch is None:
        head = subject.newest
        return version in subject.listed.manifests or (head is not None and head.version == version)
    start = f"{TREE_DIR}/{branch}/"
    below = {path[len(start) :]: info for path, info in subject.listed.files.items() if path.startswith(start)}
    # A branch begins with the version it left its parent at, which has a manifest in its own folder too.
    return version in Listed(below).manifests
