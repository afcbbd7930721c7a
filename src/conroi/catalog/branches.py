"""Branches of a lake, each a Lance branch of `__manifest`: create, open and delete them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from conroi import history
from conroi.catalog.catalog import Catalog
from conroi.catalog.manifest_rows import load_rows
from conroi.catalog.manifest_store import ManifestStore
from conroi.catalog.rows import is_own, seen_on, table_of
from conroi.catalog.state import LakeState
from conroi.errors import NotFoundError
from conroi.format.on_disk import DELETED_SETTING, LAKE_MANIFEST
from conroi.snapshots.branch_names import Branch, BranchNames, delete_lance_ref, new_branch, write_lance_ref
from conroi.snapshots.branch_storage import Origin, branch_folder, forked_objects, write_fork
from conroi.snapshots.snapshot import Snapshot, TableStorage
from conroi.versions.folder import FolderVersions
from conroi.versions.retention import Retention, retention_of


class BranchedLake:
    """The main branch of a lake, with the operations that create, open and delete other branches."""

    def __init__(self, main: Catalog, manifest: TableStorage) -> None:
        self.main = main
        self.manifest = manifest
        self.names = BranchNames(manifest.objects)

    def opened(self, branch: Branch) -> tuple[Catalog, TableStorage]:
        """A branch as a lake of its own; opened once by each connection."""
        if branch.lance_name is None:
            return self.main, self.manifest
        found = self.main.branches.get(branch.id)
        if found is None:
            found = self.main.branches[branch.id] = self._open(branch, branch.lance_name)
        return found

    def _open(self, branch: Branch, lance_name: str) -> tuple[Catalog, TableStorage]:
        files = self._files(lance_name, branch.lineage)

        def began_ns() -> int:
            return history.find(files, branch.parent_version).timestamp_ns if branch.parent_version else 0

        catalog = self.main.beside(ManifestStore(files, partial(state_on, lance_name, began_ns)), lance_name)
        catalog.identity = branch
        catalog.main = self.main
        return catalog, files

    def _files(self, lance_name: str, lineage: tuple[tuple[str, int], ...]) -> TableStorage:
        """The storage of the branch's `__manifest`, with the versions from before it."""
        origins = [Origin(self._folder(folder), version) for folder, version in lineage]
        own = self.main.opened(branch_folder(LAKE_MANIFEST, lance_name))
        objects = forked_objects(own, lance_name, origins)
        environment = self.main.environment
        return TableStorage(objects, FolderVersions(objects, environment=environment), environment)

    def _folder(self, folder: str):
        return self.manifest.objects if folder == LAKE_MANIFEST else self.main.opened(folder)

    # ------------------------------------------------------------------------ making and ending

    def create(self, name: str, parent: Branch, version: int | None) -> Branch:
        """Create a branch from a version of another; copies no data and reads no table."""
        free = self.names.free(name)
        environment = self.main.environment
        _, files = self.opened(parent)
        begin = files.head() if version is None else history.find(files, version)
        if DELETED_SETTING in begin.manifest.head.config:
            raise NotFoundError(f"The branch {parent.name!r} was deleted.", hint="lake.branches lists what there is.")
        lineage = _lineage(parent, begin.version)
        branch = new_branch(name, environment.new_uuid().hex, parent, begin.version, lineage, environment.now_ns())
        assert branch.lance_name is not None
        objects = self._files(branch.lance_name, lineage).objects
        write_fork(objects, begin.located.path)
        self.names.give(free, branch)  # the loser of a race leaves an unnamed folder, which is garbage-collected
        self._refuse_collected(files, branch, begin.version)
        size = objects.head(begin.located.path)
        write_lance_ref(
            self.manifest.objects,
            branch.lance_name,
            parent.lance_name,
            begin.version,
            environment,
            size=0 if size is None else size.size,
        )
        return branch

    def _refuse_collected(self, files: TableStorage, branch: Branch, version: int) -> None:
        """A collector that listed the branches before this one had its name may be deleting its first version."""
        if files.versions.locate(version) is None or retention_of(files.objects, version) is not Retention.RETAINED:
            self.names.take_away(branch)
            raise NotFoundError(
                f"Version {version} of the lake was just collected as an old version.",
                version=version,
                hint="Begin the branch at a newer version.",
            )

    def forget(self, branch: Branch, written: Snapshot) -> None:
        """Remove the name of a deleted branch; `written` is the last version of its `__manifest`."""
        assert branch.lance_name is not None
        self.names.take_away(branch)
        delete_lance_ref(self.manifest.objects, branch.lance_name)
        for location in self._written_tables(branch, written):
            delete_lance_ref(self.main.opened(location), branch.lance_name)
        self.main.branches.pop(branch.id, None)

    def _written_tables(self, branch: Branch, ended: Snapshot) -> list[str]:
        """The tables for which pylance has the branch."""
        _, files = self.opened(branch)
        rows = load_rows(files, ended).rows.values()
        here = f"/{branch.lance_name}"
        return [table_of(row.location) for row in rows if row.location is not None and row.location.endswith(here)]


def _lineage(parent: Branch, version: int) -> tuple[tuple[str, int], ...]:
    """Where a branch that starts there finds the versions from before it."""
    if parent.lance_name is None:
        return ((LAKE_MANIFEST, version),)
    bounded = tuple((folder, min(bound, version)) for folder, bound in parent.lineage)
    return ((branch_folder(LAKE_MANIFEST, parent.lance_name), version), *bounded)


def state_on(branch: str, began_ns: Callable[[], int], state: LakeState) -> LakeState:
    """The state as the branch has it; NotFoundError if the branch was deleted."""
    if DELETED_SETTING in state.config:
        raise NotFoundError(
            f"The branch {branch.rpartition('-')[0]!r} of the lake was deleted; nothing is published there any more.",
            hint="lake.branches lists what there is. One of the same name that was created since is another branch.",
        )
    rows = {key: seen_on(branch, row) for key, row in state.rows.items()}
    inherited = [key for key in state.unpinned if not is_own(branch, rows[key])]
    if inherited:  # tables that no version was pinned of when the branch began: those of that time
        moment_ns = began_ns()
        rows |= {key: replace(rows[key], moment_ns=moment_ns) for key in inherited}
    return replace(state, rows=rows)
