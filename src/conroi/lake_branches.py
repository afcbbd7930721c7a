"""Lake methods for branches: open, compare, merge."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from conroi.arguments import checked_calls
from conroi.branches.branches import Branches
from conroi.catalog.branches import BranchedLake
from conroi.catalog.catalog import Catalog
from conroi.catalog.lance_tags import LakeTags, protection_of
from conroi.catalog.state import LakeState
from conroi.errors import InvalidInputError, NotFoundError, UnsupportedError
from conroi.inserts import locks_of
from conroi.snapshots.table_storage import TableStorage
from conroi.snapshots.tags import Tags

if TYPE_CHECKING:
    from conroi.branches.diff import LakeDiff
    from conroi.branches.results import LakeMerge, Prefer
    from conroi.lake import Lake


@checked_calls
class LakeBranches:
    """Branches and tags of a lake."""

    _catalog: Catalog
    _manifest: TableStorage | None
    _pinned: LakeState | None

    if TYPE_CHECKING:

        @property
        def version(self) -> int: ...

    @property
    def branch_name(self) -> str:
        """The name of this lake's branch; `main` for the main branch."""
        return self._catalog.identity.name

    @property
    def branches(self) -> Branches:
        """The branches of the lake."""
        return Branches(cast("Lake", self), self._branched())

    def _branched(self) -> BranchedLake:
        main = self._catalog.main
        files = main.manifest
        if files is None:
            raise UnsupportedError(
                "A lake that keeps its history in a store has no branches and no tags.",
                table=self._catalog.uri,
                hint="Use a lake without store=.",
            )
        return BranchedLake(main, files)

    def branch(self, name: str) -> Lake:
        """A branch as a lake of its own; its commits are not visible on main until it is merged."""
        branched = self._branched()
        return self._opened(*branched.opened(branched.names.get(name)))

    def _opened(self, catalog: Catalog, files: TableStorage, pinned: LakeState | None = None) -> Lake:
        from conroi.lake import Lake

        if catalog is not catalog.main and catalog.locks is None:
            catalog.locks = locks_of(catalog.main).beside(catalog)
        if pinned is None:
            catalog.state()  # NotFoundError if it was deleted, and not at some later call
        return Lake(catalog, files, pinned=pinned)

    def resolve(self, of: Lake | int | str) -> Lake:
        """The lake of a reference: a branch, a tag, a version of this lake, or a lake itself.

        A name that is both a branch and a tag is the branch.
        """
        if isinstance(of, LakeBranches):
            return of
        if isinstance(of, int) and not isinstance(of, bool):
            return cast("Lake", self).at(version=of)
        if not isinstance(of, str):
            raise InvalidInputError(f"{of!r} names no state of the lake.", hint="Give a branch, a tag or a version.")
        try:
            return self.branch(of)
        except NotFoundError as missing:
            try:
                return self._at_tag(of)
            except NotFoundError:
                raise NotFoundError(
                    f"The lake has no branch and no tag {of!r}.", table=self._catalog.uri, hint=missing.hint
                ) from None

    # ------------------------------------------------------------------------ tags

    @property
    def tags(self) -> Tags:
        """Tags: names for versions of the lake, on any branch; a new one names a version of this branch."""
        branched = self._branched()
        files = branched.manifest if self._manifest is None else self._manifest
        tags = LakeTags(files, self.version, home=branched.manifest.objects, branch=self._catalog.branch)
        tags.protection = protection_of(self._catalog)
        return tags

    def _at_tag(self, name: str) -> Lake:
        """The lake at the version and branch of the tag."""
        tag = self.tags.get(name)
        branched = self._branched()
        branches = {branch.lance_name: branch for branch in self.branches}
        if tag.branch not in branches:
            raise NotFoundError(
                f"The tag {name!r} names version {tag.version} of a branch that was deleted.",
                table=self._catalog.uri,
                hint="Delete the tag; what it named can be collected.",
            )
        catalog, files = branched.opened(branches[tag.branch])
        return self._opened(catalog, files, catalog.at(tag.version))

    # ------------------------------------------------------------------------ comparing and merging

    def diff(self, a: Lake | int | str, b: Lake | int | str, *, keys: bool = True) -> LakeDiff:
        """The differences between two states of the lake, by table: rows, columns and (`keys`) changed keys.

        Each is a branch, a tag, a version of this lake, or a lake. Only files that differ are read.
        """
        from conroi.branches.diff import lake_diff

        return lake_diff(self.resolve(a), self.resolve(b), keys=keys)

    def merge(
        self,
        source: Lake | str,
        into: str | None = None,
        *,
        dry_run: bool = False,
        prefer: Prefer = None,
        message: str | None = None,
        author: str | None = None,
    ) -> LakeMerge:
        """Three-way merge of a branch into another (by default this one): all tables in one commit, or none.

        Where both changed the same thing, MergeConflict lists it by table and key, unless `prefer` decides: "source",
        "target", or a function that gets each conflict and returns one of the two.
        """
        from conroi.branches.merge import merge

        target = cast("Lake", self) if into is None else self.branch(into)
        return merge(self.resolve(source), target, dry_run=dry_run, prefer=prefer, message=message, author=author)
