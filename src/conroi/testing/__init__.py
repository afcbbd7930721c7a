"""Instruments to test what is built on conroi: count requests, inject faults, slow a store down, replay from a seed.

All of them wrap an `Objects`, so they can be put around any store and around each other.
"""

from conroi.testing.counting import CountingObjects, Measurement, kind_of
from conroi.testing.environment import SeededEnvironment
from conroi.testing.faults import (
    ChanceFaults,
    Fault,
    FaultyObjects,
    Gate,
    Script,
    call_after,
    call_before,
    fail,
    lose_answer,
)
from conroi.testing.slow import SlowObjects
from conroi.testing.wrapping import Request, WrappedObjects

__all__ = [
    "ChanceFaults",
    "CountingObjects",
    "Fault",
    "FaultyObjects",
    "Gate",
    "Measurement",
    "Request",
    "Script",
    "SeededEnvironment",
    "SlowObjects",
    "WrappedObjects",
    "call_after",
    "call_before",
    "fail",
    "kind_of",
    "lose_answer",
]
