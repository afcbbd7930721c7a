"""Mutated inputs to all readers of foreign bytes, and what came of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from conroi.errors import ConroiError
from tests.fuzz.targets import TARGETS

LONGEST = 4096
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


def fuzz(inputs: int, seed: int) -> list[Failure]:
    """So many inputs, over all targets in turn."""
    failures: list[Failure] = []
    streams = {name: mutations(target.seeds, random.Random(f"{seed} {name}")) for name, target in TARGETS.items()}
    names = list(TARGETS)
    for number in range(inputs):
        name = names[number % len(names)]
        data = next(streams[name])
        try:
            TARGETS[name].read(data)
        except ConroiError:
            continue
        except Exception as error:  # noqa: BLE001  # whatever it is, it is counted
            failures.append(Failure(name, data, f"{type(error).__name__}: {error}"[:200]))
            if len(failures) >= 100:
                break
    return failures
