"""Garbage collection of a standalone table, with its branches."""

from __future__ import annotations

from conroi.commit.files import TableFiles
from conroi.commit.run import run
from conroi.commit.snapshot import Snapshot
from conroi.data.pinned import Pinned
from conroi.maintenance.collecting import MIN_AGE, Collecting, LookedAt
from conroi.maintenance.durations import Duration
from conroi.maintenance.expiring import refuse_lake_table
from conroi.maintenance.places import Place
from conroi.maintenance.reports import Collected
from conroi.maintenance.versions import listed_versions
from conroi.stores.manifest_files import branch_folders
from conroi.stores.objects import Objects, opened_below
from conroi.verbs.plan import Plan
from conroi.verbs.small import reserve_fragments


def collect_table(
    files: TableFiles, *, min_age: Duration = MIN_AGE, dry_run: bool = True, progress: LookedAt | None = None
) -> Collected:
    """Delete unreferenced files of the table."""
    refuse_lake_table(files, "gc")
    files.head()  # a store may have a version that is not complete; and a folder without a table is not ours to sweep
    return Collecting(
        lambda: places_of(files.root, files.objects),
        lambda older_ns: _fence(files, older_ns),
        files.objects,
        files.environment,
        min_age=min_age,
        dry_run=dry_run,
        progress=progress,
    ).run()


def places_of(name: str, objects: Objects) -> list[Place]:
    """The folder of a table, and those of its branches."""
    branches = sorted(branch_folders(objects))
    inside = [Place(f"{name}/{folder}", _below(objects, folder)) for folder in branches]
    return [Place(name, objects), *inside]


def _below(objects: Objects, folder: str) -> Objects:
    return opened_below(objects, folder)


def _fence(files: TableFiles, older_ns: int) -> None:
    """Fence off paused writers: if the newest version is older than the files to delete, commit the next version."""
    newest = max(listed_versions(files.objects), key=lambda aged: aged.version)
    if newest.modified_ns > older_ns:
        return

    def verb(head: Snapshot) -> Plan:
        return reserve_fragments(Pinned(files, head), 1)

    run(files, files.head(), verb, {"message": "gc: writers that stood still must look again"})
