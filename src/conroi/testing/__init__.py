"""Test instruments for code built on conroi: count requests, inject faults, add latency, replay from a seed.

Most of them wrap an `Objects`, so they can be put around any storage and around each other; those called …Records wrap
an external manifest store.
"""

from conroi.testing.faults import (
    ChanceFaults,
    Fault,
    FaultyObjects,
    FaultyRecords,
    Gate,
    NthRequest,
    Script,
    WrappedRecords,
    call_after,
    call_before,
    die,
    fail,
    lose_answer,
)
from conroi.testing.instruments import (
    CountingObjects,
    Measurement,
    Meter,
    Request,
    SeededEnvironment,
    SlowObjects,
    WrappedObjects,
    connect_through,
    kind_of,
)

__all__ = [
    "ChanceFaults",
    "CountingObjects",
    "Fault",
    "FaultyObjects",
    "FaultyRecords",
    "Gate",
    "Measurement",
    "Meter",
    "NthRequest",
    "Request",
    "Script",
    "SeededEnvironment",
    "SlowObjects",
    "WrappedObjects",
    "WrappedRecords",
    "call_after",
    "call_before",
    "connect_through",
    "die",
    "fail",
    "kind_of",
    "lose_answer",
]
