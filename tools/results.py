"""The last result of every test, kept in a file that many runs add to."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

RESULTS_FILE = Path(".contract", "results.json")


class Outcome(StrEnum):
    """How a test ended; the greater one counts when its set-up and its call differ."""

    PASSED = "passed"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Result:
    """One test's last run."""

    outcome: Outcome
    seconds: float
    finished_at: str


def load_results(file: Path) -> dict[str, Result]:
    """Results by node id; empty if nothing ever ran."""
    if not file.exists():
        return {}
    stored: dict[str, dict[str, str]] = json.loads(file.read_text("utf-8"))
    return {node: _result(fields) for node, fields in stored.items()}


def add_results(file: Path, results: Mapping[str, Result]) -> None:
    """Replace what was known of these tests and keep what was known of others, also when two runs end together."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        merged = load_results(file) | dict(results)
        written = file.with_suffix(".new")
        text = json.dumps({node: asdict(result) for node, result in sorted(merged.items())}, indent=0)
        written.write_text(text, "utf-8")
        os.replace(written, file)


def _result(fields: Mapping[str, str]) -> Result:
    return Result(Outcome(fields["outcome"]), float(fields["seconds"]), fields["finished_at"])
