"""A writer that is stopped, as by SIGSTOP or a sleeping laptop, right before the put that decides. Run as a program."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import conroi
from conroi.environment import SYSTEM
from conroi.snapshots.snapshot import TableStorage
from conroi.storage import open_objects
from conroi.storage.objects import Objects
from conroi.table import Table
from conroi.testing import FaultyObjects, Script, call_after, call_before, connect_through
from conroi.versions.folder import FolderVersions
from conroi.versions.retention import other_ages

VERSION_S = 0.4
FILE_S = 1.0


def stop(_request: object) -> None:
    """Nothing of this process runs until it is continued."""
    os.kill(os.getpid(), signal.SIGSTOP)


def stopping(*, after: bool = False) -> Script:
    hook = call_after if after else call_before
    return Script([hook(stop, "put_if_absent", "_versions/*.manifest")])


def table_at(uri: str, plan: Script) -> Table:
    objects = FaultyObjects(open_objects(uri), plan)
    files = TableStorage(objects, FolderVersions(objects), SYSTEM)
    return Table(files, files.head())


def lake_at(uri: str, plan: Script) -> conroi.Lake:
    def wrap(objects: Objects) -> Objects:
        return FaultyObjects(objects, plan) if objects.root.endswith("__manifest") else objects

    return connect_through(uri, wrap)


def switch_off() -> None:
    """The negative control: a writer that does not look whether what it made was collected."""
    FolderVersions.confirm = lambda self, located, since: None  # type: ignore[method-assign]


def work(uri: str, how: str) -> dict[str, Any]:
    table_or_lake, _, kind = how.partition("-")
    plan = stopping(after="after" in kind)
    if "control" in kind:
        switch_off()
    if table_or_lake == "table":
        done = table_at(uri, plan).append([{"n": -1}])
        return {"version": done.version}
    lake = lake_at(uri, plan)
    if "verb" in kind:
        return {"version": lake["t"].append([{"n": -1}]).version}
    with lake.begin() as tx:
        tx["t"].append([{"n": -1}])
    return {"version": tx.result.version}


def main(uri: str, how: str) -> None:
    with other_ages(VERSION_S, FILE_S):
        try:
            answer: dict[str, Any] = work(uri, how)
        except conroi.ConroiError as error:
            answer = {"error": type(error).__name__, "message": error.message}
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
