"""Versions, tags and branches of a table as the doctor checks them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from urllib.parse import unquote

from conroi.doctor.lines import Line, VersionFacts
from conroi.doctor.subject import Subject
from conroi.errors import ConroiError, CorruptionError, NotFoundError
from conroi.format.json import decode_document
from conroi.snapshots.table_storage import TableStorage
from conroi.storage.objects import Objects
from conroi.versions.folder import FolderVersions
from conroi.versions.listing import TREE_DIR, Listed
from conroi.versions.retention import watermark

SLOW_CLOCK_NS = 2 * 1_000_000_000
"""Nanoseconds of clock skew between hosts that are not reported."""
MOST_MISSING = 1000
"""Maximum number of missing versions that are looked up one by one."""
FAST_CLOCK_NS = 60 * 1_000_000_000


def check_versions(subject: Subject, line: Line) -> None:
    """All of them."""
    _check_gaps(subject)
    _check_clocks(subject, line)
    if subject.is_gone:
        return
    _check_key(subject, line)
    _check_hint(subject)
    for located in subject.listed.detached:
        subject.add("detached-manifest", "A version is off the line.", version=located.version, path=located.path)


def _check_gaps(subject: Subject) -> None:
    """A version may be missing if only retained versions (tags and the like) exist below it.

    A table on a branch of a lake may have copies of versions from before it, with gaps between them. What its lake
    needs there is compared with what the lake pins.
    """
    if subject.is_branch and subject.is_in_lake:
        return
    head = subject.newest
    present = set(subject.listed.manifests) | ({head.version} if head is not None else set())
    ordered = sorted(present)
    for lower, upper in pairwise(ordered):
        if upper - lower > 1 and lower not in subject.kept:
            # One that came while we listed is there by now.
            # Of a gap as wide as numbers go, its ends.
            wide = range(lower + 1, upper)
            near = wide if len(wide) <= MOST_MISSING else [*wide[:MOST_MISSING], wide[-1]]
            gaps = [each for each in near if subject.objects.head(_path(subject, each)) is None]
            if gaps and gaps[-1] > watermark(subject.objects):  # else they were collected
                which = f"{gaps[0]}" if gaps[0] == gaps[-1] else f"{gaps[0]} to {gaps[-1]}"
                subject.add("version-gap", f"Version {which} is missing, although {lower} is there.", version=gaps[0])


def _path(subject: Subject, version: int) -> str:
    newest = subject.newest
    assert newest is not None
    return newest.naming.path(version)


def _check_clocks(subject: Subject, line: Line) -> None:
    facts = [line.facts[version] for version in sorted(line.facts)]
    latest = subject.examination.now_ns + FAST_CLOCK_NS
    for each in facts:
        if each.timestamp_ns > latest:
            ahead_s = (each.timestamp_ns - subject.examination.now_ns) // 1_000_000_000
            subject.add("clock-ahead", f"The version is dated {ahead_s:,} s ahead.", version=each.version)
    for earlier, later in pairwise(facts):
        back_ns = earlier.timestamp_ns - later.timestamp_ns
        if back_ns > SLOW_CLOCK_NS:
            what = f"The version is dated {back_ns / 1e9:,.0f} s before version {earlier.version}."
            subject.add("clock-backwards", what, version=later.version)


def _check_key(subject: Subject, line: Line) -> None:
    head = None if line.head is None else line.facts.get(line.head.version)
    had: list[VersionFacts] = [facts for facts in line.facts.values() if facts.key]
    if head is None or head.key or not had:
        return
    newest = max(had, key=lambda facts: facts.version)
    subject.add(
        "key-lost",
        f"In version {newest.version} the key was {', '.join(newest.key)}.",
        version=head.version,
        hint=f"Declare it again with table.declare_key({list(newest.key)!r}), which checks the rows.",
    )


def _check_hint(subject: Subject) -> None:
    path = subject.listed.hint
    if path is None or not subject.listed.manifests or _is_good_hint(subject, path):
        return
    newest = max(subject.listed.manifests)
    subject.add(
        "wrong-hint",
        "The hint for the newest version is garbage, or names a version that does not exist.",
        path=path,
        fix=lambda: _write_hint(subject.files, newest),
    )


def _is_good_hint(subject: Subject, path: str) -> bool:
    """The hint may lag behind briefly: only one that names no version is wrong."""
    try:
        version = decode_document(subject.objects.get(path), path).integer("version")
    except NotFoundError:
        return True
    except CorruptionError:
        return False
    newest = subject.newest
    if version in subject.listed.manifests or (newest is not None and newest.version == version):
        return True
    try:
        return 0 < version < 1 << 63 and subject.objects.head(_path(subject, version)) is not None
    except ConroiError:
        return False


def _write_hint(files: TableStorage, newest: int) -> None:
    FolderVersions(files.objects, environment=files.environment).write_hint(newest)


TAGS_DIR = "_refs/tags"
BRANCHES_DIR = "_refs/branches"


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
        if folder not in (TAGS_DIR, BRANCHES_DIR) or not file_name.endswith(".json"):
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
