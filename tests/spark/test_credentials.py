"""What Spark writes down of a query: plans, event logs and UI show no credential that conroi was given."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import conroi
from conroi.spark.options import BY_DEFAULT, PIN, Options
from conroi.spark.sessions import java_home
from conroi.spark.source import ConroiDataSource
from tests.support.source import REPOSITORY

SECRET, CONTROL, PASSWORD = "hunter2-of-the-lake", "seen-in-every-log", "pass-of-the-store"


@pytest.mark.contract("U6", "S14")
@pytest.mark.timeout(600)
def test_event_log_ui_and_plans_hold_no_credential(tmp_path: Path):
    """D6: the store's address stood there in clear, and a table's storage options as base64.

    The program writes and reads before it imports conroi: Spark finds the source by itself.
    """
    (tmp_path / "log").mkdir()
    lake = conroi.connect(tmp_path / "lake", store=f"sqlite:///{tmp_path}/{SECRET}.db")
    lake.create_table("t", [{"id": 1, "v": "a"}], key="id")
    program = Path(__file__).parent / "credentials_program.py"
    done = subprocess.run(
        [sys.executable, program, str(tmp_path), SECRET, CONTROL, PASSWORD],
        cwd=tmp_path,
        env={**os.environ, **java(), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (log,) = (tmp_path / "log").iterdir()
    written = log.read_text()
    events = [json.loads(line)["Event"] for line in written.splitlines()]
    assert any("SQLExecutionStart" in event for event in events)
    seen = {
        "the event log": written,
        "the UI": (tmp_path / "ui.txt").read_text(),
        "plans": (tmp_path / "plans.txt").read_text(),
    }
    for what, text in seen.items():
        assert CONTROL in text, f"the negative control: {what} does show options that are not redacted"
        assert SECRET not in text, what
        assert PASSWORD not in text, what
    assert SECRET not in done.stderr + done.stdout


def java() -> dict[str, str]:
    """What a session that conroi does not start needs where there is no Java."""
    home = java_home()
    return {} if home is None else {"JAVA_HOME": home}


@pytest.mark.contract("U6")
@pytest.mark.parametrize(
    "given",
    [
        {"store": f"postgresql://u:{PASSWORD}@host/db"},
        {"store": f"postgresql://host/db?user=u&password={PASSWORD}"},
        {"storageOptions": json.dumps({"account_key": PASSWORD})},
        {"STORAGEOPTIONS": json.dumps({"region": "eu", "sas": PASSWORD})},
    ],
)
def test_a_credential_in_an_option_that_spark_shows_is_refused(given: dict[str, str]):
    with pytest.raises(conroi.InvalidInputError, match="which Spark redacts") as refused:
        Options({"path": "/nowhere", **given})
    assert PASSWORD not in str(refused.value)


@pytest.mark.contract("U6")
@pytest.mark.parametrize(
    "given",
    [
        {"store": "postgresql://u@host/db"},
        {"storeUrl": f"postgresql://u:{PASSWORD}@host/db"},
        {"storageOptions": json.dumps({"region": "eu", "allow_http": "true"})},
        {"storageOptions": json.dumps({"aws_access_key_id": "a", "aws_secret_access_key": PASSWORD})},
        {"secretStorageOptions": json.dumps({"account_key": PASSWORD})},
    ],
)
def test_options_that_spark_redacts_are_taken(given: dict[str, str]):
    """The default patterns of Spark: `(?i)url` for names of options, and one for names and values."""
    options = Options({"path": "/nowhere", **given})
    ((name, value),) = given.items()
    holds_password = PASSWORD in value
    assert not holds_password or "url" in name.lower() or BY_DEFAULT.search(name) or BY_DEFAULT.search(value)
    assert (options.store, options.storage_options) != (None, None)


@pytest.mark.contract("U6")
def test_the_option_of_a_chosen_version_is_redacted_by_its_name():
    assert BY_DEFAULT.search(PIN)


@pytest.mark.contract("U6")
def test_two_names_for_one_thing_are_refused():
    with pytest.raises(conroi.InvalidInputError, match="storeUrl cannot be given"):
        Options({"path": "/nowhere", "store": "sqlite:///a.db", "storeUrl": "sqlite:///b.db"})


@pytest.mark.contract("U6", "E11")
def test_pickled_lakes_and_tables_that_tasks_could_capture_hold_no_credential(tmp_path: Path):
    """A function of the user that runs on executors is pickled with what it names; only our own tasks carry options."""
    lake = conroi.connect(tmp_path / "lake", storage_options={"note": SECRET})
    table = lake.create_table("t", [{"id": 1}])
    for pickled in (pickle.dumps(lake), pickle.dumps(table)):
        assert SECRET.encode() not in pickled
    source = ConroiDataSource({"path": table.uri, "secretStorageOptions": json.dumps({"note": SECRET})})
    assert SECRET.encode() in pickle.dumps(source), "the control: the tasks of Spark need it"
