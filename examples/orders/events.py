"""What happened: workers and readers tell the driver, a line of JSON each, and the report is made of it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, TextIO


class What(StrEnum):
    """What an event says."""

    STARTING = "starting"  # a process was started
    READY = "ready"  # … and waits for work
    BEGIN = "begin"  # a step was handed out
    NOTE = "note"  # how far it is; "attempt" is the start of each attempt
    DONE = "done"
    REFUSED = "refused"  # a conflict that is not tried again by itself
    FAILED = "failed"  # an error of another kind
    KILLED = "killed"  # with signal 9
    ENDED = "ended"  # the process is gone
    AUDIT = "audit"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened."""

    what: What
    who: str
    at: float = field(default_factory=time.time)
    step: str = ""
    note: str = ""
    version: int = 0
    """Of the lake: made by the step, or audited."""
    rebased: int = 0
    """On how many versions of others, of all tables, the step was put."""
    was_done_before: bool = False
    rows: dict[str, int] = field(default_factory=dict[str, int])
    """By table, at an audit."""
    checks: int = 0
    problems: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    def to_json(self) -> str:
        """As one line."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(line: str) -> Event:
        """The event of such a line."""
        facts: dict[str, Any] = json.loads(line)
        return Event(What(facts.pop("what")), **facts)


def speaker() -> Callable[[Event], None]:
    """Our standard output for events alone: whatever else is printed goes to the log, with the errors."""
    out: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr

    def tell(event: Event) -> None:
        out.write(event.to_json() + "\n")
        out.flush()

    return tell
