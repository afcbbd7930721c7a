"""The processes of a history: writers, readers, one that is idle, and those that compact, collect and branch."""

from __future__ import annotations

import faulthandler
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import conroi
from conroi.testing import Fault, FaultyObjects, Request, connect_through, die
from conroi.testing.history import Isolation, Operation, Outcome, Read, Recorder
from conroi.versions.retention import other_ages
from tests.histories import workload
from tests.histories.planted import plant
from tests.histories.workload import BAG, CELLS, LOG, OF_BRANCHES, RARE, TABLES, Broken, Choices, Step
from tests.support.lake_tables import FaultyTables

GONE = conroi.VersionExpired
"""What a reader of an expired version is told."""
Role = Literal["writer", "reader", "idler", "compactor", "collector", "brancher"]


class Death:
    """A plan by which a process kills itself before or after its n-th request that changes something."""

    CHANGES = ("put", "rename", "copy", "delete", "publish", "forget")

    def __init__(self, number: int, *, is_after: bool) -> None:
        self._number = number
        self._fault = Fault(after=die) if is_after else Fault(before=die)
        self._count = 0
        self._lock = threading.Lock()

    def choose(self, request: Request) -> Fault | None:
        if not request.verb.startswith(self.CHANGES):
            return None
        with self._lock:
            self._count += 1
            return self._fault if self._count == self._number else None


@dataclass(frozen=True)
class Setting:
    """A lake, and how it is used."""

    uri: str
    isolation: Isolation
    seed: int
    folder: Path
    """Where the records go."""
    store: str | None = None
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    version_s: float = 1.5
    file_s: float = 3.0
    planted: str | None = None
    """A bug that every process has: see planted.py."""

    def connect(self, death: Death | None = None) -> conroi.Lake:
        options = dict(self.options) or None
        if death is None:
            return conroi.connect(self.uri, store=self.store, storage_options=options)
        return connect_through(
            self.uri,
            lambda objects: FaultyObjects(objects, death),
            store=self.store,
            wrap_store=lambda tables: FaultyTables(tables, death),
            storage_options=options,
        )

    @property
    def stop(self) -> Path:
        return self.folder / "stop"


@dataclass(frozen=True)
class Job:
    """One process."""

    setting: Setting
    role: Role
    number: int
    """Of this process, among all that the history ever has."""

    @property
    def name(self) -> str:
        return f"{self.role}-{self.number}"

    @property
    def record(self) -> Path:
        return self.setting.folder / f"{self.name}.jsonl"


def work(job: Job) -> None:
    """What a process does until it is told to stop, or killed."""
    dump = (job.setting.folder / f"{job.name}.stack").open("w")
    faulthandler.register(signal.SIGUSR1, dump)
    with other_ages(job.setting.version_s, job.setting.file_s):
        plant(job.setting.planted)
        try:
            WORK[job.role](Worker(job))
        except conroi.StoreUnavailable as error:  # the machine is too slow for a connection: another process comes
            Recorder(job.record).note(upkeep="connect", refused=type(error).__name__, text=str(error))
            time.sleep(1)
        except Exception:  # noqa: BLE001 (it is what this looks for)
            Recorder(job.record).note(problem="a process died", error=traceback.format_exc())


