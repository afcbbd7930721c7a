"""How we measure, so that a figure means something.

- Every measurement gets a new folder, and nothing is deleted before the last one is done: on ext4,
  deleting many files makes later creates several times slower.
- Contenders take turns (A, B, A, B, …), and are compared turn by turn, because a machine drifts.
- Rates are counted in windows of fixed length.
- A canary creates plain files beside every turn: if its rate moves, the machine moved, not the contenders.
"""

from __future__ import annotations

import gc
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

CANARY_FILES = 300
CANARY_BYTES = b"x" * 5000


class Workspace:
    """Fresh folders below one temporary folder, which goes away at the very end."""

    def __init__(self, parent: Path | None = None) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="conroi-bench-", dir=parent)).absolute()
        self._made = 0
        self.canary_rates: list[float] = []

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._root, ignore_errors=True)

    def fresh(self, label: str) -> Path:
        """A new empty folder."""
        self._made += 1
        folder = self._root / f"{self._made:04d}-{label}"
        folder.mkdir()
        return folder

    def part(self, label: str) -> Workspace:
        """A workspace in this one, which goes away with it and not before; its canary is its own."""
        return Workspace(self.fresh(label))

    def canary(self) -> float:
        """How many small files a second this file system creates just now."""
        folder = self.fresh("canary")
        start = time.perf_counter()
        for number in range(CANARY_FILES):
            (folder / f"{number}").write_bytes(CANARY_BYTES)
        self.canary_rates.append(CANARY_FILES / (time.perf_counter() - start))
        return self.canary_rates[-1]


@dataclass(frozen=True, slots=True)
class Turn:
    """What one contender did in one turn."""

    latencies_s: Sequence[float]
    elapsed_s: float

    @property
    def rate(self) -> float:
        return len(self.latencies_s) / self.elapsed_s

    @property
    def median_s(self) -> float:
        return statistics.median(self.latencies_s)

    def percentile_s(self, percent: int) -> float:
        return percentile(self.latencies_s, percent)


T = TypeVar("T")


@dataclass(slots=True)
class Series(Generic[T]):
    """All turns of one contender."""

    turns: list[T] = field(default_factory=list[T])

    def median(self, of: Callable[[T], float]) -> float:
        return statistics.median(of(turn) for turn in self.turns)

    def spread(self, of: Callable[[T], float]) -> tuple[float, float]:
        values = [of(turn) for turn in self.turns]
        return min(values), max(values)

    def ratio_to(self, other: Series[T], of: Callable[[T], float]) -> float:
        """The median over the turns of mine divided by the other's turn beside it."""
        return statistics.median(of(mine) / of(theirs) for mine, theirs in zip(self.turns, other.turns, strict=True))


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def run_for(seconds: float, step: Callable[[], object]) -> Turn:
    """Repeat a step until the window is over."""
    gc.collect()
    latencies: list[float] = []
    start = before = time.perf_counter()
    while before - start < seconds:
        step()
        after = time.perf_counter()
        latencies.append(after - before)
        before = after
    return Turn(latencies, before - start)


def run_times(times: int, step: Callable[[], object], *, warm_up: int = 0) -> Turn:
    """Do a step so many times, after some that do not count."""
    for _ in range(warm_up):
        step()
    gc.collect()
    latencies: list[float] = []
    for _ in range(times):
        start = time.perf_counter()
        step()
        latencies.append(time.perf_counter() - start)
    return Turn(latencies, sum(latencies))


def take_turns(workspace: Workspace, contenders: Mapping[str, Callable[[], T]], *, turns: int) -> dict[str, Series[T]]:
    """Let the contenders measure one after the other, again and again."""
    series = {name: Series[T]() for name in contenders}
    for _ in range(turns):
        workspace.canary()
        for name, measure in contenders.items():
            series[name].turns.append(measure())
    return series
