"""Runs a history: starts its processes, kills, pauses and replaces them, reads everything at the end, and checks it."""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from typing import Any

import lance

from conroi.testing.history import Recorder, Report, check, load_history, load_notes
from conroi.versions.retention import other_ages
from tests.histories import workload
from tests.histories.crew import Job, Role, Setting, work
from tests.histories.workload import TABLES
from tests.support.processes import fork_context

ENDS_WITHIN_S = 120.0
WEIGHTS: dict[Role, float] = {"writer": 3.0, "idler": 0.3}
"""How often a process is killed or paused, beside the others."""
CREW: tuple[Role, ...] = ("writer", "writer", "writer", "reader", "idler", "compactor", "collector")


@dataclass(frozen=True)
class Size:
    """How much of it."""

    tried: int
    """So many transactions are tried by all that write."""
    seconds: float
    """Then it ends, also if there were fewer."""
    kill_every: float = 2.0
    """Killings are so far apart on average, in ages of a version; pauses likewise."""
    pause_every: float = 2.0


@dataclass
class Outcome:
    """What a history was, and what was found in it."""

    setting: Setting
    report: Report
    tried: int = 0
    """Transactions of all that write; the report counts the readers' as well."""
    committed: int = 0
    compared: int = 0
    """Reads that were compared with the base version."""
    counts: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    """Typed conflicts and unknown outcomes, by type."""
    unexpected: Counter[str] = field(default_factory=Counter[str])
    problems: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    def __str__(self) -> str:
        lines = [
            f"isolation={self.setting.isolation} store={self.setting.store and self.setting.store.split(':')[0]} "
            f"seed={self.setting.seed} {self.seconds:.0f} s: {self.committed} of {self.tried} committed; {self.report}",
            f"  compared with base: {self.compared}; write skews: {self.report.write_skews}; "
            f"recovered: {self.report.recovered}; unobserved: {self.report.unobserved}",
            f"  {dict(sorted(self.counts.items()))}",
            f"  refused: {dict(self.refused)}; unexpected: {dict(self.unexpected)}",
            *(f"  anomaly {anomaly}" for anomaly in self.report.anomalies[:20]),
            *(f"  problem {problem}" for problem in self.problems[:10]),
        ]
        return "\n".join(lines)

    @property
    def is_clean(self) -> bool:
        return not (self.report.anomalies or self.problems or self.unexpected)


def run(setting: Setting, size: Size, crew: Sequence[Role] = CREW) -> Outcome:
    """One history, from an empty lake to its report."""
    setting.folder.mkdir(parents=True, exist_ok=True)
    with other_ages(setting.version_s, setting.file_s):
        workload.make(setting.connect())
    started = time.monotonic()
    supervisor = _Supervisor(setting, size, crew)
    supervisor.run()
    with other_ages(setting.version_s, setting.file_s):
        try:
            _read_everything(setting, supervisor.recorder)
        except Exception:  # noqa: BLE001 (it is what this looks for)
            supervisor.recorder.note(problem="the end cannot be read", error=traceback.format_exc()[-3000:])
    outcome = judge(setting)
    outcome.seconds = time.monotonic() - started
    return outcome