class Worker:
    """One process at work, and its records."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.setting = job.setting
        self.chance = random.Random(f"{job.setting.seed} {job.role} {job.number}")
        self.choices = Choices(self.chance, first_element=job.number * 100_000)
        self.recorder = Recorder(job.record)
        self.lake = job.setting.connect(self._death())
        self._count = 0

    def _death(self) -> Death | None:
        """Of some, also the moment at which they are killed is chosen: at a request, not between two transactions."""
        is_mortal = self.setting.planted is None and self.job.role not in ("reader", "idler")
        if not is_mortal or self.chance.random() < 0.6:
            return None
        return Death(self.chance.randint(1, self.chance.choice([10, 40, 150])), is_after=self.chance.random() < 0.5)

    @property
    def is_over(self) -> bool:
        return self.setting.stop.exists()

    def pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.is_over:
            time.sleep(min(0.05, seconds))

    # ------------------------------------------------------------------------ transactions

    def transact(self, steps: list[Step], work: Callable[[list[Operation]], object], **facts: object) -> bool:
        """Record a transaction of these steps: `work` does it, and notes what it did. Whether it is committed."""
        self._count += 1
        name = f"{self.job.name}/{self._count}"
        self.recorder.invoke(name, [step.append for step in steps if step.append is not None], time.monotonic_ns())
        done: list[Operation] = []
        outcome, error = self._outcome(lambda: work(done))
        at = time.monotonic_ns()
        if error is not None:
            facts |= self._described(error)
        self.recorder.complete(name, outcome, done, at, **facts)
        if outcome == "ok":
            moved = [step for step in steps if step.table == BAG and step.append is not None]
            self.choices.own += [(step.number, step.element) for step in moved]
        return outcome == "ok"

    def _outcome(self, work: Callable[[], object]) -> tuple[Outcome, Exception | None]:
        try:
            work()
        except conroi.CommitStateUnknown as error:
            return "info", error
        except conroi.ConflictError as error:
            return "fail", error
        except InCommit as error:  # unexpected, and after the point of no return
            return "info", error.cause
        except Exception as error:  # noqa: BLE001 (it is what this looks for)
            return "fail", error
        return "ok", None

    def _described(self, error: Exception) -> dict[str, object]:
        """The error, and whether it was to be expected."""
        facts: dict[str, object] = {"error": type(error).__name__, "text": str(error)[:400]}
        if not isinstance(error, conroi.ConflictError | conroi.CommitStateUnknown):
            trace = "".join(traceback.format_exception(error))
            facts |= {"unexpected": trace[-6000:], "typed": isinstance(error, conroi.ConroiError)}
        return facts

    def attempt(self, steps: list[Step], done: list[Operation], *, lake: conroi.Lake | None = None) -> None:
        """Begin, do the steps, commit."""
        tx = (self.lake if lake is None else lake).begin(isolation=self.setting.isolation)
        self.fill(tx, steps, done, is_on_branch=lake is not None)
        self.commit(tx)

    def commit(self, tx: conroi.Transaction) -> None:
        try:
            tx.commit()
        except (conroi.ConflictError, conroi.CommitStateUnknown):
            raise
        except Exception as error:
            raise InCommit(error) from error

    def fill(
        self, tx: conroi.Transaction, steps: list[Step], done: list[Operation], *, is_on_branch: bool = False
    ) -> None:
        done.clear()
        for step in steps:
            workload.do(tx.table, step, done)
            if self.chance.random() < 0.02:
                self.pause(self.setting.version_s * self.chance.uniform(0.3, 1.5))
        if self.chance.random() < 0.15 and not is_on_branch:
            self.compare_with_base(tx.base_version, done)

    def compare_with_base(self, version: int, done: list[Operation]) -> None:
        """What a transaction read is what its base version has, for all readers."""
        first: dict[str, Read] = {}
        changed: set[str] = set()
        for operation in done:
            if isinstance(operation, Read) and operation.register not in changed:
                first.setdefault(operation.register, operation)
            changed.add(operation.register)
        lake = self.lake if self.chance.random() < 0.8 else self.setting.connect()
        for read in list(first.values())[:4]:
            name, number = read.register.split(".")
            try:
                there = workload.read_table(lake.at(version=version)[name], name, [int(number)])[int(number)]
            except GONE as error:
                self.recorder.note(base_gone=version, error=type(error).__name__)
                return
            same = list(read.elements) == there if read.is_ordered else sorted(read.elements) == sorted(there)
            self.recorder.note(base_compared=1)
            if not same:
                text = f"{read.register} at base {version} is {there}, and was read as {list(read.elements)}"
                self.recorder.note(problem=text)

    def upkeep(self, what: str, work: Callable[[], object]) -> bool:
        """Something that is no transaction of the history; conflicts are part of it."""
        try:
            work()
        except conroi.ConflictError as error:
            self.recorder.note(upkeep=what, refused=type(error).__name__)
            return False
        except Exception as error:  # noqa: BLE001 (it is what this looks for)
            self.recorder.note(upkeep=what, **self._described(error))
            return False
        self.recorder.note(upkeep=what)
        return True


class InCommit(Exception):
    """An error that no commit should raise."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


# ------------------------------------------------------------------------------ writers and readers


def write(worker: Worker) -> None:
    while not worker.is_over:
        drawn = worker.chance.random()
        if drawn < 0.1:
            step = worker.choices.verb()
            worker.transact([step], lambda done, step=step: _by_verb(worker, step, done), mode="verb")
            continue
        steps = worker.choices.steps()
        if drawn < 0.3:
            worker.transact(steps, lambda done, steps=steps: _by_run(worker, steps, done), mode="run")
        else:
            worker.transact(steps, lambda done, steps=steps: worker.attempt(steps, done), mode="begin")


def _by_run(worker: Worker, steps: list[Step], done: list[Operation]) -> None:
    try:
        worker.lake.run(lambda tx: worker.fill(tx, steps, done), isolation=worker.setting.isolation)
    except (conroi.ConflictError, conroi.CommitStateUnknown, Broken):
        raise
    except Exception as error:
        raise InCommit(error) from error


