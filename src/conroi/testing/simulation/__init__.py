"""Deterministic simulation: the real commit protocol in one process, on the worst storage that is allowed.

`run(seed)` makes one run: tables, concurrent clients, faults, oracles. All of it follows from the seed, so `run(seed)`
is the same in any process, and a failing run can be shrunk and read as a story. See docs/proof.md.

>>> from conroi.testing.simulation import run
>>> run(1, "bank").problems
()
"""

from conroi.testing.simulation.faults import KINDS
from conroi.testing.simulation.runs import Result, Size, Summary, run, run_many, shrunk, story
from conroi.testing.simulation.workloads import WORKLOADS

__all__ = ["KINDS", "WORKLOADS", "Result", "Size", "Summary", "run", "run_many", "shrunk", "story"]
