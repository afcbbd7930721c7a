"""`lake.merge(source)`: one branch of a lake into another, all tables in one commit or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from conroi.arguments import shortened
from conroi.branching.ancestry import MERGES, Base, Clock, clock_of, is_merged, merged_row
from conroi.branching.planning import Merging
from conroi.branching.results import Choice, Conflict, LakeMerge, Prefer
from conroi.branching.states import Side
from conroi.catalog.branches import BranchedLake
from conroi.commit.backoff import pause_s
from conroi.errors import (
    AlreadyExistsError,
    ExpectedVersionMismatch,
    IncompatibleConflict,
    InvalidInputError,
    MergeConflict,
    RetryableConflict,
    VersionExpired,
)
from conroi.refs.branches import MAIN

if TYPE_CHECKING:
    from conroi.lake import Lake

RETRIES = 10
"""Number of times a merge is computed again after a concurrent publication to the target."""
SHOWN = 5
"""Maximum number of conflicts in an error message."""
SOURCE = "conroi.merge.source"
SOURCE_VERSION = "conroi.merge.version"


def merge(
    source: Lake, target: Lake, *, dry_run: bool, prefer: Prefer, message: str | None, author: str | None
) -> LakeMerge:
    """Compute what each table needs, and publish all of it; again after a concurrent publication."""
    _check(source, target, prefer)
    taken = Side.of(source)  # once: what is published on the source from now on is for the next merge
    environment = target.catalog.environment
    for attempt in range(1, RETRIES + 2):
        started = environment.monotonic()
        now = Side.of(target)
        try:
            tags = _left_out_tags(source, taken, clock_of(now))  # before the commit: nothing may fail after it
            done = _Merge(taken, target, now, prefer).run(dry_run=dry_run, message=message, author=author)
            return replace(done, left_out=(*done.left_out, *tags))
        except (RetryableConflict, ExpectedVersionMismatch, IncompatibleConflict, AlreadyExistsError):
            if attempt > RETRIES:
                raise
            environment.sleep(pause_s(environment, attempt, environment.monotonic() - started))
        except VersionExpired:  # collected between the look at a branch and the opening of a table
            seen = taken.state.version, now.state.version
            taken = Side.of(source)
            if attempt > RETRIES or seen == (taken.state.version, Side.of(target).state.version):
                raise
    raise AssertionError("unreachable")


def _left_out_tags(source: Lake, taken: Side, before: Clock) -> list[str]:
    """Tags of the source: they keep naming versions of the source."""
    branch = taken.catalog.identity.lance_name
    known = before.get(branch or MAIN, 0)
    tags = [tag for tag in source.tags if tag.branch == branch and known < tag.version <= taken.state.version]
    return [f"tag {tag.name} of {taken.catalog.identity.name}@{tag.version}" for tag in tags]


def _check(source: Lake, target: Lake, prefer: Prefer) -> None:
    if target.pinned is not None:
        raise InvalidInputError(
            f"The target is the lake as it was at version {target.version}; it can only be read.",
            hint="Merge into a branch.",
        )
    if source.catalog.identity.id == target.catalog.identity.id:
        raise InvalidInputError(
            f"{source.branch_name!r} cannot be merged into itself.", hint="Name two different branches."
        )
    if prefer not in (None, "source", "target") and not callable(prefer):
        raise InvalidInputError(
            f"prefer={shortened(prefer)} is not known.",
            hint='Give "source", "target", or a function that returns one of them.',
        )


class _Merge:
    """One attempt."""

    def __init__(self, source: Side, target: Lake, now: Side, prefer: Prefer) -> None:
        self._source = source
        self._lake = target
        self._target = now
        self._prefer: Prefer = prefer
        self._open: list[Conflict] = []
        """Unresolved conflicts."""

    def run(self, *, dry_run: bool, message: str | None, author: str | None) -> LakeMerge:
        source, target = self._source, self._target
        result = LakeMerge(
            source=source.catalog.identity.name,
            target=target.catalog.identity.name,
            version=target.state.version,
            source_version=source.state.version,
            base=source.label,
            is_dry_run=dry_run,
        )
        if is_merged(source, target):
            return result
        main = target.catalog.main
        assert main.manifest is not None, "a lake with branches has a __manifest"
        base = Base(BranchedLake(main, main.manifest), [source, target])
        merging = Merging(base, source, target, self._choose)
        if self._open and not dry_run:
            raise self._refused(self._open)
        tables, left_out = tuple(merging.summaries()), tuple(merging.left_out)
        result = replace(result, base=base.label, tables=tables, conflicts=tuple(self._open), left_out=left_out)
        return result if dry_run or merging.is_empty else self._publish(merging, result, message, author)

    def _choose(self, conflict: Conflict) -> Choice | None:
        prefer = self._prefer
        answer = prefer(conflict) if callable(prefer) else prefer
        if callable(prefer) and answer not in ("source", "target"):
            raise InvalidInputError(
                f"The function for conflicts returned {answer!r}.",
                table=conflict.table,
                hint='It must return "source" or "target".',
            )
        if answer is None:
            self._open.append(conflict)
        return answer

    def _publish(self, merging: Merging, result: LakeMerge, message: str | None, author: str | None) -> LakeMerge:
        source, target = self._source, self._target
        properties = {
            SOURCE: source.catalog.identity.lance_name or source.catalog.identity.name,
            SOURCE_VERSION: str(source.state.version),
        }
        text = message or f"merge {result.source} into {result.target}"
        with self._lake.begin(text, author=author, properties=properties) as tx:
            if tx.base_version != target.state.version:
                raise RetryableConflict(
                    "A concurrent writer published to the target while the merge was worked out.",
                    version=tx.base_version,
                    base_version=target.state.version,
                    hint="Merge again.",
                )
            merging.stage(tx)
            tx.expect_row(MERGES)  # of two merges at once the second one must know what the first one brought
            tx.set_row(MERGES, merged_row(source, target))
        return replace(result, version=tx.result.version, properties=properties)

    def _refused(self, conflicts: Sequence[Conflict]) -> MergeConflict:
        source, target = self._source.catalog.identity.name, self._target.catalog.identity.name
        shown = "; ".join(str(conflict) for conflict in conflicts[:SHOWN])
        more = f"; and {len(conflicts) - SHOWN:,} more" if len(conflicts) > SHOWN else ""
        tables = sorted({conflict.table for conflict in conflicts})
        return MergeConflict(
            f"{source!r} was not merged into {target!r}, because both changed the same: {shown}{more}.",
            table=tables[0] if len(tables) == 1 else None,
            version=self._target.state.version,
            conflicts=conflicts,
            hint='Look at error.conflicts; merge again with prefer="source", prefer="target", or a function that '
            "decides each.",
        )
