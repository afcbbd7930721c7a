"""Processes that talk to the driver: started in a group of their own, heard through a queue, killed as a whole."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

from .events import Event, What

EXAMPLES = str(Path(__file__).parents[1])


class Process:
    """One worker or auditor. What it tells goes to the driver's queue, and also that it ended, unless we killed it."""

    def __init__(self, name: str, module: str, arguments: list[str], logs: Path, heard: queue.Queue[Event]) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        self._command = [sys.executable, "-m", f"orders.{module}", name, *arguments]
        self._heard = heard
        self._killed: set[int] = set()
        self.start()

    def start(self) -> None:
        """Start it; also again, after its end."""
        self._heard.put(Event(What.STARTING, self.name))
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.log.parent,
                env=os.environ
                | {"PYTHONPATH": os.pathsep.join(filter(None, [EXAMPLES, os.environ.get("PYTHONPATH")]))},
                start_new_session=True,  # its Java and its Python workers can be killed with it
            )
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._heard.put(Event.from_json(line))
        code = process.wait()
        if process.pid not in self._killed:
            self._heard.put(Event(What.ENDED, self.name, note="" if code == 0 else f"exit code {code}"))

    def ask(self, line: str) -> None:
        """Send it a line. If it is dead, that comes through the queue."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def no_more(self) -> None:
        """Close its input: then it ends by itself."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def kill(self) -> None:
        """kill -9, with all its children."""
        self._killed.add(self._process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end_of_log(self) -> str:
        """What it printed last."""
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-15:])
