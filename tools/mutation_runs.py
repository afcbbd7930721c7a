"""Tests with mutants, in forked processes: which lines each test executes, and which test notices a mutant.

A mutant of a function replaces the code of the function in a fork of a process that has collected all tests. A mutant
of code that is executed at import needs a process that has not imported the package yet: a fork of the first one, which
has imported only other people's packages.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import types
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import pytest
from hypothesis import Phase, settings

from tools.mutants import Mutant, mutated

PRELOADED = (
    "google.protobuf.message", "lance.file", "numpy", "obstore.store", "psycopg", "pyarrow.compute", "pyroaring",
)  # fmt: skip
SERVERS = {
    "postgres", "seaweedfs", "moto", "rclone", "azurite", "gcs", "careless_gcs", "bucket", "bucket_of_the_day", "spark",
    "chdb_folder",
}  # fmt: skip
"""Fixtures that start a server, which takes longer than a mutant may cost: their tests are left out."""
SERVER_KINDS = {"postgres", "postgresql", "dynamodb"}
CPU_FACTOR = 10.0
"""A test may use this multiple of its seconds without a mutant, as processor time, and besides the limit of the run."""
WALL_S, WALL_FACTOR = 60.0, 20.0
"""The same for the time on the wall, which a busy machine stretches."""
MOST_FILES = 10
"""Test files that are collected for a mutant of code that is executed at import: that takes longer than the tests."""
IMPORT = "import"
"""Instead of the name of a test: the import of the package, and the collection of the tests."""


@dataclass
class Record:
    """Of each test its seconds (-1: it does not pass), and the lines of the packages that it executes, by module."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])
    lines: dict[str, dict[str, list[int]]] = field(default_factory=dict[str, dict[str, list[int]]])

    def save(self, file: Path) -> None:
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"seconds": self.seconds, "lines": self.lines}), "utf-8")

    @staticmethod
    def load(file: Path) -> Record:
        return Record(**json.loads(file.read_text("utf-8"))) if file.exists() else Record()


class Session:
    """A pytest plugin: collects the tests, and then does some work instead of running all of them."""

    with_servers: ClassVar[bool] = False
    """Whether tests that start a server are used, too."""

    def __init__(self, work: Callable[[Session], None]) -> None:
        self._work = work
        self.items: dict[str, pytest.Item] = {}
        self.config: Any = None
        self.has_failed = False
        self.has_passed = False

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        # An example that fails is enough: it need not be the smallest, nor be remembered.
        phases = [Phase.explicit, Phase.generate]
        settings.register_profile("mutation", deadline=None, database=None, derandomize=True, phases=phases)
        settings.load_profile("mutation")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.config = session.config
        self.items = {item.nodeid: item for item in session.items if self.with_servers or not _needs_server(item)}
        self._work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.has_failed |= report.failed
        self.has_passed |= report.when == "call" and report.passed

    def run(self, name: str, following: str | None) -> None:
        """Run one test; `has_passed` and `has_failed` say how it ended."""
        self.has_failed = self.has_passed = False
        item, after = self.items[name], self.items[following] if following else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)


def _needs_server(item: pytest.Item) -> bool:
    names = set[str](getattr(item, "fixturenames", ()))
    values = getattr(getattr(item, "callspec", None), "params", {}).values()
    return bool(names & SERVERS) or any(isinstance(value, str) and value in SERVER_KINDS for value in values)


def _pytest(arguments: Iterable[str], work: Callable[[Session], None]) -> None:
    """pytest without its files, its limits of time, and its hold on output."""
    options = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:faulthandler", "-o", "timeout=0"]
    pytest.main([*options, *arguments], plugins=[Session(work)])


def preload() -> None:
    """Import what is slow to import and not mutated."""
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


# ------------------------------------------------------------------------------------- record
def recorded(tests: Sequence[str], source: Path, packages: Iterable[str], known: Record) -> Record:
    """The record, with those of the tests that it did not have: they run now."""
    wanted = tuple(f"{source}/{package}/" for package in packages)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "record.json")
        child = os.fork()
        if child == 0:
            _record(tests, source, wanted, known, file)
        os.waitpid(child, 0)
        if not file.exists():
            raise SystemExit("The tests could not be collected.")
        return Record.load(file)


