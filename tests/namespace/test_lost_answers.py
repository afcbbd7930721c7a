"""Requests to the namespace whose answer was lost, and creations that came too late (findings J4 and J5)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import lance_namespace as ln
import pytest
from lancedb.namespace import LanceNamespaceDBConnection

import conroi
from conroi.namespace import ConroiNamespace
from conroi.versions.retention import other_ages
from tests.namespace.clients import append, elsewhere, ids, new_lake, rows, staged
from tests.namespace.test_batches import batch, commit, version

# ---------------------------------------------------------------------------------- repeated requests


def one(asked: dict[str, Any]) -> Callable[[ConroiNamespace], list[int]]:
    request = ln.CreateTableVersionRequest(**asked)
    return lambda namespace: [made_version(namespace.create_table_version(request))]


def made_version(answer: ln.CreateTableVersionResponse | None) -> int:
    assert answer is not None
    assert answer.version is not None
    return answer.version.version


def many(*asked: dict[str, Any]) -> Callable[[ConroiNamespace], list[int]]:
    request = batch(*asked)
    return lambda namespace: [each.version for each in namespace.batch_create_table_versions(request).versions]


def mixed(*asked: dict[str, Any]) -> Callable[[ConroiNamespace], list[int]]:
    request = commit(*(version(each) for each in asked))

    def send(namespace: ConroiNamespace) -> list[int]:
        results = namespace.batch_commit_tables(request).results
        return [made_version(each.create_table_version) for each in results]

    return send


@pytest.mark.contract("N3")
@pytest.mark.parametrize("kind", [one, many, mixed])
@pytest.mark.parametrize("rivals", [0, 1, 3])
def test_a_repeated_request_is_told_what_the_first_one_did(
    tmp_path: Path, kind: Callable[..., Callable[[ConroiNamespace], list[int]]], rivals: int
) -> None:
    lake = new_lake(tmp_path, "a", "b")
    tables = ["a"] if kind is one else ["a", "b"]
    send = kind(*(staged(lake, table) for table in tables))
    first = send(ConroiNamespace(lake))
    for number in range(rivals):
        lake["a"].append(rows(100 + number))
    before = lake.version
    assert send(ConroiNamespace(lake)) == first == [2] * len(tables)
    assert lake.version == before
    assert ids(lake, "a") == [1, 7, *range(100, 100 + rivals)]


@pytest.mark.contract("N3")
def test_a_repeated_batch_that_declares_and_deregisters_is_answered(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "a", "old")
    asked = staged(lake, "a")
    request = commit({"declare_table": {"id": ["new"]}}, version(asked), {"deregister_table": {"id": ["old"]}})
    first = ConroiNamespace(lake).batch_commit_tables(request).results
    lake["a"].append(rows(2))
    again = ConroiNamespace(lake).batch_commit_tables(request).results
    assert [each.to_dict() for each in again] == [each.to_dict() for each in first]
    assert (ids(lake, "a"), lake.tables()) == ([1, 2, 7], ["a", "new"])


@pytest.mark.contract("N3")
def test_a_request_that_lost_to_another_is_a_conflict_also_when_its_manifest_is_gone(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "a")
    asked = staged(lake, "a")
    lake["a"].append(rows(2))
    Path("/" + asked["manifest_path"]).unlink()
    for send in (one(asked), many(asked), mixed(asked)):
        with pytest.raises(ln.ConcurrentModificationError):
            send(ConroiNamespace(lake))
    assert ids(lake, "a") == [1, 2]


@pytest.mark.contract("N3")
def test_a_repeat_after_the_history_expired_is_unknown(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "a")
    send = one(staged(lake, "a"))
    send(ConroiNamespace(lake))
    for number in range(3):
        lake["a"].append(rows(100 + number))
    with other_ages(version_s=0.0, file_s=0.0):
        lake.expire("0s", keep=1, dry_run=False)
    fresh = ConroiNamespace(conroi.connect(lake.uri))
    with pytest.raises(ln.LanceNamespaceError, match="cannot be told") as refused:
        send(fresh)
    assert not isinstance(refused.value, ln.InvalidInputError | ln.ConcurrentModificationError)


@pytest.mark.contract("N3")
def test_a_repeat_after_the_table_was_dropped_and_made_again_is_answered(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "a")
    send = one(staged(lake, "a"))
    send(ConroiNamespace(lake))
    lake.drop_table("a")
    lake.create_table("a", rows(50))
    assert send(ConroiNamespace(lake)) == [2]
    assert ids(lake, "a") == [50]


# ---------------------------------------------------------------------------------- creations that come too late


class Slow(ConroiNamespace):
    """A namespace where a rival appends just before the n-th listing of versions by the client."""

    def __init__(self, lake: conroi.Lake, before: int, rival: Callable[[], object]) -> None:
        super().__init__(lake)
        self._before = before
        self._rival = rival
        self.listed = 0

    def list_table_versions(self, request: ln.ListTableVersionsRequest) -> ln.ListTableVersionsResponse:
        self.listed += 1
        if self.listed == self._before:
            elsewhere(self._rival)
        return super().list_table_versions(request)


def by_pylance(namespace: ConroiNamespace) -> None:
    lance.write_dataset(rows(2), namespace_client=namespace, table_id=["t"], mode="create")


def by_lancedb(namespace: ConroiNamespace) -> None:
    LanceNamespaceDBConnection(namespace).create_table("t", rows(2))


@pytest.mark.contract("N2")
@pytest.mark.parametrize("create", [by_pylance, by_lancedb])
@pytest.mark.parametrize("before", [1, 2, 3, 4])
def test_a_creation_never_replaces_rows_that_another_client_committed(
    tmp_path: Path, create: Callable[[ConroiNamespace], None], before: int
) -> None:
    lake = conroi.connect(tmp_path / "lake")
    acknowledged: list[int] = []

    def rival() -> None:
        append(ConroiNamespace(lake), rows(1), "t")
        acknowledged.append(1)

    namespace = Slow(lake, before, rival)
    try:
        create(namespace)
        acknowledged.append(2)
    except (OSError, RuntimeError, ValueError):
        pass
    assert acknowledged
    assert ids(lake, "t") == sorted(acknowledged)


@pytest.mark.contract("N2")
def test_an_overwrite_of_a_table_that_is_there_is_still_taken(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, "t")
    LanceNamespaceDBConnection(ConroiNamespace(lake)).create_table("t", rows(5), mode="overwrite")
    assert ids(lake, "t") == [5]
    lance.write_dataset(rows(6), namespace_client=ConroiNamespace(lake), table_id=["t"], mode="overwrite")
    assert ids(lake, "t") == [6]
