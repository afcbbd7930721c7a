from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

import conroi
from conroi.errors import RetryableConflict, TooMuchContention
from tests.cli.conftest import ENTRY_POINT, Run


def test_an_error_is_one_sentence_and_a_hint(cli: Run, lake: conroi.Lake) -> None:
    ran = cli("head", "lake/nope")
    assert ran.code == 1
    assert ran.out == ""
    assert ran.err == (
        "conroi: The lake has no table 'nope' at version 4.\n"
        "hint: It has orders, sales.customers. `conroi create` makes one.\n"
    )


def test_an_error_for_programs_is_a_json_document(cli: Run, lake: conroi.Lake) -> None:
    ran = cli("head", "lake/nope", "--json")
    assert ran.out == ""
    assert ran.error["type"] == "NotFoundError"
    assert ran.error["table"] == "nope"
    assert ran.error["hint"].startswith("It has orders")


def test_debug_shows_where_it_happened(cli: Run, lake: conroi.Lake) -> None:
    assert "Traceback" not in cli("head", "lake/nope").err
    assert "Traceback" in cli("head", "lake/nope", "--debug").err


@pytest.mark.parametrize("kind", [RetryableConflict, TooMuchContention])
def test_a_conflict_ends_with_3(
    cli: Run, lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch, kind: type[conroi.ConflictError]
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise kind("A concurrent commit was first.", table="orders", version=7, base_version=5, hint="Again.")

    monkeypatch.setattr(conroi.Table, "restore", refused)
    ran = cli("restore", "lake/orders", 1, "--json")
    assert ran.code == 3
    assert (ran.error["type"], ran.error["base_version"], ran.error["version"]) == (kind.__name__, 5, 7)


def test_a_bug_of_ours_is_no_traceback_either(cli: Run, lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("inside")

    monkeypatch.setattr(conroi.Lake, "tables", broken)
    ran = cli("tables", "lake")
    assert ran.code == 1
    assert ran.err == "conroi: KeyError: 'inside'\nhint: Run it again with --debug to see where this happened.\n"


def test_wrong_options_for_the_storage(cli: Run, lake: conroi.Lake) -> None:
    assert cli("tables", "lake", "--storage-option", "nonsense").code == 2
    assert cli("tables", "lake", "--storage-option", "key=value").code == 0
    refused = cli("tables", "lake", "--store", "sqlite:///elsewhere.db")
    assert refused.code == 1
    assert "Leave out store." in refused.err


def test_a_lake_with_a_store_is_reached_by_option_and_by_environment(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"sqlite:///{tmp_path}/history.db"
    assert cli("init", "kept", "--store", store).code == 0
    assert cli("tables", "kept").code == 1
    assert cli("tables", "kept", "--store", store).code == 0
    monkeypatch.setenv("CONROI_STORE", store)
    assert cli("log", "kept", "--graph").code == 0
    assert cli("sql", "kept", "SELECT 1 AS one", "--json").rows == [{"one": 1}]


def test_a_password_in_an_address_is_never_said(cli: Run, lake: conroi.Lake) -> None:
    ran = cli("tables", "lake", "--store", "postgresql://ada:s3cret@127.0.0.1:1/db", "--debug")
    assert ran.code == 1
    assert "s3cret" not in ran.out + ran.err


def test_ctrl_c_ends_with_130_and_one_line(lake: conroi.Lake, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    os.mkfifo(plan)
    words = [str(ENTRY_POINT), "load", "lake", "--plan", "plan.toml"]
    running = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    with plan.open("w"):  # opens when the command reads it: it is at work now
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert said == "conroi: Stopped. Nothing is committed but what was reported.\n"


def test_a_reader_that_goes_away_is_no_error(lake: conroi.Lake, tmp_path: Path) -> None:
    words = [str(ENTRY_POINT), "sql", "lake", "SELECT * FROM range(2000000)", "--json"]
    running = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert running.stderr is not None
    assert running.stdout.readline() == '{"range": 0}\n'
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait(60) == 141
    running.stderr.close()
