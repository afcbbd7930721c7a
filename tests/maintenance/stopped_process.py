"""Processes that a test stops and continues."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


class Stopped:
    """A process that stopped itself."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def go_on(self) -> dict[str, Any]:
        """Let it finish; its answer."""
        os.kill(self._process.pid, signal.SIGCONT)
        out, err = self._process.communicate(timeout=120)
        assert out, err
        return dict(json.loads(out))


@contextmanager
def stopped(uri: str, how: str) -> Generator[Stopped]:
    """A writer that stands right before (or after) its put."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.maintenance.stalled_writer", uri, how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), process.communicate()[1]
        yield Stopped(process)
    finally:
        process.kill()
        process.wait()
