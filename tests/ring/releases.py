"""The releases of pylance that a run of the ring has, each with its interpreter; without a ring the installed one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lance

from tests.soak.writers import Books, Writer

VARIABLE = "CONROI_RING"
"""JSON: release to interpreter. `make ring` sets it."""
SECONDS = "CONROI_RING_SECONDS"
"""How long the writers of the mixed soak write."""
HERE = Path(__file__).parents[2]
PATIENCE_S = 300.0


def interpreters() -> dict[str, str]:
    return json.loads(os.environ.get(VARIABLE) or json.dumps({lance.__version__: sys.executable}))


def environment() -> dict[str, str]:
    """Tests and sources come from this checkout, whichever interpreter runs them."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE / "src"), str(HERE)])}


def call(release: str, module: str, *arguments: str) -> Any:
    """The last line that the module prints with this release, as JSON."""
    command = [interpreters()[release], "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=HERE, timeout=PATIENCE_S)
    assert done.returncode == 0, f"pylance {release}: {done.stderr[-3000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def write_together(writers: list[tuple[str, Writer]], start: Path) -> list[Books]:
    """Each writer with its release, at the same time; their books in this order."""
    with ExitStack() as running:
        started = [running.enter_context(_writer(release, writer, start)) for release, writer in writers]
        for release, process in zip((release for release, _ in writers), started, strict=True):
            line = process.stdout.readline()
            assert line == f"ready {release}\n", f"{line}{process.communicate(timeout=PATIENCE_S)[1][-3000:]}"
        start.touch()
        answers = [process.communicate(timeout=PATIENCE_S) for process in started]
    for process, (_, problem) in zip(started, answers, strict=True):
        assert process.returncode == 0, problem[-3000:]
    return [_books(json.loads(said.splitlines()[-1])) for said, _ in answers]


def _writer(release: str, writer: Writer, start: Path) -> Any:
    job = {"root": writer.root, "number": writer.number, "seed": writer.seed}
    job |= {"seconds": writer.seconds, "steps": writer.steps, "is_pylance": writer.is_pylance}
    command = [interpreters()[release], "-m", "tests.ring.writer", json.dumps(job), str(start)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), cwd=HERE
    )


def _books(told: dict[str, Any]) -> Books:
    """JSON has no numbers for keys."""
    return Books(
        {int(key): n for key, n in told["rows"].items()},
        Counter({int(key): n for key, n in told["added"].items()}),
        {int(key): operation for key, operation in told["versions"].items()},
        Counter(told["done"]),
        Counter(told["refused"]),
    )
