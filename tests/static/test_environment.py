"""Time, randomness, ids, processes and threads come from `conroi.environment` and `conroi.storage.parallel` alone.

What reads a clock of its own cannot be replayed, and is wrong where the clock is (F14, F2); a pool or thread of its own
does not survive a fork (F9).
"""

from __future__ import annotations

import ast

import pytest

from tests.support.source import Module, conroi_modules

pytestmark = pytest.mark.contract("T16", "T20")

HOMES = {"conroi.environment", "conroi.storage.parallel"}

CLOCKS = {"time", "monotonic", "time_ns", "monotonic_ns", "perf_counter", "sleep", "clock_gettime"}
FORBIDDEN: dict[str, set[str]] = {
    "time": CLOCKS,
    "random": {"random", "uniform", "choice", "randint", "Random", "SystemRandom"},
    "uuid": {"uuid1", "uuid4"},
    "os": {"getpid", "fork"},
    "threading": {"Thread", "Timer"},
    "concurrent.futures": {"ThreadPoolExecutor", "ProcessPoolExecutor"},
}
"""By module, what no other module of conroi may use."""
FORBIDDEN_NAMES = frozenset[str]().union(*FORBIDDEN.values())

EXCEPTIONS: dict[str, tuple[set[str], str]] = {
    "conroi.testing.instruments": (
        {"monotonic", "Random"},
        "measures real requests; has the seeded environment of a test",
    ),
    "conroi.testing.faults": ({"Random", "getpid"}, "draws faults from a seed; kills its own process"),
    "conroi.catalog.manifest_rows": ({"getpid"}, "a scratch folder belongs to one process"),
    "conroi.storage.local_folders": ({"getpid"}, "temporary names of one process"),
    "conroi.versions.retention": ({"getpid"}, "says in the lease who holds it"),
    "conroi.storage.memory": ({"getpid"}, "a forked child must not delete its parent's files"),
    "conroi.locks.file": ({"getpid"}, "says in the lock file who holds it"),
    "conroi.storage.sqlite": ({"getpid"}, "a connection belongs to one process"),
    "conroi.locks.postgres": ({"getpid"}, "a connection belongs to one process"),
    "conroi.storage.dynamodb": ({"getpid"}, "a client belongs to one process"),
    "conroi.locks.dynamodb": ({"Thread"}, "keeps a lease while its holder works"),
    "conroi.storage.postgres": (
        {"getpid", "monotonic", "sleep", "Thread"},
        "ends calls that have no timeout",
    ),
    "conroi.inserts.postgres_locks": ({"getpid", "monotonic"}, "a connection belongs to one process; waits for a lock"),
    "conroi.inserts.insert_locks": (
        {"getpid", "Thread"},
        "a held lock belongs to one process; a thread waits for a lock and can be given up",
    ),
    "conroi.export.clickhouse_runs": ({"getpid"}, "names the worker in the journal"),
    "conroi.testing.simulation.faults": ({"Random"}, "draws faults from a seed"),
    "conroi.testing.simulation.locks": ({"Random"}, "draws lost sessions from a seed"),
    "conroi.testing.simulation.carriers": ({"Thread"}, "is the other home of threads: those of a simulation"),
    "conroi.testing.simulation.scheduler": ({"Random"}, "draws the order from a seed"),
    "conroi.testing.simulation.world": ({"Random"}, "draws latencies and clients from a seed"),
    "conroi.testing.simulation.workloads.base": ({"Random"}, "draws a workload from a seed"),
    "conroi.testing.simulation.workloads.lone_table": ({"Random"}, "names the type of what is drawn from a seed"),
    "conroi.testing.simulation.workloads.registers": ({"Random"}, "names the type of what is drawn from a seed"),
    "conroi.spark.connector.driver": ({"Thread"}, "serves the JVM, and must not keep the process from ending"),
    "conroi.spark.fragment_jobs": ({"ThreadPoolExecutor"}, "jobs of one driver, by the driver's threads"),
    "conroi.spark.transactions": ({"uuid4"}, "names a transaction of a driver that has no environment"),
    "conroi.spark.writer": ({"uuid4"}, "names a save of a driver that has no environment"),
}
"""What a module uses all the same, and why. This list may only shrink."""


def used(module: Module) -> set[str]:
    """The forbidden names that a module uses, called or handed on."""
    taken = {
        name: imported.module
        for imported in module.imports()
        for name in imported.names
        if not imported.is_for_types_only and name in FORBIDDEN.get(imported.module, set())
    }
    found = set(taken)
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and node.attr in FORBIDDEN_NAMES:
            found |= {node.attr} & FORBIDDEN.get(ast.unparse(node.value), set())
    return found


def test_modules_take_clocks_chance_and_threads_from_their_homes() -> None:
    forbidden = {
        module.name: found
        for module in conroi_modules()
        if module.name not in HOMES and (found := used(module) - EXCEPTIONS.get(module.name, (set[str](), ""))[0])
    }
    assert forbidden == {}, "take it from conroi.environment or conroi.storage.parallel"


