"""Reference check: tags and branches name existing versions. They also tell which versions are retained on purpose."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote

from conroi.errors import CorruptionError, NotFoundError
from conroi.format.documents import decode_document
from conroi.maintenance.doctor.subject import Subject
from conroi.stores.listed import TREE_DIR, Listed
from conroi.stores.objects import Objects

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
