"""Runs random histories by seed, and shortens one that differs from the model to the steps that matter."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Collection
from collections.abc import Generator as GeneratorOf
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conroi.versions.retention import other_ages
from tests.branches.histories.checking import Difference
from tests.branches.histories.generating import Generator, Picks, Seeded, Step, new_columns, table_data
from tests.branches.histories.replaying import History

FAST = Path("/dev/shm")


@dataclass
class Outcome:
    """What a history found."""

    seed: int
    counts: Counter[str] = field(default_factory=Counter[str])
    steps: list[Step] = field(default_factory=list[Step])
    problem: str | None = None
    code: list[str] = field(default_factory=list[str])

    @property
    def signature(self) -> str:
        """The problem without what differs from run to run."""
        first = (self.problem or "").split("\n")[0]
        return re.sub(r"[0-9a-f]{8,}|/?dev/shm/\S+|\d+|'[^']*'|\{[^}]*\}", "_", first)[:110]


@contextlib.contextmanager
def folder() -> GeneratorOf[str]:
    """A place for a lake, in memory if the machine has such."""
    path = tempfile.mkdtemp(prefix="histories-", dir=FAST if FAST.is_dir() else None)
    try:
        yield f"{path}/lake"
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def history(counts: Counter[str]) -> GeneratorOf[History]:
    with folder() as uri, other_ages(0, 3600):
        yield History(uri, counts)


def beginning(picks: Picks) -> list[Step]:
    """Two tables and a branch."""
    steps = list[Step]()
    for name in ("a", "b"):
        columns, key = new_columns(picks)
        steps.append(("create", "main", name, columns, key, table_data(picks, columns, key), picks.below(4) == 3))
    return [*steps, ("create_branch", "dev", "main", "head", None)]


def random_history(
    seed: int,
    length: int,
    *,
    deep: bool = True,
    picks: Picks | None = None,
    without: Collection[str] = (),
    spark: Any = None,
) -> Outcome:
    """A history by a seed, with what it found."""
    outcome = Outcome(seed)
    picks = picks or Seeded(seed)
    with history(outcome.counts) as run, _noting(outcome, run):
        run.spark = spark
        for step in beginning(picks):
            outcome.steps.append(step)
            run.do(step)
        generator = Generator(run.world, picks, without)
        for _ in range(length):
            step = None
            for _ in range(20):
                step = generator.step()
                if step is None:
                    continue
                outcome.steps.append(step)
                if run.do(step):
                    break
                outcome.steps.pop()
        run.finish(deep=deep)
    return outcome


def replay(steps: list[Step], *, deep: bool = True) -> Outcome:
    """The same steps again; those without a meaning are left out."""
    outcome = Outcome(0)
    with history(outcome.counts) as run, _noting(outcome, run):
        for step in steps:
            outcome.steps.append(step)
            if not run.do(step):
                outcome.steps.pop()
        run.finish(deep=deep)
    return outcome


@contextlib.contextmanager
def _noting(outcome: Outcome, run: History) -> GeneratorOf[None]:
    try:
        yield
    except Difference as difference:
        outcome.problem = str(difference)
    except Exception as error:  # noqa: BLE001
        outcome.problem = f"untyped {type(error).__name__}: {error}\n{traceback.format_exc(limit=-8)}"
    outcome.code = run.code


def shrunk(outcome: Outcome, *, deep: bool = True, budget: int = 400) -> Outcome:
    """The same problem in fewer steps: leaves out as many as it can, in halves, quarters, … and one by one."""
    best, size = outcome, max(1, len(outcome.steps) // 2)
    while budget > 0:
        is_shorter = False
        start = 0
        while start < len(best.steps) and budget > 0:
            tried = replay([*best.steps[:start], *best.steps[start + size :]], deep=deep)
            budget -= 1
            if tried.problem is not None and tried.signature == outcome.signature:
                tried.seed = outcome.seed
                best, is_shorter = tried, True
            else:
                start += size
        if size == 1 and not is_shorter:
            break
        if not is_shorter or size > 1:
            size = max(1, size // 2)
    return best
