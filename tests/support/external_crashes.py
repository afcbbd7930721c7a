"""Processes that commit through a store, or complete what they find, and are killed at a chosen moment."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

import conroi
from conroi.environment import SYSTEM
from conroi.snapshots.snapshot import TableStorage
from conroi.storage import open_objects
from conroi.table import Table
from conroi.testing import Fault, FaultyObjects, FaultyRecords, Request, call_after, call_before
from conroi.versions import open_records
from conroi.versions.external import ExternalVersions
from tests.support.databases import aws_environment
from tests.support.instruments import CloudLike
from tests.support.processes import fork_context

STAGED, FINAL = "_versions/*.manifest-*", "_versions/*.manifest"
PATIENCE_S = 60.0

STEPS = ("before staging", "staged", "recorded", "completed", "pointed", "deleted")
"""The moments after which a process can die, in the order of a commit."""


def is_committed(step: str) -> bool:
    """Whether a client of the store sees the new version when the writer died at this step."""
    return STEPS.index(step) >= STEPS.index("recorded")


def is_final(step: str) -> bool:
    """Whether the folder alone shows the new version when the writer died at this step."""
    return STEPS.index(step) >= STEPS.index("completed")


@dataclass(frozen=True)
class Job:
    """What the process does, and when it dies."""

    uri: str
    store: str
    step: str
    is_writing: bool = True
    is_creating: bool = False
    options: Mapping[str, str] = field(default_factory=dict)


def die(_request: Request) -> None:
    """What `kill -9` does, at this very moment."""
    os.kill(os.getpid(), signal.SIGKILL)


def faults_of(step: str) -> tuple[list[Fault], list[Fault]]:
    """Where a process that dies at this step meets its end: at the storage, or at the store."""
    storage = {
        "before staging": call_before(die, "put", STAGED),
        "staged": call_after(die, "put", STAGED),
        "completed": call_after(die, "put_if_absent", FINAL),
        "renamed": call_after(die, "rename_if_absent", FINAL),
        "deleted": call_after(die, "delete", STAGED),
    }
    store = {"recorded": call_after(die, "put_if_absent"), "pointed": call_after(die, "point")}
    return [storage[step]] if step in storage else [], [store[step]] if step in store else []


def run(job: Job) -> None:
    """Append row 2, or only open the table, and die on the way."""
    os.environ.update(aws_environment())
    at_storage, at_store = faults_of(job.step)
    storage = open_objects(job.uri, job.options)
    objects = FaultyObjects(CloudLike(storage) if job.step != "renamed" else storage, at_storage)
    records = FaultyRecords(open_records(job.store, job.options), at_store)
    if job.is_creating:
        conroi.create_table(job.uri, [{"row": 2}], store=records)
    files = TableStorage(objects, ExternalVersions(objects, records), SYSTEM)
    table = Table(files, files.head())
    if job.is_writing:
        table.append([{"row": 2}])
    os._exit(7)


def killed(job: Job) -> None:
    """Run it in a process of its own, and see it killed."""
    process = fork_context().Process(target=run, args=(job,))
    process.start()
    process.join(PATIENCE_S)
    assert process.exitcode == -signal.SIGKILL, f"it ended with {process.exitcode} instead of being killed"
