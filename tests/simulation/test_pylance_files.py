"""Second lane of the simulator, with pylance on a RAM disk: it makes the same runs, and the stand-in does not lie."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.testing.simulation import WORKLOADS, Result, run, shrunk, story
from conroi.testing.simulation import data_files as stand_in
from conroi.testing.simulation.__main__ import main
from conroi.testing.simulation.pylance_files import PylanceFiles
from conroi.testing.simulation.world import DataFiles, Process, World
from tests.simulation.planted import PLANTED
from tests.support.sampling import sampled, seeds_of_the_day

pytestmark = pytest.mark.contract("H5", "H6")


def folder_of(world: World, uri: str) -> str:
    """The folder in which pylance finds a table."""
    files = world.data_files
    assert isinstance(files, PylanceFiles)
    return files.path(uri)


LANES: tuple[DataFiles, ...] = ("stand-in", "pylance")
TRACES = (
    "from conroi.testing.simulation import run\nfor seed in range(7, 11): print(run(seed, data_files='pylance').trace)"
)


def requests(result: Result) -> list[str]:
    """What happened, in order, but for what only one lane does in the end."""
    return [line for line in result.story if not line[13:].startswith("pylance")]


@pytest.mark.parametrize(
    "number", sampled("lanes", [(number,) for number in range(len(WORKLOADS))], least=8, covers=False)
)
def test_both_lanes_make_the_same_run(number: int) -> None:
    first = seeds_of_the_day("simulation with pylance", 2_000_000, len(WORKLOADS))[0]
    seed = first - first % len(WORKLOADS) + number
    imitated = run(seed, keeps_story=True)
    real = run(seed, keeps_story=True, data_files="pylance")
    assert not real.problems, story(shrunk(real, tries=10))
    assert requests(real) == requests(imitated)
    assert (real.requests, real.committed) >= (imitated.requests, imitated.committed)


def test_the_same_seed_gives_the_same_run_in_two_processes() -> None:
    traces = [
        subprocess.run(
            [sys.executable, "-c", TRACES],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert traces[0] == traces[1]
    assert len(set(traces[0])) == 4


# ---------------------------------------------------------------------------------- conformance


def rows_in_the_end(workload: str, data_files: DataFiles) -> dict[str, list[dict[str, Any]]]:
    """The rows of every table after two runs of one client without faults."""
    return _rows(3, workload, data_files) | _rows(8, workload, data_files)


def _rows(seed: int, workload: str, data_files: DataFiles) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    with World(seed, data_files=data_files) as world:
        made = WORKLOADS[workload](world, 1, 6)

        def look(process: Process) -> None:
            for table in made.tables_at_the_end(process):
                found[f"{seed} {table.uri.rpartition('/')[2]}"] = table.to_arrow().to_pylist()

        world.run({"set-up": made.set_up}, with_faults=False)
        world.run(made.scripts(), with_faults=False)
        world.run({"end": look}, with_faults=False)
        assert not made.problems
        assert not world.data_files.differences
    return found


@pytest.mark.parametrize(
    "workload", sampled("rows of one client", [(name,) for name in sorted(WORKLOADS)], least=8, covers=False)
)
def test_one_client_without_faults_leaves_the_same_rows(workload: str) -> None:
    imitated, real = (rows_in_the_end(workload, lane) for lane in LANES)
    assert real == imitated
    assert any(real.values())


# ---------------------------------------------------------------------------------- controls


@pytest.mark.parametrize(("bug", "seed"), [("tables_one_by_one", 1), ("compaction_ignores_deletions", 15)])
def test_a_planted_bug_is_caught(bug: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, workload = PLANTED[bug]
    assert run(seed, workload, data_files="pylance").problems == ()
    plant(monkeypatch)
    found = run(seed, workload, data_files="pylance").problems
    assert found
    assert not any("differs from the stand-in" in each for each in found)


def no_deletions(*_: object) -> Any:
    return stand_in.BitMap()


def all_alone(fragments: Any, *_: object) -> list[list[int]]:
    return [[fragment.id] for fragment in fragments]


@pytest.mark.parametrize(
    ("name", "lie"), [("load_deletions", no_deletions), ("planned_groups", all_alone)], ids=["rows", "compaction"]
)
def test_a_stand_in_that_lies_is_noticed(name: str, lie: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_in, name, lie)
    problems = [each for seed in range(3) for each in run(seed, "keyed", data_files="pylance").problems]
    assert any("differs from the stand-in" in each for each in problems)


SCHEMA = pa.schema([pa.field("id", pa.int64())])


def test_a_file_that_was_collected_is_missing_for_pylance() -> None:
    def work(process: Process) -> None:
        bucket = process.world.bucket
        uri = f"{process.world.uri}/t.lance"
        table = conroi.create_table(uri, SCHEMA, environment=process.environment)
        table = table.append(pa.table({"id": [1]}, schema=SCHEMA))
        files = [key for key in bucket.keys if "/data/" in key]
        assert [os.path.exists(f"{folder}/{key}") for key in files] == [True]
        bucket.delete(files[0])
        assert [os.path.exists(f"{folder}/{key}") for key in files] == [False]
        with pytest.raises(conroi.CorruptionError, match="A file that the table needs is missing"):
            table.to_arrow()

    with World(1, data_files="pylance") as world:
        folder = folder_of(world, "s3://any")
        world.run({"only": work}, with_faults=False)
    assert not world.data_files.differences
    assert not os.path.exists(folder)


def test_a_crash_can_leave_a_data_file_without_a_commit() -> None:
    def create(process: Process) -> None:
        conroi.create_table(uri, SCHEMA, environment=process.environment)

    def work(process: Process) -> None:
        if not process.life:
            table = conroi.open_table(uri, environment=process.environment)
            world.scheduler.at(0.0, lambda: crash_when_written(process))
            table.append(pa.table({"id": [1]}, schema=SCHEMA))

    def crash_when_written(process: Process) -> None:
        if any("/data/" in key for key in world.bucket.keys):
            world.scheduler.crash(process.client)
        else:
            world.scheduler.at(0.001, lambda: crash_when_written(process))

    with World(1, data_files="pylance") as world:
        uri = f"{world.uri}/t.lance"
        world.run({"set-up": create}, with_faults=False)
        world.run({"only": work}, with_faults=False)
        files = [key for key in world.bucket.keys if "/data/" in key]
        assert [os.path.exists(f"{folder_of(world, 's3://any/')}{key}") for key in files] == [True]
        assert lance.dataset(folder_of(world, uri)).count_rows() == 0


# ---------------------------------------------------------------------------------- the command


def test_the_command_has_the_lane(tmp_path: Path) -> None:
    out = io.StringIO()
    code = main(["--seeds", "1", "--workload", "bank", "--data-files", "pylance", "--folder", str(tmp_path)], out)
    assert code == 0
    assert "0 runs with an anomaly" in out.getvalue()
    assert any(path.name.startswith("conroi-simulation-") for path in tmp_path.iterdir())
