"""`lake.branches`: create, list, rename and delete the branches of a lake."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal

from conroi.arguments import checked_calls
from conroi.branches.lake_ref import LakeRef
from conroi.catalog.catalog import Catalog
from conroi.catalog.lance_tags import protection_of
from conroi.catalog.participant import PublishRequest
from conroi.catalog.preconditions import Expectation
from conroi.catalog.publication import Publishing
from conroi.catalog.state import CommitMetadata
from conroi.commit.execution import run
from conroi.data.table_version import TableVersion
from conroi.errors import ExpectedVersionMismatch, InvalidInputError, NotFoundError, about
from conroi.format.on_disk import DELETED_SETTING, LINEAGE_KEY
from conroi.retry_policy import PUBLICATION_RETRIES
from conroi.snapshots.branch_names import MAIN, MAIN_BRANCH, Branch
from conroi.snapshots.snapshot import Snapshot, TableStorage
from conroi.snapshots.tags import Tags
from conroi.storage.parallel import stays_in_process
from conroi.verbs.settings import Values, set_config


@checked_calls
@stays_in_process("lake.branches", "Hand over the lake.")
class Branches:
    """The branches of a lake.

    >>> import conroi
    >>> lake = conroi.connect("memory://branches-example")
    >>> orders = lake.create_table("orders", [{"id": 1}], key="id")
    >>> lake.branches.create("dev").name
    'dev'
    >>> lake.branch("dev")["orders"].append([{"id": 2}]).count_rows(), lake["orders"].count_rows()
    (2, 1)
    """

    def __init__(self, lake: LakeRef) -> None:
        self._lake = lake
        self._branched = lake.branched()

    def __iter__(self) -> Iterator[Branch]:
        return iter(self.list())

    def __contains__(self, name: str) -> bool:
        return any(branch.name == name for branch in self)

    def __repr__(self) -> str:
        return f"Branches({', '.join(branch.name for branch in self)})"

    def list(self) -> list[Branch]:
        """All branches, the main one first, then by name."""
        return [MAIN_BRANCH, *self._branched.names.all()]

    def get(self, name: str) -> Branch:
        """The branch of this name."""
        return self._branched.names.get(name)

    def create(self, name: str, from_: int | str | None = None) -> Branch:
        """Create a branch without copying data: from this lake, a version of it, a tag or a branch.

        Of concurrent calls with the same name exactly one succeeds.
        """
        lake = self._lake if from_ is None or isinstance(from_, int) else self._lake.resolve(from_)
        version = from_ if isinstance(from_, int) else None
        if version is None and lake.pinned is not None:
            version = lake.pinned.version
        if version is None:  # a branch begins with versions, not with folders that others go on writing
            _pin_tables(lake.catalog)
        branch = self._branched.create(name, lake.catalog.identity, version)
        protection = protection_of(lake.catalog)
        if protection is not None:
            protection.branched(branch)
        return branch

    def rename(self, name: str, new_name: str) -> Branch:
        """Rename a branch. Lakes that have it open continue to work on it."""
        branch = self._changeable(name)
        free = self._branched.names.free(new_name)
        self._branched.names.give(free, branch)
        self._branched.names.take_away(branch)
        return self.get(new_name)

    def delete(self, name: str, *, tags: Literal["refuse", "drop"] = "refuse") -> None:
        """Delete a branch: nothing can be published to it any more. Its files are garbage-collected.

        A branch with tagged versions is not deleted, since the tags would name nothing; `tags="drop"` deletes those
        tags too.
        """
        branch = self._changeable(name)
        if tags not in ("refuse", "drop"):
            raise InvalidInputError(f"tags={tags!r} is not known.", hint='Give "refuse" (the default) or "drop".')
        _, files = self._branched.opened(branch)
        last = files.head()
        if DELETED_SETTING not in last.manifest.head.config:
            if tags == "refuse":
                self._refuse_tagged(branch)
            now = datetime.fromtimestamp(files.environment.now_ns() / 1e9, UTC).isoformat()
            notes = {DELETED_SETTING: now, LINEAGE_KEY: json.dumps(branch.lineage)}
            ended = configured(files, last, notes, f"delete branch {name}")
            if tags == "refuse":
                try:
                    self._refuse_tagged(branch)  # it may have been tagged after the first look
                except InvalidInputError:
                    kept = {DELETED_SETTING: None, LINEAGE_KEY: None}
                    configured(files, ended, kept, f"keep branch {name}, which was tagged")
                    raise
        for tag in self._tags_on(branch):
            self._lake.tags.delete(tag)
        self._branched.forget(branch, last)
        protection = protection_of(self._branched.main)
        if protection is not None:
            protection.ended(f"branch.{branch.lance_name}")

    def _refuse_tagged(self, branch: Branch) -> None:
        found = self._tags_on(branch)
        if found:
            names = ", ".join(found)
            raise InvalidInputError(
                f"The branch {branch.name!r} has versions that are tagged: {names}.",
                hint="Delete or move the tags first; or delete them with the branch: "
                f"branches.delete({branch.name!r}, tags='drop').",
            )

    def _tags_on(self, branch: Branch) -> Sequence[str]:
        """The names of the tags on versions of the branch."""
        return [tag.name for tag in Tags(self._branched.manifest, 0).list() if tag.branch == branch.lance_name]

    def _changeable(self, name: str) -> Branch:
        if name == MAIN:
            raise InvalidInputError("The main branch stays what it is.", hint="Name another branch.")
        branch = self.get(name)
        if branch.lance_name is None:
            raise NotFoundError(f"The lake has no branch {name!r}.", hint="lake.branches lists what there is.")
        return branch


def configured(manifest: TableStorage, at: Snapshot, values: Values, message: str) -> Snapshot:
    """The `__manifest` of a branch with other settings."""
    with about(manifest.root):
        done = run(manifest, at, lambda head: set_config(TableVersion(manifest, head), values), {"message": message})
    return done.snapshot


def _pin_tables(catalog: Catalog) -> None:
    """Publish the versions of all tables that other software listed and wrote, and that have no pin yet."""
    for _ in range(PUBLICATION_RETRIES):
        state = catalog.state()
        rows = [row for row in map(catalog.pinned, map(state.rows.__getitem__, state.unpinned)) if row.pin is not None]
        if not rows:
            return
        expects = [Expectation(row.object_id, catalog.version_of(row), row.incarnation, seen=row) for row in rows]
        notes = CommitMetadata(f"pin {len(rows)} tables that were written past the lake")
        with contextlib.suppress(ExpectedVersionMismatch):  # concurrent write: look again
            Publishing(catalog, PublishRequest(state, expects=expects, notes=notes)).run()
