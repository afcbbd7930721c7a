"""Workloads of the simulator, by name; each has its own oracle."""

from __future__ import annotations

from conroi.testing.simulation.workloads.bank import Bank
from conroi.testing.simulation.workloads.base import Workload
from conroi.testing.simulation.workloads.branches import Branches
from conroi.testing.simulation.workloads.inserts import Inserts
from conroi.testing.simulation.workloads.jobs import Jobs
from conroi.testing.simulation.workloads.keyed import Keyed
from conroi.testing.simulation.workloads.lone_table import LoneTable
from conroi.testing.simulation.workloads.names import Names
from conroi.testing.simulation.workloads.out_of_band import OutOfBand
from conroi.testing.simulation.workloads.registers import Registers
from conroi.testing.simulation.workloads.services import (
    DatabaseBank,
    DatabaseJobs,
    DatabaseRegisters,
    DatabaseUpkeep,
    LockedInserts,
)
from conroi.testing.simulation.workloads.tags import Tags
from conroi.testing.simulation.workloads.upkeep import Upkeep

KINDS = (
    Bank,
    Branches,
    DatabaseBank,
    DatabaseJobs,
    DatabaseRegisters,
    DatabaseUpkeep,
    Inserts,
    Jobs,
    Keyed,
    LockedInserts,
    LoneTable,
    Names,
    OutOfBand,
    Registers,
    Tags,
    Upkeep,
)
WORKLOADS: dict[str, type[Workload]] = {kind.name: kind for kind in KINDS}
