"""The journal of a client: an intent before each operation, an outcome after it. It survives kill -9."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Outcome = Literal["ok", "refused", "unknown"]
Act = Literal["put", "update", "remove"]


@dataclass(frozen=True)
class Effect:
    """What an operation does to one row: put it there, update it if it is there, or remove it."""

    table: str
    act: Act
    id: int
    value: str = ""


@dataclass
class Operation:
    """One operation as its client saw it."""

    client: str
    what: str
    effects: tuple[Effect, ...] = ()
    outcome: Outcome = "unknown"
    """Unknown also if the client was killed before it wrote the outcome."""
    error: str = ""
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list[str])
    """What a reading client found wrong by itself."""
    is_ended: bool = False


class Journal:
    """Appends lines with one write each, without a buffer of the process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def intent(self, what: str, effects: tuple[Effect, ...]) -> None:
        self._line({"what": what, "effects": [[each.table, each.act, each.id, each.value] for each in effects]})

    def outcome(self, outcome: Outcome, error: str, seconds: float, problems: list[str]) -> None:
        self._line({"outcome": outcome, "error": error, "seconds": round(seconds, 3), "problems": problems})

    def _line(self, line: dict[str, object]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


def path_of(folder: Path, client: str, instance: int) -> Path:
    """The journal of one process; a client that was killed has several, in this order."""
    return folder / f"{client}.{instance:05d}.jsonl"


def load(folder: Path) -> Iterator[Operation]:
    """The operations of each client in its order."""
    for path in sorted(folder.glob("*.jsonl")):
        client = path.name.rsplit(".", 2)[0]
        current: Operation | None = None
        for text in path.read_text().splitlines():
            line = json.loads(text)
            if "what" in line:
                if current is not None:
                    yield current
                current = Operation(client, line["what"], tuple(Effect(*each) for each in line["effects"]))
            elif current is not None:
                current.outcome, current.error, current.problems = line["outcome"], line["error"], line["problems"]
                current.seconds, current.is_ended = line["seconds"], True
        if current is not None:
            yield current