def _by_verb(worker: Worker, step: Step, done: list[Operation]) -> None:
    try:
        workload.do(worker.lake.__getitem__, step, done)
    except (conroi.ConflictError, conroi.CommitStateUnknown):
        raise
    except Exception as error:
        raise InCommit(error) from error


def read(worker: Worker) -> None:
    while not worker.is_over:
        steps = worker.choices.reading()
        if worker.chance.random() < 0.5:
            worker.transact(steps, lambda done, steps=steps: worker.attempt(steps, done), mode="reader")
        else:
            worker.transact(steps, lambda done, steps=steps: _at_newest(worker, steps, done), mode="at")
        worker.pause(0.4)


def _at_newest(worker: Worker, steps: list[Step], done: list[Operation]) -> None:
    try:
        at = worker.lake.at(version=worker.lake.version)
        for step in steps:
            workload.do(at.__getitem__, step, done)
    except conroi.VersionExpired as error:  # it may be forgotten while it is read
        raise conroi.RetryableConflict(f"The version is gone: {error}") from error


# ------------------------------------------------------------------------------ the idle one


def idle(worker: Worker) -> None:
    """One Lake that does nothing until the version it knows has expired, and then reads and commits."""
    ways = [_begin_then, _old_table, _open_transaction, _old_reader]
    while not worker.is_over:
        way = worker.chance.choice(ways)
        way(worker)


def _wait_until_expired(worker: Worker, version: int) -> None:
    """Others look whether the version is still there; this Lake is not touched."""
    other = worker.setting.connect()
    until = time.monotonic() + 6 * worker.setting.version_s + 10
    while time.monotonic() < until and not worker.is_over:
        worker.pause(0.5 * worker.setting.version_s)
        try:
            assert other.version >= version  # now it knows a newer one, and must look for this
            other.at(version=version)
        except GONE:
            worker.recorder.note(idle="forgotten")
            return
    worker.recorder.note(idle="still there")


def _all(worker: Worker) -> list[Step]:
    scans = [Step(name, "scan", 0) for name in TABLES]
    return [*scans, Step(BAG, "append", worker.chance.choice(workload.REGISTERS[BAG]), worker.choices.element())]


def _begin_then(worker: Worker) -> None:
    """Idle, then a transaction that reads everything."""
    _wait_until_expired(worker, worker.lake.version)
    steps = _all(worker) if worker.chance.random() < 0.5 else worker.choices.steps()
    worker.transact(steps, lambda done: worker.attempt(steps, done), mode="idle begin")


def _old_table(worker: Worker) -> None:
    """A table that was opened before, and is written to after."""
    name = worker.chance.choice([CELLS, BAG])
    table = worker.lake[name]
    _wait_until_expired(worker, worker.lake.version)
    action = {CELLS: "update", BAG: "append"}[name]
    step = Step(name, action, worker.chance.choice(workload.REGISTERS[name]), worker.choices.element())

    def by_verb(done: list[Operation]) -> None:
        try:
            workload.do(lambda _: table, step, done)
        except (conroi.ConflictError, conroi.CommitStateUnknown):
            raise
        except Exception as error:
            raise InCommit(error) from error

    worker.transact([step], by_verb, mode="idle table")


def _open_transaction(worker: Worker) -> None:
    """A transaction that began before, and reads and commits after."""
    steps = _all(worker)

    def late(done: list[Operation]) -> None:
        tx = worker.lake.begin(isolation=worker.setting.isolation)
        if worker.chance.random() < 0.5:
            workload.do(tx.table, steps[0], done)
        _wait_until_expired(worker, tx.base_version)
        worker.fill(tx, steps, done)
        worker.commit(tx)

    worker.transact(steps, late, mode="idle transaction")


def _old_reader(worker: Worker) -> None:
    """A pinned reader: the version's rows, or a typed error, and never anything else."""
    try:
        at = worker.lake.at(version=worker.lake.version)
        tables = {name: at[name] for name in TABLES}
        before = {name: workload.read_table(tables[name], name) for name in TABLES}
    except GONE as error:  # this process was paused
        worker.recorder.note(idle="reader told", error=type(error).__name__)
        return
    _wait_until_expired(worker, at.version)
    for name in TABLES:
        for opener in (tables.__getitem__, at.__getitem__):
            try:
                after = workload.read_table(opener(name), name, [0])[0]
            except GONE as error:
                worker.recorder.note(idle="reader told", error=type(error).__name__)
            except Exception as error:  # noqa: BLE001 (it is what this looks for)
                worker.recorder.note(upkeep="idle reader", **worker._described(error))
            else:
                worker.recorder.note(idle="reader read")
                if sorted(after) != sorted(before[name][0]):
                    worker.recorder.note(problem=f"{name} at {at.version} was {before[name][0]} and is {after}")


