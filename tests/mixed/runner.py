"""Starts the clients of one lake, kills and pauses them at seeded times, and judges what is left.

    python -m tests.mixed.runner FOLDER SEED OPERATIONS SECONDS [ENVIRONMENTS]

ENVIRONMENTS is a folder of `tools.client_environments`: each release of lancedb there becomes one more client.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

import conroi
from tests.mixed.journal import Effect, Journal, load, path_of
from tests.mixed.oracle import PAIR, Report, judge
from tests.mixed.worker import rows

REPOSITORY = Path(__file__).parents[2]
CLIENTS = ("lancedb", "pylance", "path", "verbs", "transactions", "compactor")
ENDS_WITHIN_S = 90.0


@dataclass(frozen=True)
class Size:
    """How much of it; it ends at the first of both."""

    operations: int
    seconds: float
    kill_every_s: float = 8.0
    pause_every_s: float = 5.0
    longest_pause_s: float = 3.0


@dataclass
class Run:
    """One lake, its clients, and what was done to them."""

    folder: Path
    seed: int
    size: Size
    clients: Mapping[str, str]
    """The interpreter of each client, by its name: its kind, and after a dash what tells it from others."""
    stuck: list[str] = field(default_factory=list[str])
    """Clients that did not end within their time."""
    kills: int = 0
    pauses: int = 0
    seconds: float = 0.0
    report: Report = field(default_factory=Report)

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.seconds:.0f} s, {self.kills} kills, {self.pauses} pauses: {self.report}"


def interpreters(environments: Path | None = None, clients: tuple[str, ...] = CLIENTS) -> dict[str, str]:
    """Each client with this interpreter, and one of lancedb for each environment."""
    found = dict.fromkeys(clients, sys.executable)
    for each in sorted(environments.glob("lancedb-*")) if environments else []:
        found[each.name] = str(each / "bin" / "python")
    return found


def make(folder: Path) -> conroi.Lake:
    """A lake with a table for appends, a keyed and indexed one, a pair, and one that is written by path."""
    lake = conroi.connect(folder / "lake")
    first = Effect("", "put", 0, "first")
    lake.create_table("t", rows())
    lake.create_table("k", rows(first), key="id", stable_row_ids=True)
    lake["k"].create_index("id")
    lake.create_table("p", rows())
    with lake.begin() as tx:
        for table in PAIR:
            tx.create_table(table, rows())
    return lake


def run(folder: Path, seed: int, size: Size, clients: Mapping[str, str]) -> Run:
    """From an empty folder to the report."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Run(folder, seed, size, clients)
    make(folder)
    _Supervisor(made).run()
    lake = conroi.connect(folder / "lake")
    note = Journal(path_of(folder, "runner", 0))
    effects = (Effect("k", "put", 0, "first"), Effect("p", "put", 1, "last"))
    note.intent("adopt", effects)
    _adopt(lake, rows(effects[1]))
    note.outcome("ok", "", 0.0, [])
    made.report = judge(lake, load(folder))
    made.report.anomalies += [f"{client} did not end" for client in made.stuck]
    return made


def _adopt(lake: conroi.Lake, last: pa.Table) -> None:
    """One commit after all that was written by path: it adopts that first, as far as its time allows."""
    for _ in range(20):
        with contextlib.suppress(conroi.TooMuchContention):
            lake["p"].append(last)
            return
    raise AssertionError("what was written by path is not adopted")


class _Supervisor:
    def __init__(self, made: Run) -> None:
        self._run = made
        self._chance = random.Random(f"{made.seed} supervisor")
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        """The process of each client that forks the one which works."""
        self._killed: dict[str, int] = {}
        self._paused: dict[str, tuple[int, float]] = {}
        """By client, the process and when it goes on."""
        self._begun_so_far = 0
        self._read: dict[Path, int] = {}

    def run(self) -> None:
        folder, size = self._run.folder, self._run.size
        try:
            for owner, client in enumerate(self._run.clients, 1):
                self._start(client, owner)
            while not all((folder / f"{client}.ready").exists() for client in self._run.clients):
                time.sleep(0.05)
                self._check_alive()
            (folder / "go").touch()
            began = time.monotonic()
            self._disturb(began + size.seconds)
            self._run.seconds = time.monotonic() - began
            (folder / "stop").touch()
            self._wake(float("inf"))
            for client, process in self._running.items():
                try:
                    process.wait(timeout=ENDS_WITHIN_S)
                except subprocess.TimeoutExpired:
                    self._run.stuck.append(client)
        finally:
            (folder / "stop").touch()
            for client, process in self._running.items():
                if process.poll() is None:
                    process.kill()
                    process.wait()
                    self._signal(client, signal.SIGKILL)

    def _start(self, client: str, owner: int) -> None:
        made = self._run
        arguments = [str(made.folder / "lake"), str(made.folder), client, str(owner), str(made.seed)]
        with (made.folder / f"{client}.log").open("ab") as log:
            self._running[client] = subprocess.Popen(
                [made.clients[client], "-m", "tests.mixed.worker", *arguments],
                cwd=REPOSITORY,
                stdout=log,
                stderr=log,
                env={**os.environ, "LANCE_LOG": "error"},
            )

    def _disturb(self, until: float) -> None:
        size = self._run.size
        next_kill, next_pause = self._soon(size.kill_every_s), self._soon(size.pause_every_s)
        while time.monotonic() < until and self._begun() < size.operations:
            time.sleep(0.05)
            self._check_alive()
            now = time.monotonic()
            self._wake(now)
            client = self._chance.choice(sorted(self._running))
            if client in self._paused:
                continue
            if now > next_kill:
                self._run.kills += self._signal(client, signal.SIGKILL) is not None
                next_kill = self._soon(size.kill_every_s)
            elif now > next_pause:
                process = self._signal(client, signal.SIGSTOP)
                if process is not None:
                    self._paused[client] = process, now + self._chance.uniform(0.1, size.longest_pause_s)
                    self._run.pauses += 1
                next_pause = self._soon(size.pause_every_s)

    def _soon(self, mean: float) -> float:
        return time.monotonic() + self._chance.expovariate(1 / mean)

    def _begun(self) -> int:
        """How many operations were begun; of each journal only what is new is read."""
        for path in self._run.folder.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                self._begun_so_far += file.read().count(b'{"what"')
                self._read[path] = file.tell()
        return self._begun_so_far

    def _signal(self, client: str, number: signal.Signals) -> int | None:
        """To the process that works; None if it was killed and the next one is not there yet."""
        path = self._run.folder / f"{client}.pid"
        process = int(path.read_text() or 0) if path.exists() else 0
        if process == 0 or self._killed.get(client) == process:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
        if number == signal.SIGKILL:
            self._killed[client] = process
        return process

    def _wake(self, now: float) -> None:
        for client, (process, until) in list(self._paused.items()):
            if now >= until:
                os.kill(process, signal.SIGCONT)
                del self._paused[client]

    def _check_alive(self) -> None:
        for client, process in self._running.items():
            if process.poll() is not None:
                log = (self._run.folder / f"{client}.log").read_text(errors="replace")[-2000:]
                raise AssertionError(f"{client} ended by itself with {process.returncode}: {log}")


def main(arguments: list[str]) -> int:
    if len(arguments) < 4:
        print(__doc__)
        return 2
    folder, seed, operations, seconds = Path(arguments[0]), *arguments[1:4]
    clients = interpreters(Path(arguments[4]) if len(arguments) > 4 else None)
    made = run(folder, int(seed), Size(int(operations), float(seconds)), clients)
    print(made)
    return 1 if made.report.anomalies else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
