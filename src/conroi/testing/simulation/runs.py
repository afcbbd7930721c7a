"""Runs: one seed from its tables to its oracles, its story, and the smallest form in which it still fails."""

from __future__ import annotations

import logging
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from conroi.testing.simulation.faults import Faults
from conroi.testing.simulation.scheduler import Stuck
from conroi.testing.simulation.workloads import WORKLOADS
from conroi.testing.simulation.world import DataFiles, World

_log = logging.getLogger("conroi")


@dataclass(frozen=True)
class Size:
    """What of a run is done; shrinking makes it smaller. None: as the seed says."""

    clients: int | None = None
    steps: int | None = None
    faults: frozenset[str] | None = None
    """The kinds of faults that happen."""


@dataclass(frozen=True)
class Result:
    """What one run came to."""

    seed: int
    workload: str
    problems: Sequence[str]
    trace: str
    """Hash of everything that happened: the same for the same seed."""
    attempted: int
    committed: int
    requests: int
    offered: frozenset[str]
    """The kinds of faults that could happen."""
    activations: Counter[str] = field(default_factory=Counter[str])
    story: Sequence[str] = ()
    size: Size = field(default_factory=Size)
    data_files: DataFiles = "stand-in"
    folder: str | None = None

    def __str__(self) -> str:
        state = "; ".join(self.problems[:3]) or "no anomaly"
        return f"seed {self.seed} ({self.workload}, {self.attempted} transactions, {self.requests} requests): {state}"


def run(
    seed: int,
    workload: str | None = None,
    size: Size | None = None,
    *,
    keeps_story: bool = False,
    data_files: DataFiles = "stand-in",
    folder: str | None = None,
) -> Result:
    """One run. The same arguments give the same result, in any process.

    With data_files="pylance", data files are written and read by pylance, in a folder on the RAM disk or in `folder`.
    """
    size = size or Size()
    kinds = sorted(WORKLOADS)
    kind = WORKLOADS[workload or kinds[seed % len(kinds)]]
    faults = Faults.drawn(seed)
    faults.allowed = None if size.faults is None else set(size.faults)
    with World(seed, faults=faults, keeps_story=keeps_story, data_files=data_files, folder=folder) as world:
        clients, steps = world.chance.choice(((2, 7), (3, 5), (4, 4), (5, 3)))
        made = kind(world, size.clients or clients, size.steps or steps)
        level = _log.level
        _log.setLevel(logging.CRITICAL)  # what it says of faults is expected
        try:
            world.run({"set-up": made.set_up}, with_faults=False)
            world.run(made.scripts())
            world.run({"end": made.finish}, with_faults=False)
            if data_files == "pylance":
                world.run({"pylance": made.read_by_path}, with_faults=False)
        except Stuck as error:
            made.problem(f"liveness: {error}")
        except Exception as error:  # noqa: BLE001  # a finding like any other
            made.problem(f"{error!r}\n{''.join(traceback.format_exception(error))}")
        finally:
            _log.setLevel(level)
        return Result(
            seed,
            kind.name,
            (*made.problems, *world.data_files.differences),
            world.trace,
            len(made.attempts),
            sum(attempt.outcome == "ok" for attempt in made.attempts),
            world.requests,
            frozenset(faults.rates),
            faults.activations,
            tuple(world.story or ()),
            size,
            data_files,
            folder,
        )


def shrunk(result: Result, *, tries: int = 60) -> Result:
    """The smallest run of the same seed that still fails: fewer clients, steps, and kinds of faults."""
    best = result
    left = tries

    def better(size: Size) -> Result | None:
        nonlocal left
        left -= 1
        found = run(result.seed, result.workload, size, data_files=result.data_files, folder=result.folder)
        return found if found.problems else None

    while left > 0:
        for size in _smaller(best):
            found = better(size)
            if found is not None or left <= 0:
                break
        else:
            break
        if found is None:
            break
        best = found
    return run(best.seed, best.workload, best.size, keeps_story=True, data_files=best.data_files, folder=best.folder)


def _smaller(result: Result) -> Sequence[Size]:
    size = result.size
    kinds = frozenset(result.activations)
    sizes = [replace(size, faults=frozenset[str]())] if kinds else []
    sizes += [replace(size, faults=kinds - {kind}) for kind in sorted(kinds)]
    sizes += [replace(size, clients=clients) for clients in range(1, size.clients or 5)]
    sizes += [replace(size, steps=steps) for steps in range(1, size.steps or 7)]
    return sizes


def story(result: Result, *, most_lines: int = 400) -> str:
    """The run as text: time, client, request, in order."""
    lines = [str(result), f"size: {result.size}", *result.problems, ""]
    shown = list(result.story)
    if len(shown) > most_lines:
        shown = [f"… {len(shown) - most_lines} lines before", *shown[-most_lines:]]
    return "\n".join([*lines, *shown])


@dataclass
class Summary:
    """Many runs."""

    runs: int = 0
    transactions: int = 0
    committed: int = 0
    requests: int = 0
    cpu_s: float = 0.0
    """Processor time."""
    failed: list[Result] = field(default_factory=list[Result])
    offered: Counter[str] = field(default_factory=Counter[str])
    activated: Counter[str] = field(default_factory=Counter[str])
    """By fault, in how many runs it happened at least once."""
    activations: Counter[str] = field(default_factory=Counter[str])
    workloads: Counter[str] = field(default_factory=Counter[str])

    def add(self, result: Result) -> None:
        """One run more."""
        self.runs += 1
        self.transactions += result.attempted
        self.committed += result.committed
        self.requests += result.requests
        self.workloads[result.workload] += 1
        self.offered.update(result.offered)
        self.activated.update(result.activations.keys())
        self.activations.update(result.activations)
        if result.problems:
            self.failed.append(result)

    def merge(self, other: Summary) -> None:
        """The runs of another process."""
        for name in ("runs", "transactions", "committed", "requests", "cpu_s"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failed += other.failed
        for name in ("offered", "activated", "activations", "workloads"):
            getattr(self, name).update(getattr(other, name))

    def table(self) -> str:
        """How often each fault happened, as a table in Markdown."""
        lines = ["| fault | runs that offer it | runs in which it happened | times |", "|---|---|---|---|"]
        for kind in sorted(self.offered):
            share = self.activated[kind] / self.offered[kind]
            lines.append(f"| `{kind}` | {self.offered[kind]} | {share:.0%} | {self.activations[kind]} |")
        return "\n".join(lines)


def run_many(
    seeds: Sequence[int],
    workload: str | None = None,
    each: Callable[[Result], None] | None = None,
    *,
    data_files: DataFiles = "stand-in",
    folder: str | None = None,
) -> Summary:
    """All of these seeds, one after the other."""
    summary = Summary()
    began_s = time.process_time()
    for seed in seeds:
        result = run(seed, workload, data_files=data_files, folder=folder)
        summary.add(result)
        if each is not None:
            each(result)
    summary.cpu_s = time.process_time() - began_s
    return summary
