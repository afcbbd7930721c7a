"""Threads of one process that commit to one lake on an S3 server at 60 ms a request: transactions in a closed loop."""

from __future__ import annotations

import argparse
import multiprocessing
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from urllib.parse import urlsplit

import conroi
from benchmarks.harness import Workspace
from benchmarks.report import Bar, Report
from tests.support.proxy import Proxy
from tests.support.servers import S3Server, seaweedfs

REQUEST_S = 0.06
LEAST = {1: 3.5, 10: 25.0, 100: 60.0}
"""Transactions a second, by number of threads."""
HEADER = (
    "threads",
    "tables",
    "transactions/s",
    "versions/s",
    "p50 ms",
    "p99 ms",
    "slowest ÷ fastest",
    "CPU ms",
    "errors",
)


@dataclass
class Window:
    """What happened while the threads worked."""

    done: list[int]
    seconds: float = 0.0
    cpu_s: float = 0.0
    versions: int = 0
    latencies_s: list[float] = field(default_factory=list[float])
    errors: list[str] = field(default_factory=list[str])

    @property
    def rate(self) -> float:
        return sum(self.done) / self.seconds

    def row(self, threads: int, tables: str) -> tuple[str, ...]:
        ordered = sorted(self.latencies_s)
        share = min(self.done) / max(1, *self.done)
        return (
            str(threads),
            tables,
            f"{self.rate:.1f}",
            f"{self.versions / self.seconds:.1f}",
            f"{1000 * ordered[len(ordered) // 2]:.0f}",
            f"{1000 * ordered[len(ordered) * 99 // 100]:.0f}",
            f"{share:.2f}",
            f"{1000 * self.cpu_s / max(1, sum(self.done)):.1f}",
            str(len(self.errors)),
        )


def measure(workspace: Workspace, options: argparse.Namespace) -> Report:
    """One, ten and a hundred threads; each with a table of its own, or all with one."""
    report = Report("threads")
    rows: list[tuple[str, ...]] = []
    with seaweedfs(workspace.fresh("server")) as server, distant(server) as address:
        for threads, least in LEAST.items():
            for tables in ("own", "one"):
                window = work(server, address, threads, tables, 3 * options.seconds)
                rows.append(window.row(threads, tables))
                report.bars.append(Bar(f"{threads} threads, {tables} table: transactions a second", window.rate, least))
                errors = len(window.errors)
                report.bars.append(Bar(f"{threads} threads, {tables} table: errors", errors, 0, at_least=False))
    report.add(f"threads of one process on an S3 server, {1000 * REQUEST_S:.0f} ms a request", HEADER, rows)
    return report


@contextmanager
def distant(server: S3Server) -> Generator[str]:
    """The address of the server behind a line with this latency, which a process of its own delays."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_delay, args=(urlsplit(server.endpoint).port, there), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        here.send("end")
        process.join(5.0)


def _delay(port: int, line: Connection) -> None:
    proxy = Proxy(port)
    proxy.latency_s = REQUEST_S
    line.send(proxy.port)
    line.recv()
    proxy.close()


def work(server: S3Server, address: str, threads: int, tables: str, seconds: float) -> Window:
    """Transactions of one append each, for so long; the rows are counted afterwards."""
    uri = server.new_uri("lake")
    near = conroi.connect(uri, storage_options=server.options)
    names = [f"t{number}" for number in range(threads if tables == "own" else 1)]
    with near.begin() as tx:
        for name in names:
            tx.create_table(name, [{"n": -1}])
    lake = conroi.connect(uri, storage_options={**server.options, "aws_endpoint": address})
    for name in names:
        lake[name].count_rows()
    window, before = Window([0] * threads), lake.version

    def run(number: int, until: float) -> None:
        while time.monotonic() < until:
            started = time.monotonic()
            try:
                with lake.begin() as tx:
                    tx[names[number % len(names)]].append([{"n": number}])
            except conroi.ConroiError as error:
                window.errors.append(repr(error))
                continue
            window.latencies_s.append(time.monotonic() - started)
            window.done[number] += 1

    cpu_s, started = time.process_time(), time.monotonic()
    running = [threading.Thread(target=run, args=(number, started + seconds)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    window.seconds, window.cpu_s = time.monotonic() - started, time.process_time() - cpu_s
    window.versions = lake.version - before
    rows = sum(near[name].count_rows() for name in names) - len(names)
    if rows != sum(window.done):
        window.errors.append(f"{sum(window.done)} were acknowledged, and {rows} are there")
    return window
