"""Merges and writers in different processes on one lake, and what must hold whatever they did.

Each key has one branch on which one process writes it, so its last acknowledged value must be there in the end, and
after two merges everywhere. One key is shared, so merges do have conflicts. Two tables are only ever changed
together, to the same values. In histories with an odd seed branches are merged both ways at once; merges that cross
each other can leave a table without a common base, which is a conflict that these processes do not settle.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import conroi
from conroi.lake_snapshot import LakeReader
from tests.branches.histories.running import folder
from tests.support.arrow import column_values
from tests.support.processes import fork_context

BRANCHES = ("main", "dev")
SHARED = 999
"""The key that all processes write."""
LOST_RACE = (conroi.RetryableConflict, conroi.TooMuchContention, conroi.ExpectedVersionMismatch)
"""What a writer or a merge may be told; nothing happened then."""


@dataclass
class Journal:
    """What one process did."""

    logged: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Branch and row."""
    unknown: list[int] = field(default_factory=list[int])
    cells: dict[int, int | None] = field(default_factory=dict[int, "int | None"])
    """The last acknowledged value of its own keys; None if it was deleted."""
    pairs: dict[int, int] = field(default_factory=dict[int, int])
    shared: list[int] = field(default_factory=list[int])
    made: list[str] = field(default_factory=list[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    problems: list[str] = field(default_factory=list[str])


class Unsettled(Exception):
    """A conflict that is not about the shared key."""


def settling(side: str) -> Any:
    """For `prefer`: one side for that key, no answer for anything else."""

    def answer(conflict: Any) -> str:
        if conflict.kind == "row" and conflict.key == {"id": SHARED}:
            return side
        raise Unsettled(f"{conflict.kind} {conflict.table} {conflict.key}")

    return answer


def upsert(table: Any, key: int, value: int) -> None:
    source = [{"id": key, "n": value}]
    table.merge(source, on="id").when_matched_update_all().when_not_matched_insert_all().execute()


class _Worker:
    """One process: writes its own keys, the shared key, pairs and logs, makes tables, merges and looks."""

    def __init__(self, uri: str, number: int, seed: int) -> None:
        self._number, self._random = number, random.Random(seed * 31 + number)
        self._targets = BRANCHES if seed % 2 else ("main",)
        self._lakes = {name: conroi.connect(uri, branch=None if name == "main" else name) for name in BRANCHES}
        self.journal = Journal()
        self._values = iter(range(number * 1_000_000 + 1, (number + 1) * 1_000_000))

    def run(self, steps: int) -> None:
        work = (self.log, self.log, self.cell, self.cell, self.cell, self.pair, self.pair, self.shared,
                self.merge, self.merge, self.merge, self.make, self.look, self.compact)  # fmt: skip
        for _ in range(steps):
            verb = self._random.choice(work)
            try:
                verb()
                self.journal.counts[f"{verb.__name__}"] += 1
            except LOST_RACE as error:
                self.journal.counts[f"{verb.__name__}: {type(error).__name__}"] += 1
            except conroi.MergeConflict as error:
                self.journal.counts["merge: refused"] += 1
                self._judge([f"{each.kind} {each.table} {each.key}" for each in error.conflicts])
            except Unsettled as error:
                self.journal.counts["merge: refused"] += 1
                self._judge([str(error)])
            except Exception as error:  # noqa: BLE001
                self.journal.problems.append(f"{verb.__name__}: {type(error).__name__}: {error}")

    def _judge(self, conflicts: list[str]) -> None:
        """The shared key may be in conflict; where merges cross each other, tables may have no base."""
        for each in conflicts:
            is_crossed = each.startswith("history ") and len(self._targets) > 1
            if each != f"row cells {{'id': {SHARED}}}" and not is_crossed:
                self.journal.problems.append(f"merge: conflict {each}")
            self.journal.counts[f"conflict {each.split()[0]}"] += 1

    def _own(self) -> tuple[int, conroi.Lake]:
        """A key of this process, and the branch on which it is written."""
        key = self._number * 10 + self._random.randrange(4)
        return key, self._lakes[BRANCHES[key % 2]]

    def log(self) -> None:
        value, branch = next(self._values), self._random.choice(BRANCHES)
        try:
            self._lakes[branch]["log"].append([{"id": value}])
        except conroi.CommitStateUnknown:
            self.journal.unknown.append(value)
            raise
        self.journal.logged.append((branch, value))

    def cell(self) -> None:
        key, lake = self._own()
        if self._random.randrange(5) == 0:
            lake["cells"].delete(f"id = {key}")
            self.journal.cells[key] = None
            return
        value = next(self._values)
        upsert(lake["cells"], key, value)
        self.journal.cells[key] = value

    def pair(self) -> None:
        key, lake = self._own()
        value = next(self._values)
        with lake.begin("pair") as tx:
            upsert(tx["left"], key, value)
            upsert(tx["right"], key, value)
        self.journal.pairs[key] = value

    def shared(self) -> None:
        value = next(self._values)
        self.journal.shared.append(value)
        upsert(self._lakes[self._random.choice(BRANCHES)]["cells"], SHARED, value)

    def merge(self) -> None:
        target = self._random.choice(self._targets)
        source = BRANCHES[1 - BRANCHES.index(target)]
        prefer = self._random.choice((None, settling("source"), settling("target")))
        self._lakes[target].merge(source, prefer=prefer)

    def make(self) -> None:
        name = f"made_{next(self._values)}"
        self._lakes[self._random.choice(BRANCHES)].create_table(name, [{"id": 1}])
        self.journal.made.append(name)

    def look(self) -> None:
        lake = self._lakes[self._random.choice(BRANCHES)]
        self.journal.problems += unequal(lake.current())

    def compact(self) -> None:
        self._lakes[self._random.choice(BRANCHES)]["cells"].compact()


def unequal(lake: LakeReader) -> list[str]:
    """Pairs that are not equal, and rows that are there twice, in one state."""
    left, right = (rows_of(lake, name) for name in ("left", "right"))
    problems = [f"{lake.branch_name}@{lake.version}: pairs {left} and {right}"] if left != right else []
    logged = column_values(lake["log"].to_arrow()["id"])
    if len(set(logged)) < len(logged):
        problems.append(f"{lake.branch_name}@{lake.version}: rows twice in {sorted(logged)}")
    return problems


def rows_of(lake: LakeReader, name: str) -> dict[int, int]:
    rows = lake[name].to_arrow()
    return dict(zip(column_values(rows["id"]), column_values(rows["n"]), strict=True))


def serve(pipe: Connection, number: int) -> None:
    """A process that takes part in one history after the other."""
    while True:
        try:
            uri, seed, steps = pipe.recv()
        except EOFError:
            return
        worker = _Worker(uri, number, seed)
        worker.run(steps)
        pipe.send(worker.journal)


class Team:
    """Processes that stay for many histories."""

    def __init__(self, size: int = 3) -> None:
        self._size = size

    def __enter__(self) -> Team:
        context = fork_context()
        self._pipes, self._processes = list[Connection](), list[Any]()
        for number in range(1, self._size + 1):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, number), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(30)

    def history(self, seed: int, steps: int = 10) -> tuple[Counter[str], list[str]]:
        """One history: what was done, and what is wrong."""
        with folder() as uri:
            lake = conroi.connect(uri)
            with lake.begin("tables") as tx:
                tx.create_table("log", [{"id": 0}])
                for name in ("cells", "left", "right"):
                    tx.create_table(name, [{"id": 0, "n": 0}, {"id": SHARED, "n": 0}], key="id")
            lake.branches.create("dev")
            for pipe in self._pipes:
                pipe.send((uri, seed, steps))
            journals = [pipe.recv() for pipe in self._pipes]
            counts = Counter[str]()
            for journal in journals:
                counts += journal.counts
            problems = [problem for journal in journals for problem in journal.problems]
            return counts, problems + list(_audit(lake, journals, counts))


def _audit(lake: conroi.Lake, journals: list[Journal], counts: Counter[str]) -> Iterator[str]:
    """After all are done: every past state is whole, and after two merges both branches have everything."""
    dev = lake.branch("dev")
    for branch in (lake, dev):
        before: set[int] = set()
        for commit in reversed(branch.history()):
            if commit.version < 2:
                continue
            past = branch.at(commit.version)
            if "right" not in past.tables():
                continue
            counts["past states"] += 1
            yield from unequal(past)
            logged = set(column_values(past["log"].to_arrow()["id"]))
            if before - logged:
                yield f"{branch.branch_name}@{commit.version}: rows {sorted(before - logged)} are gone"
            before = logged
    for branch in (lake, dev):
        yield from _check_branch(branch, journals, is_merged=False)
    try:
        lake.merge("dev", prefer=settling("source"))
        dev.merge("main", prefer=settling("source"))
        counts["merge"] += 2
        for branch in (lake, dev):
            yield from _check_branch(branch, journals, is_merged=True)
        if rows_of(lake, "cells") != rows_of(dev, "cells"):
            yield f"main has {rows_of(lake, 'cells')}, dev {rows_of(dev, 'cells')}"
    except Unsettled as error:
        counts["histories that end in a conflict"] += 1
        if not str(error).startswith("history "):
            yield f"the last merges: conflict {error}"
    diagnosis = lake.doctor()
    if not diagnosis.is_healthy:
        yield f"doctor: {[str(each) for each in diagnosis.findings if each.severity == 'error']}"


def _check_branch(branch: conroi.Lake, journals: list[Journal], *, is_merged: bool) -> Iterator[str]:
    """What was acknowledged on this branch (after merges: on any) is there, and nothing else."""
    where = branch.branch_name
    yield from unequal(branch)
    everything = [each for journal in journals for each in journal.logged]
    acknowledged = {value for name, value in everything if is_merged or name == where}
    possible = {value for _, value in everything} | {value for journal in journals for value in journal.unknown} | {0}
    logged = set(branch["log"].to_arrow()["id"].to_pylist())
    if acknowledged - logged or logged - possible:
        yield f"{where}: log lacks {acknowledged - logged} and has {logged - possible}"
    for name, last in (("cells", [j.cells for j in journals]), ("left", [j.pairs for j in journals])):
        yield from _check_keys(f"{where}, {name}", rows_of(branch, name), last, is_merged=is_merged)
    shared = {value for journal in journals for value in journal.shared} | {0}
    if rows_of(branch, "cells").get(SHARED) not in shared:
        yield f"{where}: the shared key has {rows_of(branch, 'cells').get(SHARED)}"
    missing = {name for journal in journals for name in journal.made} - set(branch.tables())
    if missing and is_merged:
        yield f"{where}: tables {missing} are gone"


def _check_keys(where: str, found: dict[int, int], journals: list[Any], *, is_merged: bool) -> Iterator[str]:
    expected = {0: 0, **{key: value for journal in journals for key, value in journal.items()}}
    for key, value in expected.items():
        if (is_merged or where.startswith(BRANCHES[key % 2])) and found.get(key) != value:
            yield f"{where}: key {key} has {found.get(key)}, the last acknowledged value is {value}"
    more = found.keys() - expected.keys() - {SHARED}
    if more:
        yield f"{where}: keys {sorted(more)} were never written"
