"""Workloads of the simulator, by name; each has its own oracle."""

from __future__ import annotations

from conroi.testing.simulation.workloads.bank import Bank
from conroi.testing.simulation.workloads.base import Workload
from conroi.testing.simulation.workloads.jobs import Jobs
from conroi.testing.simulation.workloads.keyed import Keyed
from conroi.testing.simulation.workloads.lone_table import LoneTable
from conroi.testing.simulation.workloads.names import Names
from conroi.testing.simulation.workloads.registers import Registers
from conroi.testing.simulation.workloads.upkeep import Upkeep

WORKLOADS: dict[str, type[Workload]] = {kind.name: kind for kind in (Bank, Jobs, Keyed, LoneTable, Names, Registers, Upkeep)}
