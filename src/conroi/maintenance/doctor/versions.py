"""History check of one table: gaps, timestamps, lost keys, the version hint, detached versions."""

from __future__ import annotations

from itertools import pairwise

from conroi.commit.files import TableFiles
from conroi.errors import ConroiError, CorruptionError, NotFoundError
from conroi.format.documents import decode_document
from conroi.maintenance.doctor.lines import Line, VersionFacts
from conroi.maintenance.doctor.subject import Subject
from conroi.stores.forgotten import watermark
from conroi.stores.versions import FolderVersions

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


def _write_hint(files: TableFiles, newest: int) -> None:
    FolderVersions(files.objects, environment=files.environment).write_hint(newest)
