"""Leftover check: unreferenced files. They are never damage, and never deleted here."""

from __future__ import annotations

from collections.abc import Sequence, Set

from conroi.commit.baton import BATON_PATH
from conroi.maintenance.doctor.subject import Subject
from conroi.stores.listed import TREE_DIR


def check_leftovers(subject: Subject, referred: Set[str]) -> None:
    """Staged manifests, temporary files and unreferenced files, unless a running writer may need them."""
    old = {path for path, info in subject.listed.files.items() if subject.examination.is_old(info)}
    needed = {located.path for located in (subject.head, *subject.also) if located is not None}
    staged = sorted(path for path in subject.listed.staged if path in old - needed)
    _add(subject, "staged-leftover", staged, "manifest that was never published", "manifests that were never published")
    temporary = set(subject.listed.temporary)
    unfinished = sorted(path for path in temporary & old if not path.startswith(f"{TREE_DIR}/"))
    _add(subject, "temporary-file", unfinished, "file that was never finished", "files that were never finished")
    if BATON_PATH in old:
        subject.add("stale-baton", "A writer that waited for its turn is gone.", path=BATON_PATH)
    unneeded = old - temporary - {BATON_PATH}
    root = subject.objects.root
    orphans = [path for path in subject.listed.contents if path in unneeded and f"{root}/{path}" not in referred]
    _add(subject, "orphan-files", orphans, "file that no version refers to", "files that no version refers to")


def _add(subject: Subject, kind: str, paths: Sequence[str], one: str, many: str) -> None:
    """One finding for all of a kind: there may be thousands."""
    if paths:
        size = sum(subject.listed.files[path].size for path in paths)
        told = one if len(paths) == 1 else many
        subject.add(kind, f"{len(paths):,} {told} ({size:,} bytes).", path=paths[0])
