"""Eight processes write one table through the whole stack: one winner for each version, no row lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cloud_servers import BucketServer
from tests.support.sampling import sampled
from tests.support.servers import S3Server
from tests.support.writers import Job, assert_exact, assert_one_creator_each, new_table, run_job

pytestmark = pytest.mark.contract("T1", "V5")


PUTS = ["conditional", "rename", "locked"]


@pytest.mark.parametrize("put", sampled("puts of the day", [(put,) for put in PUTS], least=1, covers=False))
def test_eight_processes_append_to_one_table_on_local_disk(put: str, tmp_path: Path) -> None:
    lock = str(tmp_path / "lock") if put == "locked" else ""
    job = Job(str(tmp_path / "t.lance"), commits=10, lock_file=lock, put="rename" if put == "rename" else "conditional")
    new_table(job)
    assert_exact(job, run_job(job))


def test_eight_processes_create_one_table_on_local_disk(tmp_path: Path) -> None:
    job = Job(str(tmp_path / "t.lance"), commits=10, is_creating=True)
    assert_one_creator_each(job, run_job(job))


def test_eight_processes_append_to_one_table_in_an_object_store(bucket_of_the_day: BucketServer) -> None:
    job = Job(bucket_of_the_day.new_uri(), commits=3, options=bucket_of_the_day.options)
    new_table(job)
    assert_exact(job, run_job(job))


def test_eight_processes_create_one_table_in_an_object_store(bucket_of_the_day: BucketServer) -> None:
    job = Job(bucket_of_the_day.new_uri(), commits=3, is_creating=True, options=bucket_of_the_day.options)
    assert_one_creator_each(job, run_job(job))


def test_a_lock_makes_a_server_safe_that_ignores_conditions(rclone: S3Server, tmp_path: Path) -> None:
    job = Job(rclone.new_uri(), commits=4, options=rclone.options, lock_file=str(tmp_path / "lock"))
    new_table(job)
    assert_exact(job, run_job(job))
