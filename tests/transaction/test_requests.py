"""What a transaction asks of the storage does not grow: not with statements, not with history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import conroi
from conroi.storage.objects import Objects
from conroi.testing import Measurement, Meter, connect_through
from tests.support.instruments import CloudLike

Counts = dict[tuple[str, str], int]


def metered(uri: str, *, is_cloud: bool) -> tuple[conroi.Lake, Meter]:
    """The lake as a process sees it that opens it for the first time, with every request counted."""
    meter = Meter()

    def wrap(objects: Objects) -> Objects:
        return meter.counting(CloudLike(objects) if is_cloud else objects)

    return connect_through(uri, wrap), meter


def measured(uri: str, *, is_cloud: bool, statements: int = 1) -> dict[str, Counts]:
    """The requests of connecting, beginning, reading and committing: by a newcomer, and by one that knows the lake."""
    lake, meter = metered(uri, is_cloud=is_cloud)
    phases: dict[str, Counts] = {"connect": meter.ever.by_verb_and_kind()}
    for who in ("newcomer", "regular"):
        with meter.measure() as begin:
            tx = lake.begin()
        with meter.measure() as work:
            for number in range(statements):
                tx["orders"].append([{"id": number, "n": number}])
                tx["rates"].count_rows()
        with meter.measure() as commit:
            tx.commit()
            _settle(lake)
        phases |= {f"{who} begins": counts(begin), f"{who} works": counts(work), f"{who} commits": counts(commit)}
    return phases


def _settle(lake: conroi.Lake) -> None:
    """Wait for what is finished off the path."""
    for future in list(lake.catalog.finalizing.values()):
        future.result()


def counts(measurement: Measurement) -> Counts:
    return measurement.by_verb_and_kind()


def lake_with_history(uri: str, versions: int) -> conroi.Lake:
    """Two tables and so many versions of the lake, and nearly as many of one table."""
    lake = conroi.connect(uri)
    lake.create_table("orders", [{"id": 1, "n": 1}])
    lake.create_table("rates", [{"name": "a", "rate": 1}])
    table = lake["orders"]
    while lake.version < versions:
        table = table.set_config({"step": str(lake.version)})
    return lake


def assert_same_requests(make: Callable[[int], str], few: int, many: int, *, is_cloud: bool) -> None:
    assert measured(make(few), is_cloud=is_cloud) == measured(make(many), is_cloud=is_cloud)


@pytest.mark.contract("W5")
@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "far away"])
def test_requests_are_as_many_at_hundreds_of_versions_as_at_ten(tmp_path_factory: Any, is_cloud: bool):
    def make(versions: int) -> str:
        return lake_with_history(str(tmp_path_factory.mktemp("lake")), versions).uri

    assert_same_requests(make, 10, 300, is_cloud=is_cloud)


@pytest.mark.soak
@pytest.mark.contract("W5")
@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "far away"])
def test_requests_are_as_many_at_ten_thousand_versions_as_at_ten(tmp_path_factory: Any, is_cloud: bool):
    def make(versions: int) -> str:
        return lake_with_history(str(tmp_path_factory.mktemp("lake")), versions).uri

    assert_same_requests(make, 10, 10_000, is_cloud=is_cloud)


@pytest.mark.contract("W5")
def test_control_the_meter_sees_what_grows_with_history(tmp_path_factory: Any):
    def history(versions: int) -> Counts:
        lake, meter = metered(lake_with_history(str(tmp_path_factory.mktemp("l")), versions).uri, is_cloud=False)
        with meter.measure() as looked:
            lake.history()
        return counts(looked)

    assert history(10) != history(20)


@pytest.mark.contract("W5")
@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "far away"])
def test_a_table_is_opened_once_however_many_statements_there_are(tmp_path_factory: Any, is_cloud: bool):
    def requests(statements: int) -> dict[str, Counts]:
        uri = lake_with_history(str(tmp_path_factory.mktemp("lake")), 5).uri
        return measured(uri, is_cloud=is_cloud, statements=statements)

    one, many = requests(1), requests(20)
    for who in ("newcomer", "regular"):
        assert one[f"{who} works"] == many[f"{who} works"], "a statement that only adds rows asks for nothing"
        assert one[f"{who} commits"] == many[f"{who} commits"]


@pytest.mark.contract("W5")
def test_opens_are_at_most_the_tables_touched(tmp_path: Any):
    uri = lake_with_history(str(tmp_path), 5).uri
    lake, meter = metered(uri, is_cloud=True)
    with meter.measure() as begin:
        tx = lake.begin()
    assert begin.requests() == 1, begin
    with meter.measure() as work:
        for number in range(5):  # each of them changes rows; what pylance asks for is in test_wire_requests
            assert tx["orders"].schema.names == ["id", "n"]
            assert tx["rates"].schema.names == ["name", "rate"]
            tx["orders"].update({"n": f"n + {number + 1}"}, where="id = 1")
            tx["rates"].update({"rate": "rate + 1"}, where="rate > 0")
    assert tx["orders"].to_arrow()["n"].to_pylist() == [16]
    assert tx["rates"].to_arrow()["rate"].to_pylist() == [6]
    manifests = work.requests("get", "manifest") + work.requests("get", "staged")
    assert manifests == 2, work
    assert work.requests("get") == 2, work


@pytest.mark.contract("W5")
def test_what_only_this_process_published_is_not_read_again(tmp_path: Any):
    lake, meter = metered(lake_with_history(str(tmp_path), 5).uri, is_cloud=True)
    with lake.begin() as tx:
        tx["orders"].append([{"id": 5, "n": 5}])
    _settle(lake)
    with meter.measure() as second, lake.begin() as tx:
        tx["orders"].append([{"id": 6, "n": 6}])
        _settle(lake)
    assert second.requests("get", "data") == second.requests("get", "transaction") == 0
    assert second.requests("get", "staged") == 0