class _Supervisor:
    def __init__(self, setting: Setting, size: Size, crew: Sequence[Role]) -> None:
        self._setting = setting
        self._size = size
        self._chance = random.Random(f"{setting.seed} supervisor")
        self._context = fork_context()
        self._started = 0
        self._running: dict[str, tuple[Job, ForkServerProcess]] = {}
        self._paused: dict[str, float] = {}
        """By process, when it goes on."""
        self._read: dict[str, int] = {}
        """By record, how many bytes of it were read."""
        self._begun = 0
        self.recorder = Recorder(setting.folder / "supervisor.jsonl")
        for role in crew:
            self._start(role)

    def _start(self, role: Role) -> None:
        self._started += 1
        job = Job(self._setting, role, self._started)
        process = self._context.Process(target=work, args=(job,), daemon=True)
        process.start()
        self._running[job.name] = (job, process)

    def run(self) -> None:
        until = time.monotonic() + self._size.seconds
        next_kill, next_pause = self._soon(self._size.kill_every), self._soon(self._size.pause_every)
        try:
            while time.monotonic() < until and self._tried() < self._size.tried:
                time.sleep(0.1)
                now = time.monotonic()
                self._wake(now)
                self._replace_dead()
                if now > next_kill:
                    self._kill()
                    next_kill = self._soon(self._size.kill_every)
                if now > next_pause:
                    self._pause()
                    next_pause = self._soon(self._size.pause_every)
            self._setting.stop.touch()
            self._wake(float("inf"))
            self._join()
        finally:
            for _, process in self._running.values():
                if process.is_alive():
                    process.kill()

    def _soon(self, mean: float) -> float:
        return time.monotonic() + self._setting.version_s * self._chance.expovariate(1 / mean)

    def _tried(self) -> int:
        """How many transactions all that write have begun; of each record only what is new is read."""
        for path in self._setting.folder.glob("*.jsonl"):
            if not path.name.startswith("reader"):
                with path.open("rb") as file:
                    file.seek(self._read.get(path.name, 0))
                    new = file.read()
                whole = new[: new.rfind(b"\n") + 1]
                self._read[path.name] = self._read.get(path.name, 0) + len(whole)
                self._begun += whole.count(b'"invoke"')
        return self._begun

    def _victim(self) -> tuple[Job, ForkServerProcess] | None:
        names = [name for name in self._running if name not in self._paused]
        weights = [WEIGHTS.get(self._running[name][0].role, 1.0) for name in names]
        return self._running[self._chance.choices(names, weights)[0]] if names else None

    def _kill(self) -> None:
        victim = self._victim()
        if victim is None or not victim[1].is_alive():
            return
        job, process = victim
        process.kill()
        process.join(30)
        del self._running[job.name]
        self.recorder.note(killed=job.role)
        self._start(job.role)

    def _pause(self) -> None:
        """Stand still, mostly for longer than a version stays."""
        victim = self._victim()
        if victim is None or not victim[1].is_alive():
            return
        job, process = victim
        if not _signal(process, signal.SIGSTOP):
            return
        self._paused[job.name] = time.monotonic() + self._setting.version_s * self._chance.uniform(0.5, 2.5)
        self.recorder.note(paused=job.role)

    def _wake(self, now: float) -> None:
        for name in [name for name, until in self._paused.items() if until <= now]:
            del self._paused[name]
            _signal(self._running[name][1], signal.SIGCONT)

    def _replace_dead(self) -> None:
        for job, process in list(self._running.values()):
            if not process.is_alive():
                if process.exitcode == -signal.SIGKILL:  # its own hand: see Death
                    self.recorder.note(killed=f"{job.role} at a request")
                elif process.exitcode:  # else it has said why
                    self.recorder.note(problem=f"{job.name} ended by itself with {process.exitcode}")
                del self._running[job.name]
                self._paused.pop(job.name, None)  # it died just before it was to stand still
                self._start(job.role)

    def _join(self) -> None:
        until = time.monotonic() + ENDS_WITHIN_S
        for job, process in self._running.values():
            process.join(max(0.1, until - time.monotonic()))
            if process.is_alive():
                assert process.pid is not None
                os.kill(process.pid, signal.SIGUSR1)  # writes down where it is
                time.sleep(0.5)
                stack = (self._setting.folder / f"{job.name}.stack").read_text()
                self.recorder.note(problem=f"{job.name} does not end: {stack[-3000:]}")


def _signal(process: ForkServerProcess, number: int) -> bool:
    """Whether the process was there to get it."""
    assert process.pid is not None
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def _read_everything(setting: Setting, recorder: Recorder) -> None:
    """The last transaction reads all registers; other readers see the same rows."""
    lake = setting.connect()
    recorder.invoke("final", [], time.monotonic_ns())
    with lake.begin(isolation=setting.isolation) as tx:
        final = {name: workload.read_table(tx[name], name) for name in TABLES}
    operations = [read for name in TABLES for read in workload.as_reads(name, final[name])]
    recorder.complete("final", "ok", operations, time.monotonic_ns())
    for name in TABLES:
        pinned = workload.read_table(lake.at(version=lake.version)[name], name)
        by_path = lance.dataset(lake[name].uri, storage_options=dict(setting.options) or None)
        rows = by_path.to_table(workload.SCHEMAS[name].names[:2]).num_rows
        if _sorted(pinned) != _sorted(final[name]) or rows != lake[name].count_rows():
            recorder.note(problem=f"{name} differs at the end: {pinned}, {final[name]}, {rows} rows by path")
    wrong = [finding for finding in lake.doctor().findings if finding.severity == "error"]
    for finding in wrong:
        recorder.note(problem=f"doctor: {finding}")


def _sorted(lists: dict[int, list[int]]) -> dict[int, list[int]]:
    return {number: sorted(elements) for number, elements in lists.items()}


def judge(setting: Setting) -> Outcome:
    """Check what the processes of a history wrote down."""
    paths = sorted(setting.folder.glob("*.jsonl"))
    history = load_history(paths)
    outcome = Outcome(setting, check(history, setting.isolation))
    writing = [each for each in history if not each.name.startswith(("reader", "final"))]
    outcome.tried = len(writing)
    outcome.committed = sum(each.outcome == "ok" for each in writing)
    for note in load_notes(paths):
        _count(outcome, note)
    return outcome


def _count(outcome: Outcome, note: dict[str, Any]) -> None:
    if "unexpected" in note:
        where = note.get("mode") or note.get("upkeep")
        outcome.unexpected[f"{note['error']} in {where}"] += 1
    elif "complete" in note and "error" in note:
        outcome.refused[note["error"]] += 1
    if "problem" in note:
        outcome.problems.append(f"{note['problem']} {note.get('error', '')}")
    outcome.compared += note.get("base_compared", 0)
    for fact in ("expired", "collected"):
        outcome.counts[fact] += note.get(fact, 0)
    for fact in ("killed", "paused", "idle", "upkeep"):
        if fact in note:
            what = note[fact] + (" refused" if "refused" in note else "")
            outcome.counts[f"{fact}: {what}"] += 1
    if "base_gone" in note:
        outcome.counts["base gone when compared"] += 1
