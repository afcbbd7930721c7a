"""Eight processes race for the same version, many times over: exactly one creates it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.support.cloud_servers import BucketServer
from tests.support.racing import PROCESSES, Race, assert_one_winner_each, run_race
from tests.support.sampling import sampled
from tests.support.servers import S3Server

pytestmark = pytest.mark.contract("T1", "V5")


@pytest.mark.parametrize("putter", ["conditional", "rename", "locked"])
def test_one_of_eight_processes_creates_a_version_on_local_disk(putter: str, tmp_path: Path) -> None:
    race = Race(str(tmp_path / "t.lance"), putter, lock_file=str(tmp_path / "commit.lock"))
    assert_one_winner_each(race, run_race(race))


STORES_AND_PUTTERS = list(product(("seaweedfs", "azurite", "gcs"), ("conditional", "rename", "locked")))


@pytest.mark.parametrize(("service", "putter"), sampled("races", STORES_AND_PUTTERS))
def test_one_of_eight_processes_creates_a_version_in_an_object_store(
    service: str, putter: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    bucket: BucketServer = request.getfixturevalue(service)
    # SeaweedFS makes writers of one name wait for a second or so; hence many names at once.
    lanes = 1 if putter == "locked" else 40 if isinstance(bucket, S3Server) else 4
    race = Race(bucket.new_uri(), putter, bucket.options, str(tmp_path / "commit.lock"), lanes=lanes)
    assert_one_winner_each(race, run_race(race))


@pytest.mark.soak
def test_one_of_eight_processes_creates_each_of_a_thousand_versions_on_an_s3_server(seaweedfs: S3Server) -> None:
    race = Race(seaweedfs.new_uri(), "conditional", seaweedfs.options, rounds=1000, lanes=40)
    assert_one_winner_each(race, run_race(race))


def test_a_lock_makes_a_server_safe_that_ignores_conditions(rclone: S3Server, tmp_path: Path) -> None:
    race = Race(rclone.new_uri(), "locked", rclone.options, str(tmp_path / "commit.lock"))
    assert_one_winner_each(race, run_race(race))


@pytest.mark.parametrize("putter", ["conditional", "rename"])
@pytest.mark.parametrize("service", ["rclone", "careless_gcs"])
def test_control_a_server_that_ignores_conditions_has_many_winners(
    putter: str, service: str, request: pytest.FixtureRequest
) -> None:
    server: BucketServer = request.getfixturevalue(service)
    # rclone also answers 500 now and then when many overwrite one file.
    race = Race(server.new_uri(), putter, server.options, rounds=10, is_failure_fine=True)
    winners = run_race(race)
    assert any(len(of_round) > 1 for of_round in winners)
    with pytest.raises(AssertionError):
        assert_one_winner_each(race, winners)


def test_control_a_lock_that_locks_nothing_has_many_winners(tmp_path: Path) -> None:
    race = Race(str(tmp_path / "t.lance"), "lock that locks nothing", rounds=5)
    assert run_race(race) == [list(range(PROCESSES))] * 5