def test_no_exception_is_stale() -> None:
    modules = {module.name: module for module in conroi_modules()}
    assert {name: allowed for name, (allowed, _) in EXCEPTIONS.items()} == {
        name: used(modules[name]) if name in modules else None for name in EXCEPTIONS
    }, "the list may only shrink: take out what is not used any more"


@pytest.mark.parametrize(
    "source",
    [
        "import time\nx = time.monotonic()",
        "from time import sleep",
        "import uuid\nuuid.uuid4()",
        "from concurrent.futures import ThreadPoolExecutor",
        "import threading\nthreading.Thread(target=print)",
        "import os\nowner = os.getpid",
        "import random\nrandom.uniform(0, 1)",
    ],
)
def test_control_each_of_them_is_noticed(source: str) -> None:
    assert len(used(Module.parse("conroi.example", source))) == 1


# ------------------------------------------------------------------------------ locks

WAITS = {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier"}

WAITS_IN = {
    "conroi.environment": "no request is made under it",
    "conroi.storage.parallel": "is their home",
    "conroi.locks.dynamodb": "DynamoDB, which is not simulated",
    "conroi.locks.postgres": "one connection of PostgreSQL, which is not simulated",
    "conroi.versions.sql_records": "one connection of a database, which is not simulated",
    "conroi.storage.memory": "held for the making of one folder",
    "conroi.storage.sqlite": "one connection of SQLite, which is not simulated",
    "conroi.storage.postgres": "one connection of PostgreSQL, which is not simulated",
    "conroi.storage.dynamodb": "one client of DynamoDB, which is not simulated",
    "conroi.versions": "held for a look into a dictionary",
    "conroi.inserts.insert_locks": "held for a look into a dictionary",
    "conroi.inserts.lock_back_ends": "locks in files, which are not simulated",
    "conroi.inserts.postgres_locks": "connections of PostgreSQL, which are not simulated",
    "conroi.export": "exports are not simulated",
    "conroi.testing.faults": "held for a count",
    "conroi.testing.instruments": "held for a count",
    "conroi.testing.simulation.carriers": "hands over the token of a simulation",
    "conroi.testing.simulation.scheduler": "waits for the end of a simulation",
}
"""Where threads wait for each other without a ProcessLock or a ThreadQueue, which a simulation schedules, and why."""


def waits(module: Module) -> bool:
    """Whether it makes a lock, or anything else that a thread can wait for, of its own."""
    attributes = [node for node in module.attributes() if node.attr in WAITS]
    imported = [name for each in module.imports() if each.module == "threading" for name in each.names]
    return any(ast.unparse(node.value) == "threading" for node in attributes) or not WAITS.isdisjoint(imported)


def test_threads_wait_where_a_scheduler_sees_it() -> None:
    spark = "conroi.spark"
    found = {module.name for module in conroi_modules() if waits(module) and not module.name.startswith(spark)}
    assert found <= set(WAITS_IN), "use conroi.storage.parallel.ProcessLock"


def test_control_a_lock_is_noticed() -> None:
    assert waits(Module.parse("conroi.example", "import threading\nlock = threading.Lock()"))
    assert waits(Module.parse("conroi.example", "from threading import Condition"))


# ------------------------------------------------------------------------------ the system's own environment

SYSTEM_IN = {
    "conroi.environment": "is its home",
    "conroi.catalog.attachment": "copies a lake into a store before it is opened",
    "conroi.testing.simulation.__main__": "measures how long real runs take",
    "conroi.export": "a table that stands alone, given without an environment",
    "conroi.spark.pins": "a task on an executor, which has no environment",
    "conroi.spark.write_task": "a task on an executor, which has no environment",
}
"""Where the system's environment is used other than as a default that the caller can replace. May only shrink."""


def uses_system(module: Module) -> bool:
    """Whether code takes the system's environment although it could be given another one."""
    defaults = {
        id(default)
        for node in module.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for default in (*node.args.defaults, *node.args.kw_defaults)
    }
    fields = {
        id(keyword.value)
        for node in module.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "field"
        for keyword in node.keywords
        if keyword.arg == "default"
    }
    names = [node for node in module.nodes if isinstance(node, ast.Name) and node.id == "SYSTEM"]
    return any(id(node) not in defaults | fields for node in names)


def test_the_given_environment_is_used() -> None:
    assert {module.name for module in conroi_modules() if uses_system(module)} == set(SYSTEM_IN)


def test_control_the_systems_environment_is_noticed() -> None:
    assert uses_system(Module.parse("conroi.example", "def f(objects):\n    return TableStorage(objects, SYSTEM)"))
    assert not uses_system(
        Module.parse("conroi.example", "def f(objects, environment=SYSTEM):\n    return environment")
    )
