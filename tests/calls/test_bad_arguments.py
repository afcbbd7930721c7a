"""The sweep: every public call, every one of its arguments, every kind of bad value. Only typed errors, no change."""

from __future__ import annotations

import inspect
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import conroi
from tests.calls.bad_values import BAD, StreamBrokeError, good
from tests.support.public_calls import World, again, make

CALLS = 600
"""So many of them in one run. `make soak` and `python -m tests.calls` do all."""
SEED = os.environ.get("CONROI_SWEEP_SEED", "20261117")
TOLD_EVERY_S = 60.0
Case = tuple[str, str, str]
NOT_CALLED = {
    "conroi.retry": "gives a function",
    "naming.file_name": "the lower layer",
    "naming.path": "the lower layer",
    "lake.sql": "needs Spark",
    "past.sql": "needs Spark",
    "dev.sql": "needs Spark",
    "tx.sql": "needs Spark",
    "tx.amend": "the lower layer",
    "tx.begin_table": "the lower layer",
    "tx.bring_table": "the lower layer",
    "tx.set_row": "the lower layer",
    "tx.hold": "the lower layer",
    "table_tx.hold": "the lower layer",
    "staged.do": "the lower layer",
    "table_tx.do": "the lower layer",
}


def cases(world: World) -> Iterator[Case]:
    """Call, argument, kind of value."""
    for name, call in world.calls():
        if name in NOT_CALLED:
            continue
        for argument in arguments(call):
            if argument != "environment":
                yield from ((name, argument, kind) for kind in BAD)


def arguments(call: Callable[..., Any]) -> list[str]:
    found: list[str] = []
    for parameter in inspect.signature(call).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            found += ["message", "properties", "retries", "strict", "expect", "detached"]
        elif parameter.kind is not inspect.Parameter.VAR_POSITIONAL:
            found.append(parameter.name)
    return found


class Sweep:
    """The calls, made one after another in one world, which is made anew after each that changed it."""

    def __init__(self, world: World, template: Path) -> None:
        self.world = world
        self.template = template
        self.untyped: Counter[str] = Counter()
        self.changed: list[str] = []
        self.outcomes: Counter[str] = Counter()
        self.took_s = 0.0
        self.planned = 0
        self._before = world.state()

    def call(self, name: str, argument: str, kind: str) -> None:
        call = self.world.call(name)
        given = {
            parameter.name: good(self.world, name, parameter.name)
            for parameter in inspect.signature(call).parameters.values()
            if parameter.default is parameter.empty and parameter.kind is not inspect.Parameter.VAR_KEYWORD
        }
        case = f"{name}({argument}={kind})"
        try:
            done = call(**{**given, argument: BAD[kind]()})
            if inspect.isgenerator(done):
                list(done)
        except StreamBrokeError:
            self.outcomes["the caller's own"] += 1
        except conroi.ConroiError as error:
            self.outcomes[type(error).__name__] += 1
            str(error).encode()  # it can be printed
        except Exception as error:  # noqa: BLE001 (what the sweep is about)
            self.untyped[f"{case}: {type(error).__name__}: {str(error)[:200]}"] += 1
        else:
            self.outcomes["accepted"] += 1
            if self.world.state() != self._before or name.startswith("lease."):
                self._again()
            elif name.startswith(("tx.", "staged.", "table_tx.")):
                self.world.begin()
            return
        if self.world.state() != self._before:
            self.changed.append(case)
            self._again()
        elif name.startswith("export."):
            self._again()  # an empty ClickHouse is no change, but slow to look at

    def forget(self) -> None:
        """Keep the counts only, which another process can have."""
        self.world, self._before = World(self.world.folder), {}

    def _again(self) -> None:
        again(self.world, self.template)
        self._before = self.world.state()


def chosen_cases(world: World, seed: str, most: int | None, share: tuple[int, int] = (0, 1)) -> list[Case]:
    """All, or so many drawn with the seed; of these the share of one of several processes."""
    found = list(cases(world))
    if most is not None and most < len(found):
        found = sorted(random.Random(seed).sample(found, most), key=lambda case: case[0])
    return found[share[0] :: share[1]]


def sweep(
    folder: Path, most: int | None, *, share: tuple[int, int] = (0, 1), seed: str = SEED, until_s: float | None = None
) -> Sweep:
    """Make the calls, in a new current folder; a line each minute says how far it is."""
    began = told = time.monotonic()
    world = make(folder / "world")
    shutil.copytree(world.folder, folder / "template")
    (folder / "here").mkdir()
    before = os.getcwd()
    os.chdir(folder / "here")
    try:
        again(world, folder / "template")
        chosen = chosen_cases(world, seed, most, share)
        done = Sweep(world, folder / "template")
        for number, case in enumerate(chosen, 1):
            done.call(*case)
            now = time.monotonic()
            if now - told > TOLD_EVERY_S:
                told = now
                left_s = (now - began) / number * (len(chosen) - number)
                print(
                    f"process {share[0]}: {number:,} of {len(chosen):,} calls, about {left_s:,.0f} s left", flush=True
                )
            if until_s is not None and now - began > until_s:
                break
    finally:
        os.chdir(before)
    done.took_s, done.planned = time.monotonic() - began, len(chosen)
    return done


def sweep_share(number: int, jobs: int, calls: int | None, seed: str, until_s: float | None) -> Sweep:
    """The share of one process, for `python -m tests.calls`."""
    with tempfile.TemporaryDirectory(prefix="conroi-sweep-") as folder:
        done = sweep(Path(folder), calls, share=(number, jobs), seed=seed, until_s=until_s)
    done.forget()
    return done


def evidence(seed: str, done: Sequence[Sweep]) -> str:
    """What a sweep found, in one line."""
    calls = sum(sum(each.outcomes.values()) + sum(each.untyped.values()) for each in done)
    planned = sum(each.planned for each in done)
    untyped, changed = sum(sum(each.untyped.values()) for each in done), sum(len(each.changed) for each in done)
    took_s = max(each.took_s for each in done)
    return (
        f"bad arguments: {calls:,} of {planned:,} calls, seed {seed}, {took_s:,.0f} s ({calls / took_s:,.0f}/s): "
        f"untyped errors {untyped}, changed tables {changed}"
    )


@pytest.mark.contract("U3")
def test_bad_arguments_are_typed_errors_and_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with capsys.disabled():
        done = sweep(tmp_path, CALLS)
        print(f"\n{evidence(SEED, [done])}")
    assert dict(done.untyped) == {}
    assert done.changed == []


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_all_bad_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with capsys.disabled():
        done = sweep(tmp_path, None)
        print(f"\n{evidence(SEED, [done])}")
    assert dict(done.untyped) == {}
    assert done.changed == []
