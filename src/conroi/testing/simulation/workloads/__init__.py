"""Workloads of the simulator, by name; each has its own oracle."""

from __future__ import annotations

from conroi.testing.simulation.workloads.bank import Bank
from conroi.testing.simulation.workloads.base import Workload
from conroi.testing.simulation.workloads.registers import Registers

WORKLOADS: dict[str, type[Workload]] = {kind.name: kind for kind in (Bank, Registers)}
