"""Conflict rules for pairs whose outcome depends on their facts, grouped by what the two may have in common.

Here: what a rule is, and what it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from conroi.conflicts.facts import Staged
from conroi.operations.base import Operation


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a rule; the catalogue has its outcome."""

    rule: str
    fragments: tuple[int, ...] = ()
    rows: int = 0
    sample: tuple[tuple[int, int], ...] = ()
    names: tuple[str, ...] = ()
    operation: Operation | None = None
    contested: frozenset[int] = frozenset()


def found(
    rule: str,
    fragments: Iterable[int] = (),
    names: Iterable[str] = (),
    *,
    operation: Operation | None = None,
    contested: Iterable[int] = (),
) -> Finding:
    """A finding with its fragments and names in order."""
    return Finding(
        rule,
        fragments=tuple(sorted(set(fragments))),
        names=tuple(sorted(set(names))),
        operation=operation,
        contested=frozenset(contested),
    )


Decide = Callable[[Staged, Operation], Finding | None]
"""My staged operation and the other one; None if the two are unrelated."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the matrix, shared by all pairs that it is written for."""

    title: str
    """What it says, for the docs."""
    findings: tuple[str, ...]
    """The ids that it can return."""
    decide: Decide
    can_pass: bool = True
    """Whether the two may also be unrelated."""


def always(title: str, finding: str) -> Rule:
    """A rule with a single outcome."""
    return Rule(title, (finding,), lambda _mine, _theirs: Finding(finding), can_pass=False)


OK = Rule("The two never touch the same thing.", (), lambda _mine, _theirs: None)
"""Always compatible."""


def first_of(title: str, *rules: Rule) -> Rule:
    """Several rules for one pair: the first finding counts."""

    def decide(mine: Staged, theirs: Operation) -> Finding | None:
        for rule in rules:
            finding = rule.decide(mine, theirs)
            if finding is not None:
                return finding
        return None

    return Rule(title, tuple(name for rule in rules for name in rule.findings), decide)


class Outcome(Enum):
    """Outcome of a conflict check: what happens to my change after a concurrent commit."""

    COMPATIBLE = "C"
    """It is committed unchanged on top of the other one."""
    REBASED = "B"
    """It is committed after a small adjustment that loses nothing of either side."""
    RETRYABLE = "R"
    """It is still valid, but must be computed again on the newer version."""
    INCOMPATIBLE = "I"
    """The concurrent commit removed what it changes; the user has to decide."""

    @property
    def lands(self) -> bool:
        """Whether my change can be committed on top of the other one."""
        return self in (Outcome.COMPATIBLE, Outcome.REBASED)