# ------------------------------------------------------------------------------ upkeep


def compact(worker: Worker) -> None:
    columns = {CELLS: "reg", LOG: "id", BAG: "element", RARE: "reg"}
    while not worker.is_over:
        name = worker.chance.choices(TABLES, [3, 3, 3, 0.3])[0]
        what = worker.chance.choices(["compact", "sort", "index", "drop index"], [4, 2, 3, 1])[0]
        worker.upkeep(what, lambda name=name, what=what: _compact(worker.lake, name, what, columns[name]))
        worker.pause(worker.chance.uniform(0.3, 1.2) * worker.setting.version_s)


def _compact(lake: conroi.Lake, name: str, what: str, column: str) -> None:
    table = lake[name]
    if what == "compact":
        table.compact()
    elif what == "sort":
        table.compact(sort_by=column)
    elif what == "index" and len(table):  # pylance makes none of no rows
        table.create_index(column, name="by_it", replace=True)
    elif what == "drop index" and "by_it" in table.indices:
        table.drop_index("by_it")


def collect(worker: Worker) -> None:
    while not worker.is_over:
        worker.upkeep("expire", lambda: _noted(worker, "expired", _expire(worker)))
        worker.upkeep("gc", lambda: _noted(worker, "collected", _gc(worker)))
        worker.pause(worker.chance.uniform(0.4, 1.2) * worker.setting.version_s)


def _expire(worker: Worker) -> int:
    return len(worker.lake.expire(f"{worker.setting.version_s}s", keep=2, dry_run=False).removed)


def _gc(worker: Worker) -> int:
    return worker.lake.gc(min_age=f"{worker.setting.file_s}s", dry_run=False).files


def _noted(worker: Worker, what: str, count: int) -> None:
    worker.recorder.note(**{what: count})


# ------------------------------------------------------------------------------ branches


def branch(worker: Worker) -> None:
    """Make a branch, write on it, merge it, delete it; what the merge brings is one transaction of the history."""
    round_ = 0
    while not worker.is_over:
        round_ += 1
        name = f"b{worker.job.number}-{round_}"
        for left in [each.name for each in worker.lake.branches.list() if each.name.startswith("b")]:
            worker.upkeep("delete branch", lambda left=left: worker.lake.branches.delete(left))
        if worker.upkeep("create branch", lambda name=name: worker.lake.branches.create(name)):
            _on_branch(worker, name)
        worker.pause(worker.chance.uniform(0.5, 1.5) * worker.setting.version_s)


def _on_branch(worker: Worker, name: str) -> None:
    steps: list[Step] = []
    try:
        dev = worker.lake.branch(name)
        expected = {each: workload.read_table(dev[each], each) for each in TABLES}
        for _ in range(worker.chance.randint(1, 4)):
            new = _steps_on_branch(worker)
            if not worker.upkeep("commit on branch", lambda new=new: worker.attempt(new, [], lake=dev)):
                return  # what is on the branch now is not known; it is never merged
            steps += new
            for step in new:
                expected[step.table].setdefault(step.number, []).append(step.element)
            if worker.chance.random() < 0.3:
                worker.pause(worker.chance.uniform(0.2, 1.5) * worker.setting.version_s)
            for each in TABLES:
                found = workload.read_table(dev[each], each)
                if any(sorted(found.get(number, [])) != sorted(there) for number, there in expected[each].items()):
                    worker.recorder.note(problem=f"{each} on branch {name} is {found}, and should be {expected[each]}")
    except GONE as error:  # this process was paused while it read
        worker.recorder.note(upkeep="branch given up", refused=type(error).__name__)
        return
    worker.transact(steps, lambda done: _merge(worker, name, steps, done), mode="merge of a branch")


def _steps_on_branch(worker: Worker) -> list[Step]:
    steps = [
        Step(CELLS, worker.chance.choice(["write", "merge"]), OF_BRANCHES, worker.choices.element()),
        Step(LOG, worker.chance.choice(["append", "merge"]), OF_BRANCHES, worker.choices.element()),
        Step(BAG, "append", worker.chance.choice([OF_BRANCHES, 0, 1]), worker.choices.element()),
    ]
    return worker.chance.sample(steps, worker.chance.randint(1, 3))


def _merge(worker: Worker, name: str, steps: list[Step], done: list[Operation]) -> None:
    try:
        worker.lake.merge(name)
    except (conroi.ConflictError, conroi.CommitStateUnknown):
        raise
    except Exception as error:
        raise InCommit(error) from error
    done += [step.append for step in steps if step.append is not None]


WORK: dict[Role, Callable[[Worker], None]] = {
    "writer": write,
    "reader": read,
    "idler": idle,
    "compactor": compact,
    "collector": collect,
    "brancher": branch,
}
