"""Protection from Lance's own garbage collection: Lance tags on the versions that tags and branches of the lake need.

lancedb's `optimize()` and pylance's `cleanup_old_versions()` delete old versions of a table directly in the storage.
They keep every version that has a Lance tag. So each lake tag and each branch has a Lance tag in the tables that other
Lance clients open: `conroi.tag.{name}.{version}` or `conroi.branch.{branch}.{version}`.

Only tables that were opened through the namespace have such tags, since only other clients run that clean-up. A marker
beside `__manifest` names these tables. A client that opens a table first writes the marker and then lists tags and
branches. A process that creates a tag or a branch first creates it and then lists the markers. So of two concurrent
processes at least one sees the other. A crash in between is repaired by the next process that opens the table, by `gc`
and by `expire`. The Lance tags hold nothing back from `expire` and `gc`, which know what the lake needs.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote, unquote

from conroi.arguments import checked_calls
from conroi.catalog.branches import BranchedLake
from conroi.catalog.catalog import Catalog
from conroi.catalog.rows import Row, table_of
from conroi.errors import ConroiError, NotFoundError, StoreError
from conroi.format.on_disk import DELETED_SETTING, LAKE_TAG_PREFIX, SHARED_DIR
from conroi.snapshots.branch_names import MAIN_BRANCH, Branch
from conroi.snapshots.pin import Pin
from conroi.snapshots.tags import Tag, Tags, delete_lake_tags, lake_tag_names, put_lake_tag
from conroi.storage.parallel import together

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Need:
    """A version of a table that a tag or a branch of the lake needs."""

    table: str
    """The folder of the table itself."""
    branch: str | None
    """What pylance calls the branch on which the version is."""
    pin: Pin
    ref: str
    """`tag.{name}` or `branch.{branch}`."""

    @property
    def name(self) -> str:
        return f"{LAKE_TAG_PREFIX}{self.ref}.{self.pin.version}"

    @property
    def folder(self) -> str:
        return self.table if self.branch is None else f"{self.table}/tree/{self.branch}"


class Protection:
    """The Lance tags of one lake's tables."""

    def __init__(self, main: Catalog) -> None:
        assert main.manifest is not None, "a lake with its history in a store has no tags and no branches"
        self._main = main
        self._notes = main.manifest.objects
        self._branched = BranchedLake(main, main.manifest)
        self._seen: set[str] = set()
        """Folders that this process has already protected."""

    # ------------------------------------------------------------------------ what others open

    def opened(self, location: str) -> None:
        """Another client gets access to this folder. Best effort: a client without write permission cannot delete
        either.
        """
        table = table_of(location)
        if table in self._seen:
            return
        try:
            self._notes.put(_note(table), b"{}")
            self._put(need for need in self._needs() if need.table == table)
            self._seen.add(table)
        except StoreError as error:
            _log.warning("%s is not protected from Lance's clean-up: %s", table, error)

    def shared(self) -> list[str]:
        """The folders of tables that other clients have opened."""
        return [unquote(path.rpartition("/")[2]) for path in self._notes.list_names(SHARED_DIR)]

    # ------------------------------------------------------------------------ tags and branches

    def tagged(self, tag: Tag) -> None:
        """A lake tag was made."""
        self._add(partial(self._of_tag, tag))

    def moved(self, tag: Tag) -> None:
        """A lake tag was moved: its new version is protected before its old one is released."""
        self.tagged(tag)
        with contextlib.suppress(ConroiError):  # the next gc does it
            self.ended(f"tag.{tag.name}", self._of_tag(tag))

    def branched(self, branch: Branch) -> None:
        """A branch was made."""
        self._add(partial(self._of_branch, branch))

    def _add(self, needs: partial[list[Need]]) -> None:
        """Best effort, since the tag or branch exists: what is left undone is repaired later."""
        try:
            shared = set(self.shared())
            if shared:
                self._put(need for need in needs() if need.table in shared)
        except ConroiError as error:
            _log.warning("a tag or branch is not protected from Lance's clean-up yet: %s", error)

    def ended(self, ref: str, needs: Iterable[Need] = ()) -> None:
        """A tag (`tag.{name}`) or branch (`branch.{name}`) was deleted, or moved so that it now needs these
        versions.
        """
        try:
            needed = {(need.table, need.name) for need in needs}
            for table in self.shared():
                objects = self._main.opened(table)
                names = [
                    name for name in lake_tag_names(objects) if name.rpartition(".")[0] == f"{LAKE_TAG_PREFIX}{ref}"
                ]
                delete_lake_tags(objects, [name for name in names if (table, name) not in needed])
        except ConroiError as error:
            _log.warning("Lance tags of %s are left until the next gc: %s", ref, error)

    def repair(self) -> tuple[str, ...]:
        """Repair the Lance tags of all shared tables; returns the names of those that were wrong."""
        shared = self.shared()
        if not shared:
            return ()
        needs = {(need.table, need.name): need for need in self._needs() if need.table in shared}
        there = {(table, name) for table in shared for name in lake_tag_names(self._main.opened(table))}
        missing = [need for key, need in needs.items() if key not in there]
        stale = sorted(there - needs.keys())
        self._put(missing)
        for table, name in stale:
            delete_lake_tags(self._main.opened(table), [name])
        return tuple(f"{table}: {name}" for table, name in [*((n.table, n.name) for n in missing), *stale])

    # ------------------------------------------------------------------------ what is needed

    def _needs(self) -> list[Need]:
        """What all tags and branches need now."""
        assert self._main.manifest is not None
        found = [need for tag in Tags(self._main.manifest, 0).list() for need in self._of_tag(tag)]
        return [*found, *(need for branch in self._branched.names.all() for need in self._of_branch(branch))]

    def _of_tag(self, tag: Tag) -> list[Need]:
        branches = {branch.lance_name: branch for branch in (MAIN_BRANCH, *self._branched.names.all())}
        on = branches.get(tag.branch)
        return [] if on is None else self._at(on, tag.version, f"tag.{tag.name}")

    def _of_branch(self, branch: Branch) -> list[Need]:
        """The versions that it started from; versions written on it since are protected by Lance as a branch."""
        parents = {each.id: each for each in (MAIN_BRANCH, *self._branched.names.all())}
        parent = parents.get(branch.parent or "")
        return [] if parent is None else self._at(parent, branch.parent_version, f"branch.{branch.lance_name}")

    def _at(self, branch: Branch, version: int, ref: str) -> list[Need]:
        try:
            catalog, _ = self._branched.opened(branch)
            return list(_needs_of(catalog.at(version).tables(), ref))
        except NotFoundError:  # deleted or expired concurrently
            return []

    # ------------------------------------------------------------------------ writing

    def _put(self, needs: Iterable[Need]) -> None:
        together([partial(self._put_one, need) for need in needs], is_local=self._notes.is_local)

    def _put_one(self, need: Need) -> None:
        objects = self._main.opened(need.folder)
        info = objects.head(need.pin.final.path) or objects.head(need.pin.manifest)
        if info is None:
            return  # nothing is left to be protected
        put_lake_tag(
            self._main.opened(need.table),
            need.name,
            need.branch,
            need.pin.version,
            info.size,
            self._main.environment.now_ns(),
        )


