"""Lakes and tables handed to another process."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import conroi
from conroi.stores import FileLock
from tests.support.servers import S3Server

pytestmark = pytest.mark.contract("E11")


def _work(given: Any) -> tuple[int, list[int]]:
    if isinstance(given, conroi.Lake | conroi.LakeSnapshot):
        given = given["t"]
    return given.version, sorted(given.to_arrow()["id"].to_pylist())


def _append(lake: conroi.Lake) -> int:
    return lake["t"].append([{"id": 99}]).version


@pytest.fixture
def lake(tmp_path: Path) -> conroi.Lake:
    lake = conroi.connect(tmp_path / "lake", durable=True)
    lake.create_table("t", [{"id": 1}], key="id").append([{"id": 2}])
    return lake


def test_another_process_opens_it_at_its_version(lake: conroi.Lake, tmp_path: Path):
    branch = lake.branches.create("dev")
    assert branch is not None
    lake.branch("dev")["t"].append([{"id": 3}])
    alone = conroi.create_table(tmp_path / "alone.lance", [{"id": 7}])
    alone.append([{"id": 8}])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_work, (lake,)) == (2, [1, 2])
        assert pool.apply(_work, (lake["t"],)) == (2, [1, 2])
        assert pool.apply(_work, (lake.at(2),)) == (1, [1])
        assert pool.apply(_work, (lake["t"].at(1),)) == (1, [1])
        assert pool.apply(_work, (lake.branch("dev"),))[1] == [1, 2, 3]
        assert pool.apply(_work, (lake.branch("dev")["t"],))[1] == [1, 2, 3]
        assert pool.apply(_work, (alone,)) == (1, [7])
        assert pool.apply(_append, (lake,)) == 3
    assert lake["t"].count_rows() == 3


def test_no_credential_is_in_a_pickle(moto: S3Server, monkeypatch: pytest.MonkeyPatch):
    options = moto.options
    lake = conroi.connect(moto.new_uri("lake"), storage_options=options)
    table = lake.create_table("t", [{"id": 1}])
    alone = conroi.create_table(moto.new_uri(), [{"id": 1}], storage_options=options)
    for given in (lake, table, lake.at(1), alone):
        data = pickle.dumps(given)
        assert options["aws_access_key_id"].encode() not in data
        assert options["aws_secret_access_key"].encode() not in data
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", options["aws_access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", options["aws_secret_access_key"])
    assert pickle.loads(pickle.dumps(lake))["t"].count_rows() == 1
    assert pickle.loads(pickle.dumps(alone)).count_rows() == 1


def test_what_needs_a_secret_or_would_lose_a_lock_is_refused(lake: conroi.Lake, tmp_path: Path):
    stored = conroi.connect(tmp_path / "stored", store=f"sqlite:///{tmp_path}/s.db")
    inner = stored.create_table("t", [{"id": 1}])
    locked = conroi.create_table(tmp_path / "l.lance", [{"id": 1}], commit_lock=FileLock(str(tmp_path / "lock")))
    external = conroi.create_table(tmp_path / "e.lance", [{"id": 1}], store=f"sqlite:///{tmp_path}/e.db")
    tx = lake.begin()
    tx["t"].append([{"id": 5}])
    for given in (stored, inner, locked, external, tx["t"]):
        with pytest.raises(conroi.UnsupportedError, match="cannot be pickled") as caught:
            pickle.dumps(given)
        assert caught.value.hint


def test_a_lake_that_is_gone_is_not_made_again(tmp_path: Path):
    import shutil

    lake = conroi.connect(tmp_path / "lake")
    data = pickle.dumps(lake)
    shutil.rmtree(tmp_path / "lake")
    with pytest.raises(conroi.NotFoundError):
        pickle.loads(data)
    assert not (tmp_path / "lake").exists()


def test_what_belongs_to_this_process_is_refused(lake: conroi.Lake, tmp_path: Path):
    """C10: a pickled transaction was an untyped error; one on a table became a table that commits by itself."""
    alone = conroi.create_table(tmp_path / "alone.lance", [{"id": 7}])
    tx = lake.begin()
    for given in (
        tx,
        tx["t"],
        alone.begin(),
        lake["t"].merge([{"id": 1}], on="id"),
        lake.at(1, keep="1h").lease,
        lake.insert_lock("t"),
        lake.branches,
        lake.tags,
        alone.tags,
        lake.query("SELECT 1"),
    ):
        for work in (pickle.dumps, copy.copy):
            with pytest.raises(conroi.UnsupportedError, match="cannot be pickled"):
                work(given)
    tx["t"].append([{"id": 50}])
    with pytest.raises(conroi.UnsupportedError, match="inside a transaction"):
        pickle.dumps(tx["t"])


@pytest.mark.contract("E4")
def test_a_query_says_nothing_on_stderr(lake: conroi.Lake):
    """C10: DuckDB warned of a call that is going away."""
    script = "import conroi.cli, sys; sys.argv = ['conroi', 'sql', sys.argv[1], 'FROM t', '--json']; conroi.cli.main()"
    command = [sys.executable, "-W", "error::DeprecationWarning:duckdb", "-W", "always", "-c", script, str(lake.uri)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert lake.query("SELECT id FROM t ORDER BY id").to_arrow()["id"].to_pylist() == [1, 2]
