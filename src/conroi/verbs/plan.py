"""Result of a verb: the operation to commit and its preconditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from conroi.commit.change import Change, Guard
from conroi.conflicts import ConcurrentCommit, Staged
from conroi.errors import InvalidInputError
from conroi.snapshots.snapshot import Snapshot

IfMoved: TypeAlias = Literal["fail", "win"]
"""What an overwrite or a restore does after a concurrent commit: raise a conflict, or win."""


def must_not_move(if_moved: str, table: str) -> bool:
    """Whether any concurrent commit is a conflict."""
    if if_moved not in ("fail", "win"):
        raise InvalidInputError(
            f"if_moved={if_moved!r} is not known.",
            table=table,
            hint='"fail" refuses if there was a concurrent commit, "win" goes ahead.',
        )
    return if_moved == "fail"


@dataclass(frozen=True)
class Plan:
    """The work of a verb, done but not committed."""

    staged: Staged
    must_not_move: bool = False
    guard: Guard | None = None
    restored: Snapshot | None = None
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    """Statistics for the user: rows added, deleted, updated."""
    has_reserved: bool = False
    """Whether the work committed a reservation of fragment ids, so that its base is not the newest version."""

    def change(self, base: Snapshot, *, uuid: str, properties: Mapping[str, str], must_not_move: bool) -> Change:
        return Change(
            staged=self.staged,
            base=base,
            uuid=uuid,
            base_is_fresh=not self.has_reserved,
            properties=properties,
            must_not_move=self.must_not_move or must_not_move,
            guard=self.guard,
            restored=self.restored,
        )


def all_of(guards: Sequence[Guard]) -> Guard | None:
    """One guard that combines all of them; None if there is none."""
    if not guards:
        return None

    def check(head: Snapshot, winners: Sequence[ConcurrentCommit]) -> None:
        for guard in guards:
            guard(head, winners)

    return check
