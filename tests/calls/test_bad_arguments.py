"""The sweep: every public call, every one of its arguments, every kind of bad value. Only typed errors, no change."""

from __future__ import annotations

import inspect
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import conroi
from tests.calls.bad_values import BAD, StreamBrokeError, good
from tests.calls.surface import World, again, make

CALLS = 600
"""So many of them in one run; which ones, the day says. `make soak` does all."""
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


def cases(world: World) -> Iterator[tuple[str, str, str]]:
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
        self._before = world.state()

    def call(self, name: str, argument: str, kind: str) -> None:
        call = dict(self.world.calls())[name]
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
            if self.world.state() != self._before or name.startswith(("tx.", "staged.", "table_tx.", "lease.")):
                self._again()
            return
        if self.world.state() != self._before:
            self.changed.append(case)
            self._again()

    def _again(self) -> None:
        again(self.world, self.template)
        self._before = self.world.state()


def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int | None) -> Sweep:
    world = make(tmp_path / "world")
    shutil.copytree(world.folder, tmp_path / "template")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    again(world, tmp_path / "template")
    chosen = list(cases(world))
    seed = os.environ.get("CONROI_SWEEP_SEED", "20261117")
    if most is not None:
        chosen = sorted(random.Random(seed).sample(chosen, most), key=lambda case: case[0])
    done = Sweep(world, tmp_path / "template")
    for case in chosen:
        done.call(*case)
    print(f"\nbad arguments: {len(chosen)} calls (seed {seed}), untyped: {len(done.untyped)}, changed: {done.changed}")
    print(dict(done.outcomes.most_common()))
    return done


@pytest.mark.contract("U3")
def test_bad_arguments_are_typed_errors_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with capsys.disabled():
        done = sweep(tmp_path, monkeypatch, CALLS)
    assert dict(done.untyped) == {}
    assert done.changed == []


@pytest.mark.soak
def test_all_bad_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    with capsys.disabled():
        done = sweep(tmp_path, monkeypatch, None)
    assert dict(done.untyped) == {}
    assert done.changed == []
