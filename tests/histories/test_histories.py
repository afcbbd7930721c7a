"""Histories of killed and paused processes on one lake, beside upkeep and branches, checked for isolation anomalies.

`pytest -m soak tests/histories` runs the full counts. CONROI_HISTORY_SEED, CONROI_HISTORY_TRIED and
CONROI_HISTORY_SECONDS choose another seed, another number of transactions and another limit of time.
"""

from __future__ import annotations

import os
import time

import pytest

from conroi.testing.history import Isolation
from conroi.versions.retention import other_ages
from tests.histories import workload
from tests.histories.conftest import STORAGES, NewSetting
from tests.histories.running import CREW, Outcome, Size, run
from tests.histories.workload import BAG, CELLS
from tests.support.sampling import sampled

TRIED = int(os.environ.get("CONROI_HISTORY_TRIED", "2000"))
SECONDS = float(os.environ.get("CONROI_HISTORY_SECONDS", "1500"))
SHORT = Size(tried=24, seconds=30, kill_every=1, pause_every=1)
WITH_BRANCHES = ("local", "seaweedfs")


def history(new_setting: NewSetting, storage: str, isolation: Isolation, size: Size) -> Outcome:
    crew = (*CREW, "brancher") if storage in WITH_BRANCHES else CREW
    outcome = run(new_setting(storage, isolation), size, crew)
    print(f"{storage}: {outcome}")
    return outcome


@pytest.mark.contract("H2", "H4")
@pytest.mark.parametrize(
    ("storage", "isolation"),
    sampled(
        "short histories",
        [("local", "serializable"), ("seaweedfs", "snapshot"), ("sqlite", "serializable"), ("postgresql", "snapshot")],
        least=2,
        covers=False,
    ),
)
def test_a_short_history_has_no_anomaly(storage: str, isolation: Isolation, new_setting: NewSetting):
    outcome = history(new_setting, storage, isolation, SHORT)
    assert outcome.is_clean, outcome
    assert outcome.committed > 0


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 900)
@pytest.mark.contract("H2", "H4")
@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
@pytest.mark.parametrize("storage", STORAGES)
def test_a_long_history_has_no_anomaly(storage: str, isolation: Isolation, new_setting: NewSetting):
    outcome = history(new_setting, storage, isolation, Size(tried=TRIED, seconds=SECONDS))
    assert outcome.is_clean, outcome
    assert outcome.tried >= TRIED
    assert outcome.counts["idle: forgotten"] > 0


@pytest.mark.contract("H3")
@pytest.mark.parametrize("storage", STORAGES)
def test_a_lake_that_was_idle_while_versions_expired_loses_nothing(storage: str, new_setting: NewSetting):
    setting = new_setting(storage, "serializable")
    version_s = 2.2 if storage == "seaweedfs" else 0.3
    with other_ages(version_s, 3600):
        busy = setting.connect()
        workload.make(busy)
        idle = setting.connect()
        assert idle[BAG].count_rows() == 0
        for element in (1, 2):
            busy[BAG].append([{"reg": 0, "element": element, "filler": ""}])
        busy[CELLS].update({"items": "'7'"}, "reg = 0")  # the newest commit is about another table
        time.sleep(version_s + 0.1)
        busy.expire(f"{version_s}s", keep=1, dry_run=False)
        tx = idle.begin(isolation="serializable")
        assert tx.base_version == busy.version
        assert workload.read_table(tx[BAG], BAG, [0]) == {0: [1, 2]}
        tx[BAG].append([{"reg": 0, "element": 3, "filler": ""}])
        tx.commit()
        idle[BAG].append([{"reg": 0, "element": 4, "filler": ""}])
        for lake in (idle, busy, setting.connect()):
            assert workload.read_table(lake[BAG], BAG, [0]) == {0: [1, 2, 3, 4]}
            assert workload.read_table(lake[CELLS], CELLS, [0]) == {0: [7]}
        busy[BAG].append([{"reg": 0, "element": 5, "filler": ""}])
        assert sorted(workload.read_table(setting.connect()[BAG], BAG, [0])[0]) == [1, 2, 3, 4, 5]
