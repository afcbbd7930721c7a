"""A storage that ignores conditional writes is noticed before the first commit, for one request more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import conroi
from conroi.errors import StoreUnavailable, UnsupportedError
from conroi.locks.file import FileLock
from conroi.storage import cloud, open_objects
from conroi.table import Table
from conroi.testing import CountingObjects, FaultyObjects, fail, lose_answer
from tests.support.cloud_servers import BucketServer
from tests.support.instruments import CloudLike, files_on, table_on
from tests.support.servers import S3Server

pytestmark = pytest.mark.contract("U10")


@pytest.fixture(autouse=True)
def nothing_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud, "_proven", set[object]())


@pytest.mark.parametrize(
    "commit",
    [
        lambda uri, options: conroi.create_table(uri, [{"n": 1}], storage_options=options),
        lambda uri, options: conroi.create_table(uri, [{"n": 1}], storage_options=options, put="rename"),
        lambda uri, options: conroi.connect(uri, storage_options=options),
    ],
    ids=["table", "by renaming", "lake"],
)
@pytest.mark.parametrize("service", ["rclone", "careless_gcs"])
def test_a_server_that_ignores_conditions_is_refused(
    commit: Callable[..., object], service: str, request: pytest.FixtureRequest
) -> None:
    """C9: only doctor noticed it; commits of eight processes overwrote each other."""
    server: BucketServer = request.getfixturevalue(service)
    uri = server.new_uri()
    with pytest.raises(UnsupportedError, match="ignores conditional writes") as caught:
        commit(uri, server.options)
    assert "store=" in str(caught.value)
    assert "commit_lock=" in str(caught.value)
    assert not [name for name in open_objects(uri, server.options).list_names("") if name.endswith(".manifest")]


def test_there_a_lock_or_a_store_is_enough(rclone: S3Server, tmp_path: Path) -> None:
    lock = FileLock(str(tmp_path / "lock"))
    table = conroi.create_table(rclone.new_uri(), [{"n": 1}], storage_options=rclone.options, commit_lock=lock)
    assert table.append([{"n": 2}]).count_rows() == 2
    store = f"sqlite:///{tmp_path}/versions.db"
    table = conroi.create_table(rclone.new_uri(), [{"n": 1}], storage_options=rclone.options, store=store)
    assert table.append([{"n": 2}]).count_rows() == 2


def test_it_costs_one_request_for_each_bucket_and_process(bucket: BucketServer) -> None:
    uri = bucket.new_uri()
    conroi.create_table(uri, [{"n": 1}], storage_options=bucket.options)
    cloud._proven.clear()
    counting = CountingObjects(open_objects(uri, bucket.options))
    files = files_on(counting)
    table = Table(files, files.head())
    asked: list[dict[str, int]] = []
    for number in range(3):
        with counting.measure() as measured:
            table = table.append([{"n": number}])
        asked.append({"all": measured.requests(), "put_if_absent": measured.requests("put_if_absent")})
    assert [each["put_if_absent"] for each in asked] == [2, 1, 1]
    assert asked[0]["all"] - 1 == asked[1]["all"] == asked[2]["all"]
    other = CountingObjects(open_objects(bucket.new_uri(), bucket.options))
    with other.measure() as measured:
        conroi.create_table(other.root, [{"n": 1}], storage_options=bucket.options)
        table_on(other).append([{"n": 2}])
    assert measured.requests("put_if_absent") == 1, "another table of the same bucket"


def test_a_probe_without_an_answer_is_sent_again(bucket: BucketServer) -> None:
    uri = bucket.new_uri()
    conroi.create_table(uri, [{"n": 1}], storage_options=bucket.options)
    cloud._proven.clear()
    faulty = FaultyObjects(open_objects(uri, bucket.options), [lose_answer("put_if_absent", "_transactions/*")])
    assert table_on(faulty).append([{"n": 2}]).version == 2
    cloud._proven.clear()
    dead = FaultyObjects(open_objects(uri, bucket.options), [fail("put_if_absent", "_transactions/*", times=9)])
    with pytest.raises(StoreUnavailable):
        table_on(dead).append([{"n": 3}])
    assert conroi.open_table(uri, storage_options=bucket.options).version == 2, "nothing was committed"


def test_local_disks_are_not_asked(tmp_path: Path) -> None:
    conroi.create_table(tmp_path / "t", [{"n": 1}])
    counting = CountingObjects(CloudLike(open_objects(tmp_path / "t")))
    with counting.measure() as measured:
        table_on(counting).append([{"n": 2}])
    assert measured.requests("put_if_absent") == 1
