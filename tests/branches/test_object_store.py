"""Branches in an object store: conditional puts decide, and a merge copies inside the store."""

from __future__ import annotations

import lance
import pytest

import conroi
from conroi.testing import CountingObjects, Meter, connect_through
from tests.branches.conftest import numbers, texts, upsert
from tests.support.cloud_servers import BucketServer


@pytest.mark.contract("B1", "B3", "B5")
def test_a_branch_in_an_object_store_is_made_written_merged_and_deleted(bucket: BucketServer) -> None:
    uri, options = bucket.new_uri("lake").removesuffix(".lance"), bucket.options
    lake = conroi.connect(uri, storage_options=options)
    with lake.begin("two tables") as tx:
        tx.create_table("orders", [{"id": i, "n": 10 * i} for i in (1, 2, 3)], key="id")
        tx.create_table("log", [{"text": "a"}])
    lake.branches.create("dev")
    with pytest.raises(conroi.AlreadyExistsError):
        conroi.connect(uri, storage_options=options).branches.create("dev")
    dev = conroi.connect(uri, storage_options=options, branch="dev")
    upsert(dev, {1: 11, 4: 40})
    dev["orders"].delete("id = 2")
    dev["log"].append([{"text": "b"}])
    assert numbers(lake) == {1: 10, 2: 20, 3: 30}
    name = lake.branches.get("dev").lance_name
    dev["orders"].append([{"id": 5, "n": 50}])  # after which the version before has its final name
    theirs = lance.dataset(f"{uri}/orders.lance", storage_options=options).checkout_version((name, None))
    assert 2 not in theirs.to_table()["id"].to_pylist()

    meter = Meter()
    again = connect_through(uri, lambda objects: CountingObjects(objects, meter), storage_options=options)
    with meter.measure() as measured:
        again.merge("dev")

    assert numbers(lake) == {1: 11, 3: 30, 4: 40, 5: 50}
    assert texts(lake) == ["a", "b"]
    assert measured.requests("copy_from", "data") == 3, "the new files, and not those that main has"
    stalled = dev.begin()
    stalled["orders"].append([{"id": 9, "n": 9}])
    lake.branches.delete("dev")
    with pytest.raises(conroi.NotFoundError, match="was deleted"):
        stalled.commit()
    lake.branches.create("dev")
    assert numbers(lake.branch("dev")) == {1: 11, 3: 30, 4: 40, 5: 50}
    tag = lake.tags.create("now")
    assert lake.tags.move("now", tag.version - 1).version == tag.version - 1
