"""Published versions get their final names in the order of versions, under a condition, by the next client."""

from __future__ import annotations

from pathlib import Path

import pytest

import conroi
from conroi.environment import SystemEnvironment
from conroi.testing import call_after, call_before, connect_through, fail
from tests.support.instruments import CloudLike
from tests.support.lakes import Dies, cloud, dies, faulty, lake_with, manifests, path_of, rows, rows_by_path, settle

pytestmark = pytest.mark.contract("P10")

PUT = ("put_if_absent", "_versions/*.manifest")


def dead_after_publishing(uri: str, number: int) -> None:
    """A publisher that dies when its transaction is published and nothing of it is final."""
    writer = faulty(uri, [call_after(dies, *PUT)], only="__manifest")
    tx = writer.begin()
    tx["t"].append([{"n": number}])
    tx["u"].append([{"n": number}])
    with pytest.raises(Dies):
        tx.commit()


def again(uri: str, is_cloud: bool) -> conroi.Lake:
    return cloud(uri) if is_cloud else conroi.connect(uri)


BOTH = pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])


@BOTH
def test_the_next_writer_finishes_it(is_cloud: bool, tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "t", "u")
    path = path_of(lake, "t")
    dead_after_publishing(lake.uri, 1)
    assert rows_by_path(path) == [0]
    order: list[list[int]] = []
    at_put = call_before(lambda _: order.append(rows_by_path(path)), *PUT)
    faulty(lake.uri, [at_put], only="__manifest", is_cloud=is_cloud)["t"].append([{"n": 2}])
    assert order == [[0, 1]], "version 2 was final before version 3 was published"
    assert rows(again(lake.uri, is_cloud)["t"]) == [0, 1, 2]
    assert rows(again(lake.uri, is_cloud)["u"]) == [0, 1], "also what this writer did not touch"


def test_the_next_reader_finishes_it(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "t", "u")
    paths = {name: path_of(lake, name) for name in "tu"}
    dead_after_publishing(lake.uri, 1)
    assert [rows_by_path(path) for path in paths.values()] == [[0], [0]]
    reader = conroi.connect(lake.uri)
    assert rows(reader["t"]) == [0, 1]
    assert rows_by_path(paths["t"]) == [0, 1]
    assert not [name for name in manifests(paths["t"]) if not name.endswith(".manifest")]


def test_far_away_a_reader_leaves_it_to_its_publisher_for_a_moment(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "t", "u")
    path = str(tmp_path / "lake" / "t.lance")
    dead_after_publishing(lake.uri, 1)
    assert rows(cloud(lake.uri)["t"]) == [0, 1]
    assert rows_by_path(path) == [0]
    late = connect_through(lake.uri, CloudLike, environment=Later())
    assert rows(late["t"]) == [0, 1]
    assert rows_by_path(path) == [0, 1]


class Later(SystemEnvironment):
    """An hour later."""

    def now_ns(self) -> int:
        return super().now_ns() + 3_600_000_000_000


@BOTH
def test_who_may_only_read_reads_it_all_the_same(is_cloud: bool, tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "t", "u")
    dead_after_publishing(lake.uri, 1)
    refused = [fail(verb, times=None) for verb in ("put*", "rename*", "delete", "copy*")]
    reader = faulty(lake.uri, refused, is_cloud=is_cloud, environment=Later())
    assert (rows(reader["t"]), rows(reader["u"])) == ([0, 1], [0, 1])


@BOTH
def test_two_clients_that_finalize_at_once_write_one_name(is_cloud: bool, tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "t", "u")
    path = str(tmp_path / "lake" / "t.lance")
    dead_after_publishing(lake.uri, 1)
    verb = "put_if_absent" if is_cloud else "rename_if_absent"
    other = call_before(lambda _: rows(conroi.connect(lake.uri)["t"]), verb, "_versions/*")
    writer = faulty(lake.uri, [other], only="t.lance", is_cloud=is_cloud)
    writer["t"].append([{"n": 2}])
    settle(writer)
    assert rows(conroi.connect(lake.uri)["t"]) == rows_by_path(path) == [0, 1, 2]
    assert len([name for name in manifests(path) if name.endswith(".manifest")]) == 3


@BOTH
def test_a_final_name_that_could_not_be_put_is_put_by_the_next_publication(is_cloud: bool, tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "t")
    path = path_of(lake, "t")
    verb = "put_if_absent" if is_cloud else "rename_if_absent"
    plan = [fail(verb, "_versions/*", times=1)]
    writer = faulty(lake.uri, plan, only="t.lance", is_cloud=is_cloud)
    writer["t"].append([{"n": 1}])
    writer["t"].append([{"n": 2}])
    writer["t"].append([{"n": 3}])
    settle(writer)
    assert rows_by_path(path) == [0, 1, 2, 3]
    assert [rows_by_path(path, version) for version in (2, 3)] == [[0, 1], [0, 1, 2]]


@BOTH
def test_a_table_that_is_deregistered_has_all_its_versions_in_its_folder(is_cloud: bool, tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "t", "u")
    dead_after_publishing(lake.uri, 1)
    lake = again(lake.uri, is_cloud)
    location = lake.deregister("t")
    assert rows_by_path(f"{lake.uri}/{location}") == [0, 1]
    assert rows(lake.register("t2", location)) == [0, 1]


def test_a_reader_that_saw_the_staged_name_finds_the_final_one(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "t", "u")
    dead_after_publishing(lake.uri, 1)
    reader = cloud(lake.uri)
    table = reader["t"]
    assert rows(table) == [0, 1]
    staged = {name for name in manifests(table.uri) if not name.endswith(".manifest")}
    conroi.connect(lake.uri)["t"]  # which puts the final name and takes the staged one away
    assert staged
    assert staged.isdisjoint(manifests(table.uri))
    assert rows(table) == rows(table.at(2)) == rows(reader.table("t", version=2)) == [0, 1]
    assert sorted(commit.version for commit in table.history()) == sorted(table.versions()) == [1, 2]
    assert rows(table.append([{"n": 2}])) == [0, 1, 2]


def test_control_without_finishing_what_came_before_there_is_a_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from conroi.catalog.participant import Participant

    lake = lake_with(tmp_path / "lake", "t", "u")
    path = str(tmp_path / "lake" / "t.lance")
    dead_after_publishing(lake.uri, 1)
    monkeypatch.setattr(Participant, "_finalize_before", nothing)
    monkeypatch.setattr("conroi.catalog.catalog.finalize", nothing)
    conroi.connect(lake.uri)["t"].append([{"n": 2}])
    finals = [name for name in manifests(path) if name.endswith(".manifest")]
    assert len(finals) == 2, "versions 1 and 3"


def nothing(*_: object) -> None:
    """What is done instead."""
