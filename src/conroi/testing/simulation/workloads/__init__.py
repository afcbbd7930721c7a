"""Workloads of the simulator, by name; each has its own oracle."""

from __future__ import annotations

from conroi.testing.simulation.workloads.bank import Bank
from conroi.testing.simulation.workloads.base import Workload
from conroi.testing.simulation.workloads.branches import Branches
from conroi.testing.simulation.workloads.columns import Columns
from conroi.testing.simulation.workloads.crowd import Crowd
from conroi.testing.simulation.workloads.guards import Guards
from conroi.testing.simulation.workloads.idle import Idle
from conroi.testing.simulation.workloads.inserts import Inserts
from conroi.testing.simulation.workloads.jobs import Jobs
from conroi.testing.simulation.workloads.keyed import Keyed
from conroi.testing.simulation.workloads.lone_table import LoneTable
from conroi.testing.simulation.workloads.names import Names
from conroi.testing.simulation.workloads.old_branches import OldBranches
from conroi.testing.simulation.workloads.out_of_band import OutOfBand
from conroi.testing.simulation.workloads.ownership import Ownership
from conroi.testing.simulation.workloads.registers import Registers
from conroi.testing.simulation.workloads.standing_still import StandingStill
from conroi.testing.simulation.workloads.tags import Tags
from conroi.testing.simulation.workloads.truncations import Truncations
from conroi.testing.simulation.workloads.upkeep import Upkeep
from conroi.testing.simulation.workloads.upserts import Upserts
from conroi.testing.simulation.workloads.variants import (
    DatabaseBank,
    DatabaseJobs,
    DatabaseRegisters,
    DatabaseUpkeep,
    LockedInserts,
    ThreadedBank,
    ThreadedInserts,
    ThreadedJobs,
    ThreadedNames,
    ThreadedRegisters,
    ThreadedUpkeep,
)

KINDS = (
    Bank,
    Branches,
    Columns,
    Crowd,
    DatabaseBank,
    DatabaseJobs,
    DatabaseRegisters,
    DatabaseUpkeep,
    Guards,
    Idle,
    Inserts,
    Jobs,
    Keyed,
    LockedInserts,
    LoneTable,
    Names,
    OldBranches,
    OutOfBand,
    Ownership,
    Registers,
    StandingStill,
    Tags,
    ThreadedBank,
    ThreadedInserts,
    ThreadedJobs,
    ThreadedNames,
    ThreadedRegisters,
    ThreadedUpkeep,
    Truncations,
    Upkeep,
    Upserts,
)
WORKLOADS: dict[str, type[Workload]] = {kind.name: kind for kind in KINDS}
