"""Forks, threads that outlive the main one, Ctrl-C in the middle of a statement: the right result or a typed error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import conroi
from tests.support.servers import S3Server

pytestmark = pytest.mark.contract("T20")

ROOT = Path(__file__).parents[2]


def output_of(arguments: list[str], options: Mapping[str, str] | None = None, timeout_s: float = 280) -> Any:
    """What the program prints, as JSON."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if options is not None:
        environment["STORAGE_OPTIONS"] = json.dumps(dict(options))
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=timeout_s, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


# ------------------------------------------------------------------------------ fork

AFTER_USE = {
    "a_table": "3",
    "a_lake": "3",
    "a_lake_far_away": "3",
    "a_lake_in_sqlite": "3",
    "while_it_finalizes": "3",
    "while_a_lock_is_held": "2",
}


def test_a_child_of_a_process_that_used_pylance_is_told_so(tmp_path: Path) -> None:
    """(F9.) pylance is not fork-safe: without this, one child in four crashed or hung. The parent goes on."""
    answers = output_of(["-m", "tests.commit.forked_process", str(tmp_path / "lake"), *AFTER_USE])
    for (what, rows), (child, parent) in zip(AFTER_USE.items(), answers, strict=True):
        assert child.startswith("UnsupportedError: This process was forked from one that had read or written"), child
        assert "spawn" in child
        assert parent == rows, f"rows of the parent, {what}"


@pytest.mark.parametrize(
    ("what", "answers"),
    [
        ("a_lake_first_used_in_the_child", ["2", "3"]),
        ("a_namespace", ["['t']", "['t']"]),
        ("the_scratch_folder", ["2", ""]),
    ],
)
def test_a_forked_child_goes_on(what: str, answers: list[str], tmp_path: Path) -> None:
    """(F9, J7.) What needs nothing of the parent's pylance works: metadata, and a parent that had used none."""
    assert output_of(["-m", "tests.commit.forked_process", str(tmp_path / "lake"), what]) == [answers]


def test_a_forked_child_is_told_that_object_stores_do_not_survive_a_fork(seaweedfs: S3Server) -> None:
    uri = f"s3://{seaweedfs.bucket}/forked"
    ((child, parent),) = output_of(["-m", "tests.commit.forked_process", uri, "an_object_store"], seaweedfs.options)
    assert child.startswith("UnsupportedError: This process was forked"), child
    assert "spawn" in child
    assert parent == "3", "the parent goes on"


def test_an_object_store_that_only_the_child_uses_works(seaweedfs: S3Server) -> None:
    uri = f"s3://{seaweedfs.bucket}/in-the-child"
    program = ["-m", "tests.commit.forked_process", uri, "an_object_store_first_used_in_the_child"]
    assert output_of(program, seaweedfs.options)[0][0] == "2"


# ------------------------------------------------------------------------------ threads

OUTLIVING = """
import json, sys, threading, conroi
from conroi.testing import connect_through
from tests.support.instruments import CloudLike

lake = connect_through(sys.argv[1], CloudLike) if sys.argv[2] == "far" else conroi.connect(sys.argv[1])
lake.create_table("t", [{"n": 0}])
main = threading.main_thread()

def work():
    main.join()  # from here on no pool takes work
    try:
        lake["t"].append([{"n": 1}])
        with lake.begin() as tx:
            tx["t"].append([{"n": 2}])
            tx.create_table("u", [{"n": 0}])
        answer = lake["t"].count_rows()
    except BaseException as error:
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps(answer), flush=True)

threading.Thread(target=work).start()
"""


@pytest.mark.parametrize("where", ["near", "far"])
def test_a_thread_that_outlives_the_main_one_commits(where: str, tmp_path: Path) -> None:
    assert output_of(["-c", OUTLIVING, str(tmp_path / "lake"), where]) == 3
    assert conroi.connect(tmp_path / "lake").tables() == ["t", "u"]


# ------------------------------------------------------------------------------ Ctrl-C


def check_interrupted(told: dict[str, Any]) -> None:
    there: list[int] = told["there"]
    assert told["errors"] == [], "an interrupt is a KeyboardInterrupt, and afterwards everything works"
    assert len(there) == len(set(there)), f"doubled: {there}"
    assert set(told["acknowledged"]) <= set(there), "an acknowledged row is missing"
    assert told["interrupted"] > 0, "the test interrupted nothing"
    assert (told["same"], told["healthy"], told["pairs"]) == (True, True, True), told


@pytest.mark.parametrize("place", ["local", "memory", "sqlite"])
def test_after_ctrl_c_the_same_lake_works(place: str, tmp_path: Path) -> None:
    uri = "memory://interrupted" if place == "memory" else str(tmp_path / "lake")
    store = [f"sqlite:///{tmp_path}/lake.db"] if place == "sqlite" else []
    check_interrupted(output_of(["-m", "tests.commit.interrupted_process", uri, "1", "24", *store]))


def test_after_ctrl_c_the_same_lake_on_s3_works(seaweedfs: S3Server) -> None:
    uri = f"s3://{seaweedfs.bucket}/interrupted"
    check_interrupted(output_of(["-m", "tests.commit.interrupted_process", uri, "1", "16"], seaweedfs.options))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("place", ["local", "memory", "sqlite", "s3"])
def test_after_many_interrupts_the_same_lake_works(
    place: str, seed: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    uri = "memory://interrupted" if place == "memory" else str(tmp_path / "lake")
    store = [f"sqlite:///{tmp_path}/lake.db"] if place == "sqlite" else []
    options = None
    if place == "s3":
        server: S3Server = request.getfixturevalue("seaweedfs")
        uri, options = f"s3://{server.bucket}/interrupted-{seed}", server.options
    program = ["-m", "tests.commit.interrupted_process", uri, str(seed), "300", *store]
    check_interrupted(output_of(program, options, timeout_s=900))
