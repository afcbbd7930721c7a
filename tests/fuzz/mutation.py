"""Mutated inputs to all readers of foreign bytes, and what came of them."""

from __future__ import annotations

import base64
import json
import random
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from conroi.errors import ConroiError
from tests.fuzz.targets import TARGETS

LONGEST = 4096
SLOWEST_S = 2.0
"""An input that takes longer, in seconds of CPU, is a failure."""
MOST_MB = 512
"""Memory by which the process may grow."""
_INTERESTING = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff" * 8, b"\x00" * 8, b"\xff\xff\xff\xff\x0f", b"[", b"{", b'"')
_WORDS = (b"null", b"true", b"NaN", b"1e999", b"-1", b"9" * 30, b"9" * 5000, b"[" * 5000, b"../", b"://", b"\\u0000")


@dataclass(frozen=True)
class Failure:
    """An input that led to something else than a typed error."""

    target: str
    data: bytes
    error: str


def mutations(seeds: tuple[bytes, ...], chance: random.Random) -> Iterator[bytes]:
    """Inputs without end, from one of the seeds each."""
    while True:
        data = bytearray(chance.choice(seeds))
        for _ in range(1 + int(chance.expovariate(0.7))):
            _mutate(data, chance)
        yield bytes(data[:LONGEST]) if chance.random() < 0.98 else bytes(data)


def _mutate(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    kind = chance.randrange(7)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 1 and at < len(data):
        data[at] = chance.randrange(256)
    elif kind == 2:
        del data[at : at + chance.randrange(1, 9)]
    elif kind == 3:
        data[at:at] = chance.choice(_INTERESTING)
    elif kind == 4:
        data[at:at] = chance.choice(_WORDS)
    elif kind == 5:
        other = chance.randrange(len(data) + 1)
        data[at:at] = data[other : other + chance.randrange(1, 33)]
    else:
        data[at : at + 4] = chance.randbytes(chance.randrange(9))


def fuzz(inputs: int, seed: int, only: Sequence[str] = ()) -> list[Failure]:
    """So many inputs, over all targets in turn, or over some of them."""
    failures: list[Failure] = []
    names = list(only or TARGETS)
    streams = {name: mutations(starts(name), random.Random(f"{seed} {name}")) for name in names}
    before_mb = peak_mb()
    for number in range(inputs):
        name = names[number % len(names)]
        failure = tried(name, next(streams[name]))
        if failure is not None:
            failures.append(failure)
        if len(failures) >= 100:
            break
    if peak_mb() - before_mb > MOST_MB:
        failures.append(Failure("all", b"", f"{peak_mb() - before_mb} MB of memory"))
    return failures


@cache
def corpus() -> dict[str, list[bytes]]:
    """Short inputs that a fuzzer guided by coverage kept, a few for each target."""
    content: dict[str, list[str]] = json.loads((Path(__file__).parent / "corpus.json").read_text())
    return {name: [base64.b64decode(each) for each in inputs] for name, inputs in content.items()}


def starts(name: str) -> tuple[bytes, ...]:
    """What is mutated: mostly the valid seeds of the target, sometimes an input of the corpus."""
    found = corpus().get(name, [])
    return (*TARGETS[name].seeds * max(1, len(found)), *found)


def tried(name: str, data: bytes) -> Failure | None:
    """Read one input: a typed error and an answer are right, anything else and a slow answer are failures."""
    began = time.process_time()
    try:
        TARGETS[name].read(data)
    except ConroiError:
        pass
    except Exception as error:  # noqa: BLE001  # whatever it is, it is counted
        return Failure(name, data, f"{type(error).__name__}: {error}"[:200])
    took_s = time.process_time() - began
    return Failure(name, data, f"{took_s:.1f} s") if took_s > SLOWEST_S else None


def peak_mb() -> int:
    """The most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
