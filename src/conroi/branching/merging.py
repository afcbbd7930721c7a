"""`lake.merge(source)`: one branch of a lake into another, all tables in one commit or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from conroi.branching.ancestry import common_base, is_merged, merged_row
from conroi.branching.diff import Side
from conroi.branching.planning import Planned, Planning
from conroi.branching.results import Choice, Conflict, LakeMerge, Prefer
from conroi.catalog.branches import BranchedLake
from conroi.commit.backoff import pause_s
from conroi.errors import (
    AlreadyExistsError,
    ExpectedVersionMismatch,
    InvalidInputError,
    MergeConflict,
    RetryableConflict,
)

if TYPE_CHECKING:
    from conroi.lake import Lake

RETRIES = 10
"""So often a merge is worked out again because somebody published to the target meanwhile."""
SHOWN = 5
"""So many conflicts the message of an error names."""
SOURCE = "conroi.merge.source"
SOURCE_VERSION = "conroi.merge.version"


def merge(
    source: Lake, target: Lake, *, dry_run: bool, prefer: Prefer, message: str | None, author: str | None
) -> LakeMerge:
    """Work out what each table needs, and publish it all; again, if somebody was faster."""
    _check(source, target, prefer)
    taken = Side.of(source)  # once: what is published on the source from now on is for the next merge
    environment = target.catalog.environment
    for attempt in range(1, RETRIES + 2):
        started = environment.monotonic()
        try:
            return _Merge(taken, target, prefer).run(dry_run=dry_run, message=message, author=author)
        except (RetryableConflict, ExpectedVersionMismatch, AlreadyExistsError):
            if attempt > RETRIES:
                raise
            environment.sleep(pause_s(environment, attempt, environment.monotonic() - started))
    raise AssertionError("unreachable")


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
            f"prefer={prefer!r} is not known.", hint='Give "source", "target", or a function that answers one of them.'
        )


class _Merge:
    """One attempt."""

    def __init__(self, source: Side, target: Lake, prefer: Prefer) -> None:
        self._source = source
        self._lake = target
        self._target = Side.of(target)
        self._prefer: Prefer = prefer

    def run(self, *, dry_run: bool, message: str | None, author: str | None) -> LakeMerge:
        source, target = self._source, self._target
        if is_merged(source, target):
            return self._result(source, [], target.state.version, [], dry_run=dry_run)
        main = target.catalog.main
        assert main.manifest is not None, "a lake with branches has a __manifest"
        base = common_base(BranchedLake(main, main.manifest), source, target)
        planning = Planning(base, source, target)
        planned = list(planning.tables())
        choices: list[list[Choice | None]] = [
            [self._choice(conflict) for conflict in each.conflicts] for each in planned
        ]
        found = [conflict for each in planned for conflict in each.conflicts]
        made = [choice for each in choices for choice in each]
        open_ = [conflict for conflict, choice in zip(found, made, strict=True) if choice is None]
        if open_ and not dry_run:
            raise self._refused(open_)
        if dry_run or not (planned or planning.namespaces()):
            return self._result(base, planned, target.state.version, open_, dry_run=dry_run)
        settled: list[list[Choice]] = [[choice for choice in each if choice is not None] for each in choices]
        return self._publish(base, planning, planned, settled, message, author)

    def _choice(self, conflict: Conflict) -> Choice | None:
        prefer = self._prefer
        if not callable(prefer):
            return prefer
        answer = prefer(conflict)
        if answer not in ("source", "target"):
            raise InvalidInputError(
                f"The function for conflicts answered {answer!r}.",
                table=conflict.table,
                hint='It must answer "source" or "target".',
            )
        return answer

    def _publish(
        self,
        base: Side,
        planning: Planning,
        planned: Sequence[Planned],
        choices: Sequence[Sequence[Choice]],
        message: str | None,
        author: str | None,
    ) -> LakeMerge:
        source, target = self._source, self._target
        properties = {
            SOURCE: source.catalog.identity.lance_name or source.catalog.identity.name,
            SOURCE_VERSION: str(source.state.version),
        }
        text = message or f"merge {source.catalog.identity.name} into {target.catalog.identity.name}"
        with self._lake.begin(text, author=author, properties=properties) as tx:
            if tx.base_version != target.state.version:
                raise RetryableConflict(
                    "Somebody published to the target while the merge was worked out.",
                    version=tx.base_version,
                    base_version=target.state.version,
                    hint="Merge again.",
                )
            done = [each.stage(tx, made) for each, made in zip(planned, choices, strict=True)]
            for row in planning.namespaces():
                tx.set_row(row)
            tx.set_row(merged_row(source, target))
        return LakeMerge(
            source=source.catalog.identity.name,
            target=target.catalog.identity.name,
            version=tx.result.version,
            source_version=source.state.version,
            base=base.label,
            tables=tuple(done),
            properties=properties,
        )

    def _result(
        self, base: Side, planned: Sequence[Planned], version: int, conflicts: Sequence[Conflict], *, dry_run: bool
    ) -> LakeMerge:
        return LakeMerge(
            source=self._source.catalog.identity.name,
            target=self._target.catalog.identity.name,
            version=version,
            source_version=self._source.state.version,
            base=base.label,
            tables=tuple(each.summary for each in planned),
            conflicts=tuple(conflicts),
            is_dry_run=dry_run,
        )

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