def _needs_of(rows: Iterable[Row], ref: str) -> Iterator[Need]:
    for row in rows:
        if row.pin is None or row.location is None:
            continue
        folder = row.lineage[0][0] if row.is_inherited else row.location
        table = table_of(folder)
        yield Need(table, None if folder == table else folder.rpartition("/")[2], row.pin, ref)


def _note(table: str) -> str:
    return f"{SHARED_DIR}/{quote(table, safe='')}"


@checked_calls
class LakeTags(Tags):
    """The tags of a lake, which Lance's clean-up of its tables respects."""

    owner = "lake"
    protection: Protection | None = None

    def create(self, name: str, version: int | None = None) -> Tag:
        tag = super().create(name, version)
        if self.protection is not None:
            self.protection.tagged(tag)
        return tag

    def move(self, name: str, version: int | None = None, *, expect: int | None = None) -> Tag:
        tag = super().move(name, version, expect=expect)
        if self.protection is not None:
            self.protection.moved(tag)
        return tag

    def _gone(self, tag: Tag) -> NotFoundError | None:
        """Also if the branch was deleted since it was opened, by a process that saw no tag on it."""
        error = super()._gone(tag)
        if error is None and self._branch is not None and DELETED_SETTING in self._files.head().manifest.head.config:
            return NotFoundError(
                f"The branch {self._branch.rpartition('-')[0]!r} was deleted, so its versions cannot be tagged.",
                table=self._files.root,
                version=tag.version,
                hint="lake.branches lists what there is.",
            )
        return error

    def delete(self, name: str) -> None:
        super().delete(name)
        if self.protection is not None:
            self.protection.ended(f"tag.{name}")


def protection_of(catalog: Catalog) -> Protection | None:
    """The protection of a lake's tables; None where a store has the history, and there are no tags and branches."""
    main = catalog.main
    if main.manifest is None:
        return None
    if not isinstance(main.protection, Protection):
        main.protection = Protection(main)
    return main.protection


def repair_lance_tags(catalog: Catalog) -> tuple[str, ...]:
    """Repair the Lance tags after a crash or an error; returns those that were wrong."""
    protection = protection_of(catalog)
    return () if protection is None else protection.repair()