def _record(tests: Sequence[str], source: Path, wanted: tuple[str, ...], known: Record, file: Path) -> NoReturn:
    seen: set[tuple[str, int]] = set()

    def line(frame: types.FrameType, event: str, _: object) -> Any:
        if event == "line":
            seen.add((frame.f_code.co_filename, frame.f_lineno))
        return line

    def call(frame: types.FrameType, _event: str, _: object) -> Any:
        is_wanted = frame.f_code.co_filename.startswith(wanted)
        return line if is_wanted and frame.f_code.co_name != "<module>" else None

    def take() -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for path, number in sorted(seen):
            found.setdefault(path.removeprefix(f"{source}/"), []).append(number)
        seen.clear()
        return found

    def work(session: Session) -> None:
        known.lines[IMPORT] = take()
        new = [name for name in session.items if name not in known.seconds]
        for name, following in _with_following(new):
            started = time.monotonic()
            session.run(name, following)
            is_usable = session.has_passed and not session.has_failed
            known.seconds[name] = round(time.monotonic() - started, 3) if is_usable else -1.0
            known.lines[name] = take()
        known.save(file)
        os._exit(0)

    _quiet()
    threading.settrace(call)
    sys.settrace(call)
    _pytest(tests, work)
    os._exit(1)


# ------------------------------------------------------------------------------------ mutants
@dataclass(frozen=True)
class Job:
    """A mutant and the tests that may notice it. Without a mutant: a control, which no test may fail."""

    mutant: Mutant | None
    tests: Sequence[str]


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant."""

    result: str
    """killed; timeout; survived; untested: no test executes the code; error: the mutant could not be made."""
    by: str = ""
    """The test that noticed it."""


@dataclass(frozen=True)
class Runner:
    """Runs jobs, one after the other."""

    tests: Sequence[str]
    """The files and folders of all tests."""
    source: Path
    seconds: Mapping[str, float]
    budget_s: float
    """Limit of the seconds of the tests of one mutant, as they are without a mutant."""
    limit_s: float
    done: Callable[[Job, Outcome], None]
    kills: Counter[str] = field(default_factory=Counter[str])

    def serve(self, jobs: Sequence[Job]) -> None:
        """Mutants of functions: each in a fork of one process that has collected the tests."""
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return

        def work(session: Session) -> None:
            gc.unfreeze()  # what the tests have frozen is not found otherwise
            functions = [each for each in gc.get_objects() if isinstance(each, types.FunctionType)]
            functions = [each for each in functions if each.__code__.co_filename.startswith(str(self.source))]
            gc.freeze()
            for job in jobs:
                self._watch(job, lambda child, job=job: self._in_place(session, job.mutant, functions, child))
            os._exit(0)

        _quiet()
        _pytest(self.tests, work)
        os._exit(1)

    def serve_import_time(self, jobs: Sequence[Job]) -> None:
        """Mutants of code that is executed at import: each in a process that imports the package."""
        for job in jobs:
            self._watch(job, lambda child, job=job: self._at_import(job.mutant, child))

    def _watch(self, job: Job, run: Callable[[Child], None]) -> None:
        """Fork, run the tests there, and wait until one fails, all have passed, or one takes too long."""
        folder, (reader, writer) = tempfile.mkdtemp(prefix="mutant-"), os.pipe()
        child = os.fork()
        if child == 0:
            os.setsid()
            with contextlib.suppress(BaseException):  # a mutant may exit
                run(Child(writer, folder, self._ordered(job.tests), self._limit))
            os._exit(1)
        os.close(writer)
        try:
            outcome = self._outcome(reader)
        finally:
            os.close(reader)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            shutil.rmtree(folder, ignore_errors=True)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
            outcome = Outcome("timeout", outcome.by)
        self.kills[outcome.by] += outcome.result == "killed"
        self.done(job, outcome)

    def _outcome(self, reader: int) -> Outcome:
        test, text = "", ""
        while True:
            ready, _, _ = select.select([reader], [], [], WALL_S + WALL_FACTOR * self.seconds.get(test, 0.0))
            data = os.read(reader, 65536) if ready else b""
            if not data and not test:
                return Outcome("error")
            if not data:  # it is stuck, or was ended by a signal
                return Outcome("killed" if ready else "timeout", test)
            text += data.decode()
            *lines, text = text.split("\n")
            for line in lines:
                event, _, name = line.partition(" ")
                if event != "start":
                    return Outcome(event, name)
                test = name

    def _limit(self, test: str) -> float:
        return self.limit_s + CPU_FACTOR * self.seconds[test]

    def _ordered(self, tests: Sequence[str]) -> list[str]:
        """As many as the budget has time for: first those that are fast and noticed many mutants.

        Of a test with parameters the first case comes early, and the others later.
        """
        cases, cost = Counter[str](), dict[str, float]()
        for test in tests:
            function = test.partition("[")[0]
            cost[test] = (self.seconds[test] + 0.05 * cases[function]) / (1 + self.kills[test])
            cases[function] += 1
        chosen, spent = list[str](), 0.0
        for test in sorted(tests, key=cost.__getitem__):
            if spent + self.seconds[test] <= self.budget_s:
                chosen.append(test)
                spent += self.seconds[test]
        return chosen

    def _in_place(self, session: Session, mutant: Mutant | None, functions: Sequence[Any], child: Child) -> None:
        if mutant is not None:
            _replace_code(self.source, mutant, functions)
        session.config._tmp_path_factory._basetemp = Path(child.folder)
        child.run(session)

    def _at_import(self, mutant: Mutant | None, child: Child) -> None:
        _quiet()
        if mutant is not None:
            _load_instead(self.source, mutant)
        files = list(dict.fromkeys(test.partition("::")[0] for test in child.tests))[:MOST_FILES]
        child.tell(f"start {IMPORT}" if files else "untested")
        _pytest([f"--basetemp={child.folder}/tests", *files], child.run)
        child.tell(f"killed {IMPORT}")  # the tests could not be collected


@dataclass(frozen=True)
class Child:
    """A process with a mutant, and its tests."""

    writer: int
    folder: str
    tests: Sequence[str]
    limit: Callable[[str], float]
    """The processor time that a test may use."""

    def tell(self, text: str) -> None:
        os.write(self.writer, f"{text}\n".encode())

    def run(self, session: Session) -> None:
        tests = [test for test in self.tests if test in session.items]
        for test, following in _with_following(tests):
            self.tell(f"start {test}")
            signal.setitimer(signal.ITIMER_PROF, self.limit(test))
            session.run(test, following)
            if session.has_failed:
                self.tell(f"killed {test}")
                os._exit(0)
        self.tell("survived" if tests else "untested")
        os._exit(0)


def _replace_code(source: Path, mutant: Mutant, functions: Iterable[Any]) -> None:
    """Give the functions of the module the code of the mutant."""
    file = source / mutant.path
    text = file.read_text("utf-8")
    tree = mutated(text, mutant)
    assert tree is not None
    old = _codes(compile(text, str(file), "exec", dont_inherit=True))
    new = _codes(compile(tree, str(file), "exec", dont_inherit=True))
    changed = {old[key]: new[key] for key in old if key in new and old[key] != new[key]}
    concerned = [function for function in functions if function.__code__ in changed]
    assert concerned, mutant.id
    for function in concerned:
        function.__code__ = changed[function.__code__]


def _codes(module: types.CodeType) -> dict[tuple[str, int, int], types.CodeType]:
    """All code in it: by name, first line, and number among those that share both."""
    found: dict[tuple[str, int, int], types.CodeType] = {}
    numbers, todo = Counter[tuple[str, int]](), [module]
    while todo:
        inner = [each for each in todo.pop().co_consts if isinstance(each, types.CodeType)]
        for code in inner:
            key = code.co_qualname, code.co_firstlineno
            found[(*key, numbers[key])] = code
            numbers[key] += 1
        todo.extend(inner)
    return found


def _load_instead(source: Path, mutant: Mutant) -> None:
    """The next import of the module gets the mutant."""
    file = source / mutant.path
    tree = mutated(file.read_text("utf-8"), mutant)
    assert tree is not None
    code = compile(tree, str(file), "exec", dont_inherit=True)
    get_code = SourceFileLoader.get_code

    def instead(self: SourceFileLoader, fullname: str) -> types.CodeType | None:
        return code if Path(self.path) == file else get_code(self, fullname)

    SourceFileLoader.get_code = instead


def _with_following(names: Sequence[str]) -> list[tuple[str, str | None]]:
    """Each with the one after it: pytest keeps the fixtures that both use."""
    return [(name, names[at + 1] if at + 1 < len(names) else None) for at, name in enumerate(names)]


def _quiet() -> None:
    """Send what the tests print to nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
