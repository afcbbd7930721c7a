"""Workloads in other settings: lakes whose history is in a SQL store, insert locks, several threads in one process.

The oracles are those of the workloads that they come from. The store loses statements and answers as the storage of
files does; the lock server ends sessions whose client goes on believing that it holds the lock. Threads share one
connection, so their publications are committed in groups.
"""

from __future__ import annotations

from conroi.testing.simulation.workloads.bank import Bank
from conroi.testing.simulation.workloads.inserts import Inserts
from conroi.testing.simulation.workloads.jobs import Jobs
from conroi.testing.simulation.workloads.names import Names
from conroi.testing.simulation.workloads.registers import Registers
from conroi.testing.simulation.workloads.upkeep import Upkeep


class DatabaseBank(Bank):
    """See the module."""

    name = "database_bank"
    uses_database = True


class DatabaseJobs(Jobs):
    """See the module."""

    name = "database_jobs"
    uses_database = True


class DatabaseRegisters(Registers):
    """See the module."""

    name = "database_registers"
    uses_database = True


class DatabaseUpkeep(Upkeep):
    """See the module."""

    name = "database_upkeep"
    uses_database = True


class LockedInserts(Inserts):
    """See the module."""

    name = "locked_inserts"
    uses_locks = True


class ThreadedBank(Bank):
    """See the module."""

    name = "threaded_bank"
    threads = 3


class ThreadedInserts(Inserts):
    """See the module."""

    name = "threaded_inserts"
    threads = 3


class ThreadedJobs(Jobs):
    """See the module."""

    name = "threaded_jobs"
    threads = 3


class ThreadedNames(Names):
    """See the module."""

    name = "threaded_names"
    threads = 3


class ThreadedRegisters(Registers):
    """See the module."""

    name = "threaded_registers"
    threads = 4


class ThreadedUpkeep(Upkeep):
    """See the module."""

    name = "threaded_upkeep"
    threads = 3
