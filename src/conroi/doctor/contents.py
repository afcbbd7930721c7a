"""File check: each file that a manifest references exists and has the right size; other files are leftovers.

Each fragment and index is checked once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from uuid import UUID

from conroi.commit.fairness import TOKEN_PATH
from conroi.doctor.subject import Place, Subject, base_of
from conroi.doctor.versions import FragmentUse, IndexUse, Line
from conroi.errors import CorruptionError
from conroi.format import lance_pb2 as pb
from conroi.format.naming import check_relative_path, deletion_path, index_dir
from conroi.format.on_disk import TREE_DIR


@dataclass
class Contents:
    """The files that the fragments of a table reference."""

    referred: set[str] = field(default_factory=set[str])
    """The referenced files, each with its location."""
    broken: set[int] = field(default_factory=set[int])
    """Fragments (by the identity of their use) whose files are damaged and not read any further."""


def check_contents(subject: Subject, line: Line) -> Contents:
    """Existence and size of every data, deletion and index file of every version."""
    contents = Contents(referred={full_path(subject.home, path) for path in line.transactions})
    damages: dict[tuple[str, str | None], _Damage] = {}
    for use in line.fragments.values():
        with subject.going_on(f"Looking at the files of fragment {use.fragment.id}"):
            for kind, what, path in _problems(subject, use, contents):
                contents.broken.add(id(use))
                damages.setdefault((kind, path), _Damage(what, use)).versions += use.versions
    for (kind, path), damage in damages.items():
        if is_still_there(subject, damage.use):
            subject.add(kind, damage.told(), version=damage.use.version, path=path)
    for index in line.indices.values():
        with subject.going_on(f"Looking at the files of the index {index.index.name!r}"):
            _check_index(subject, index, contents)
    return contents


@dataclass
class _Damage:
    """One damaged file, however many fragments and versions reference it."""

    what: str
    use: FragmentUse
    versions: int = 0

    def told(self) -> str:
        return self.what if self.versions == 1 else f"{self.what} {self.versions} versions need it."


def is_still_there(subject: Subject, use: FragmentUse | IndexUse) -> bool:
    """Whether the version was not collected concurrently."""
    return subject.objects.head(use.manifest_path) is not None or _is_head(subject, use.version)


def _is_head(subject: Subject, version: int) -> bool:
    newest = subject.newest
    return newest is not None and newest.version == version


# ---------------------------------------------------------------------------------------- fragments

_Problem = tuple[str, str, str | None]


def _problems(subject: Subject, use: FragmentUse, contents: Contents) -> Iterator[_Problem]:
    fragment = use.fragment
    if not fragment.files:
        yield "fragment-without-files", f"Fragment {fragment.id} has no data files.", None
    for file in fragment.files:
        yield from _file_problems(subject, use, file, contents)
    if fragment.HasField("deletion_file"):
        yield from _deletion_problems(subject, use, contents)


def _file_problems(subject: Subject, use: FragmentUse, file: pb.DataFile, contents: Contents) -> Iterator[_Problem]:
    subject.examination.looked_at("files")
    try:
        check_relative_path(file.path)
    except CorruptionError as error:
        yield "path-outside-table", error.message, file.path
        return
    place = subject.place(use.bases, base_of(file))
    if place is None:
        what = f"Fragment {use.fragment.id} has a file at base {file.base_id}, which is not known or may not be used."
        yield "missing-data-file", what, file.path
        return
    path = data_path_in(place, file.path)
    contents.referred.add(full_path(place, path))
    yield from _missing_or_resized(place, path, file.file_size_bytes, "data", f"of fragment {use.fragment.id}")


def full_path(place: Place, path: str) -> str:
    """The path with the place it is at: other tables have files of the same name."""
    return f"{place.objects.root}/{path}"


def data_path_in(place: Place, name: str) -> str:
    """The path of a data file at a place."""
    return f"{place.data_dir}/{name}" if place.data_dir else name


def _missing_or_resized(place: Place, path: str, size: int, what: str, whose: str) -> Iterator[_Problem]:
    found = place.listed.files.get(path) or place.objects.head(path)
    if found is None:
        yield f"missing-{what}-file", f"The {what} file {whose} does not exist.", path
    elif size and found.size != size:
        yield f"wrong-size-{what}-file", f"The {what} file {whose} has {found.size:,} bytes instead of {size:,}.", path


def _deletion_problems(subject: Subject, use: FragmentUse, contents: Contents) -> Iterator[_Problem]:
    subject.examination.looked_at("files")
    file = use.fragment.deletion_file
    path = deletion_path(use.fragment.id, file)
    place = subject.place(use.bases, base_of(file))
    if place is not None:
        contents.referred.add(full_path(place, path))
    if place is None or not place.has(path):
        yield "missing-deletion-file", f"The deletion file of fragment {use.fragment.id} does not exist.", path


# ------------------------------------------------------------------------------------------ indices


def _check_index(subject: Subject, use: IndexUse, contents: Contents) -> None:
    index = use.index
    folder = index_dir(UUID(bytes=index.uuid.uuid))
    place = subject.place(use.bases, base_of(index))
    inside = [path for path in (place.listed.files if place else ()) if path.startswith(f"{folder}/")]
    if place is not None:
        contents.referred |= {full_path(place, path) for path in inside}
    for kind, what, path in _index_problems(use, place, folder, has_files=bool(inside)):
        if is_still_there(subject, use):
            subject.add(kind, what, version=use.version, path=path)
    subject.examination.looked_at("indices")


def _index_problems(use: IndexUse, place: Place | None, folder: str, *, has_files: bool) -> Iterator[_Problem]:
    whose = f"of the index {use.index.name!r}"
    if place is None:
        yield "missing-index-file", f"The place {whose} is not known.", folder
        return
    for file in use.index.files:
        try:
            check_relative_path(file.path)
        except CorruptionError as error:
            yield "path-outside-table", error.message, file.path
            continue
        yield from _missing_or_resized(place, f"{folder}/{file.path}", file.size_bytes, "index", whose)
    # The index over moved fragments is inside the manifest, and has no files.
    if (
        not use.index.files
        and not has_files
        and use.index.fields
        and next(place.objects.list_names(folder), None) is None
    ):
        yield "missing-index-file", f"The folder {whose} is empty.", folder


# --------------------------------------------------------------------------------------- leftovers


def check_leftovers(subject: Subject, referred: Set[str]) -> None:
    """Staged manifests, temporary files and unreferenced files, unless a running writer may need them."""
    old = {path for path, info in subject.listed.files.items() if subject.examination.is_old(info)}
    needed = {located.path for located in (subject.head, *subject.also) if located is not None}
    staged = sorted(path for path in subject.listed.staged if path in old - needed)
    _add(subject, "staged-leftover", staged, "manifest that was never published", "manifests that were never published")
    temporary = set(subject.listed.temporary)
    unfinished = sorted(path for path in temporary & old if not path.startswith(f"{TREE_DIR}/"))
    _add(subject, "temporary-file", unfinished, "file that was never finished", "files that were never finished")
    if TOKEN_PATH in old:
        subject.add("stale-baton", "A writer that waited for its turn is gone.", path=TOKEN_PATH)
    unneeded = old - temporary - {TOKEN_PATH}
    root = subject.objects.root
    orphans = [path for path in subject.listed.contents if path in unneeded and f"{root}/{path}" not in referred]
    _add(subject, "orphan-files", orphans, "file that no version refers to", "files that no version refers to")


def _add(subject: Subject, kind: str, paths: Sequence[str], one: str, many: str) -> None:
    """One finding for all of a kind: there may be thousands."""
    if paths:
        size = sum(subject.listed.files[path].size for path in paths)
        told = one if len(paths) == 1 else many
        subject.add(kind, f"{len(paths):,} {told} ({size:,} bytes).", path=paths[0])
