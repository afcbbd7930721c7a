"""Ctrl-C at any moment of a loop of statements. Run as a program: prints which rows were acknowledged and are there."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Generator
from typing import Any

import conroi


@contextlib.contextmanager
def interrupt_within(seconds: float) -> Generator[None]:
    """KeyboardInterrupt after this time, if the block is not left before."""

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def append(lake: conroi.Lake, number: int) -> None:
    lake["t"].append([{"n": number}])


def transact(lake: conroi.Lake, number: int) -> None:
    with lake.begin() as tx:
        tx["t"].append([{"n": number}])
        tx["u"].append([{"n": number}])


def create(lake: conroi.Lake, number: int) -> None:
    with lake.begin() as tx:
        tx.create_table(f"new_{number}", [{"n": number}])
        tx["t"].append([{"n": number}])


def update(lake: conroi.Lake, number: int) -> None:
    with lake.begin() as tx:
        tx["v"].update({"n": str(number)})
        tx["t"].append([{"n": number}])


KINDS = [append, transact, create, update]


def numbers(table: conroi.Table) -> list[int]:
    found: list[Any] = table.to_arrow()["n"].to_pylist()
    return sorted(found)


def main(uri: str, seed: int, rounds: int, store: str | None) -> dict[str, object]:
    options = json.loads(os.environ.get("STORAGE_OPTIONS", "null"))
    lake = conroi.connect(uri, storage_options=options, store=store)
    for name in "tuv":
        lake.create_table(name, [{"n": 0}])
    chance = random.Random(seed)
    started = time.perf_counter()
    for number in (1, 2, 3):
        transact(lake, number)
    usual_s = (time.perf_counter() - started) / 3
    acknowledged: list[int] = [1, 2, 3]
    interrupted = 0
    errors: list[str] = []
    for number in range(10, 10 + rounds):
        kind = KINDS[number % len(KINDS)]
        try:
            with interrupt_within(chance.uniform(0.0005, 1.3 * usual_s)):
                kind(lake, number)
                acknowledged.append(number)
        except KeyboardInterrupt:
            interrupted += 1
        except Exception as error:  # noqa: BLE001  # it is told
            errors.append(f"{kind.__name__}: {type(error).__name__}: {error}")
    for number in (1000, 1001, 1002, 1003, 1004):
        append(lake, number)
        acknowledged.append(number)
    there = numbers(conroi.connect(uri, storage_options=options, store=store)["t"])
    same = numbers(lake["t"])
    return {
        "acknowledged": acknowledged, "there": there, "same": same == there, "interrupted": interrupted,
        "errors": errors, "healthy": conroi.connect(uri, storage_options=options, store=store).doctor().is_healthy,
        "pairs": sorted(set(numbers(lake["u"]))) == numbers(lake["u"]),
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), (sys.argv[4:] or [None])[0])))
