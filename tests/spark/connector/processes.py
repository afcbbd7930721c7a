"""The Python processes of a JVM, found by their parent and their module."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

HELPER, WORKER = "conroi.spark.connector.helper", "conroi.spark.connector.worker"
PATIENCE_S = 60


def processes(session: SparkSession, module: str) -> list[int]:
    """The ids of the living processes that run this module for the session's JVM."""
    jvm = int(cast("Any", session)._jvm.java.lang.ProcessHandle.current().pid())
    return children(jvm, module)


def children(parent: int, argument: str) -> list[int]:
    """The ids of the living child processes with this argument, or with one that ends with it after a dot."""
    return [number for number in _numbers() if _parent(number) == parent and is_running(number, argument)]


def is_running(number: int, argument: str) -> bool:
    """Whether the process lives, with this argument."""
    arguments = _command(number) if _parent(number) != -1 else []
    return any(each == argument or each.endswith(f".{argument}") for each in arguments)


def _numbers() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]


def _parent(number: int) -> int:
    try:
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] == "Z" else int(fields[1])


def _command(number: int) -> list[str]:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []


def kill(*numbers: int) -> None:
    """End processes at once, and wait until they are gone."""
    for number in numbers:
        os.kill(number, signal.SIGKILL)
    for number in numbers:
        wait_until(lambda number=number: _parent(number) == -1)


def wait_until(holds: Any) -> None:
    """Until the condition holds; an error if it does not for long."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.1)  # to look costs five milliseconds
