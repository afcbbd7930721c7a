"""Lost answers of a publication: a put that landed counts once, an unknown outcome is reported, nothing is deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import conroi
from conroi.storage.objects import Objects
from conroi.testing import (
    Fault,
    FaultyObjects,
    Request,
    Script,
    call_after,
    call_before,
    connect_through,
    fail,
    lose_answer,
)
from tests.support.databases import sql_address
from tests.support.instruments import CloudLike
from tests.support.lakes import faulty, lake_with, rows, rows_by_path, settle

pytestmark = pytest.mark.contract("T11", "P1")

PUT = ("put_if_absent", "_versions/*.manifest")
BOTH = pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])


def transact(lake: conroi.Lake, number: int, idempotency_key: str | None = None) -> conroi.TransactionResult:
    with lake.begin(idempotency_key=idempotency_key) as tx:
        tx["a"].append([{"n": number}])
        tx["b"].update({"n": str(number)})
    return tx.result


def all_rows(uri: str, store: str | None = None) -> tuple[list[int], list[int]]:
    lake = conroi.connect(uri, store=store)
    return rows(lake["a"]), rows(lake["b"])


def all_files(uri: str) -> set[str]:
    return {str(path) for path in Path(uri).rglob("*") if path.is_file()}


@BOTH
@pytest.mark.parametrize(
    "fault", [lose_answer(*PUT), fail(*PUT), fail(*PUT, times=3)], ids=["lost", "failed", "thrice"]
)
def test_a_put_that_landed_or_can_be_sent_again_is_published_once(fault: Fault, is_cloud: bool, tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "a", "b")
    before = lake.version
    result = transact(faulty(lake.uri, [fault], only="__manifest", is_cloud=is_cloud), 1)
    assert (result.version, result.attempts, result.tables) == (before + 1, 1, {"a": 2, "b": 2})
    assert (lake.version, all_rows(lake.uri)) == (before + 1, ([0, 1], [1]))


def silent_after(uri: str, verb: str, *, is_landing: bool, is_cloud: bool) -> tuple[conroi.Lake, list[Request]]:
    """A client to which `__manifest` does not answer any more from its put on, and all that it asked to be deleted."""
    deleted: list[Request] = []
    is_silent = [False]

    def go_silent(_request: Request) -> None:
        is_silent[0] = True
        raise conroi.StoreUnavailable("no answer (injected)")

    def no_answer(_request: Request) -> None:
        if is_silent[0]:
            raise conroi.StoreUnavailable("no answer (injected)")

    at_put = (call_after if is_landing else call_before)(go_silent, verb, PUT[1])
    afterwards = Fault(before=no_answer, times=None)

    def wrap(objects: Objects) -> Objects:
        near = CloudLike(objects) if is_cloud else objects
        watched = FaultyObjects(near, Script([Fault(before=deleted.append, verb="delete", times=None)]))
        return FaultyObjects(watched, Script([at_put, afterwards])) if near.root.endswith("__manifest") else watched

    return connect_through(uri, wrap), deleted


@BOTH
@pytest.mark.parametrize("is_landing", [True, False], ids=["landed", "not landed"])
def test_an_unknown_outcome_is_reported_and_deletes_nothing(is_landing: bool, is_cloud: bool, tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "a", "b")
    before = lake.version
    client, deleted = silent_after(lake.uri, "put_if_absent", is_landing=is_landing, is_cloud=is_cloud)
    files = all_files(lake.uri)
    with pytest.raises(conroi.CommitStateUnknown) as unknown:
        transact(client, 1, "once")
    assert not deleted
    assert files < all_files(lake.uri)
    assert lake.version == before + is_landing
    assert all_rows(lake.uri) == (([0, 1], [1]) if is_landing else ([0], [0]))
    uuid = unknown.value.transaction_uuid
    assert uuid is not None
    assert any(uuid in file for file in all_files(lake.uri)), "which names the transaction's file"
    again = transact(conroi.connect(lake.uri), 1, "once")
    assert (again.was_done_before, again.version) == (is_landing, before + 1)
    assert all_rows(lake.uri) == ([0, 1], [1]), "done once, whatever became of the first time"
    transact(lake, 2)
    assert all_rows(lake.uri) == ([0, 1, 2], [2])
    assert rows_by_path(lake["a"].uri) == [0, 1, 2]


@pytest.mark.parametrize("how", [fail, lose_answer])
@pytest.mark.parametrize(
    ("where", "path", "is_cloud"),
    [
        ("a.lance", "_versions/*.manifest-*", False),
        ("a.lance", "_versions/*.manifest-*", True),
        ("a.lance", "_transactions/*", False),
        ("a.lance", "_transactions/*", True),
        ("__manifest", "_transactions/*", False),
        ("__manifest", "_transactions/*", True),
        ("__manifest", "data/*", True),  # on local disk pylance writes it
    ],
)
def test_staging_that_fails_publishes_nothing(
    how: Callable[[str, str], Fault], where: str, path: str, is_cloud: bool, tmp_path: Path
) -> None:
    staging_fails(lake_with(tmp_path / "lake", "a", "b"), how("put", path), where, is_cloud=is_cloud)


def staging_fails(lake: conroi.Lake, fault: Fault, where: str, *, is_cloud: bool, store: str | None = None) -> None:
    before = lake.version
    client = faulty(lake.uri, [fault], only=where, is_cloud=is_cloud, store=store)
    with pytest.raises(conroi.StoreUnavailable):
        transact(client, 1)
    assert (lake.version, all_rows(lake.uri, store)) == (before, ([0], [0]))
    transact(client, 2)
    assert (lake.version, all_rows(lake.uri, store)) == (before + 1, ([0, 2], [2]))


@BOTH
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("how", [fail, lose_answer])
@pytest.mark.parametrize("path", ["_versions/*.manifest-*", "_transactions/*"])
def test_staging_that_fails_publishes_nothing_to_a_database(
    how: Callable[[str, str], Fault],
    path: str,
    kind: str,
    is_cloud: bool,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    store = sql_address(kind, request)
    lake = lake_with(tmp_path / "lake", "a", "b", store=store)
    staging_fails(lake, how("put", path), "a.lance", is_cloud=is_cloud, store=store)


@BOTH
@pytest.mark.parametrize("kind", ["folder", "sqlite", "postgresql"])
def test_a_final_name_whose_answer_was_lost_is_final(
    kind: str, is_cloud: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = None if kind == "folder" else sql_address(kind, request)
    lake = lake_with(tmp_path / "lake", "a", "b", store=store)
    verb = "put_if_absent" if is_cloud else "rename_if_absent"
    client = faulty(lake.uri, [lose_answer(verb, PUT[1])], only="a.lance", is_cloud=is_cloud, store=store)
    transact(client, 1)
    transact(client, 2)
    settle(client)
    assert all_rows(lake.uri, store) == ([0, 1, 2], [2])
    assert rows_by_path(lake["a"].uri) == [0, 1, 2]


def test_control_a_publisher_that_takes_silence_for_a_failure_does_it_twice(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "a", "b")
    client, _ = silent_after(lake.uri, "put_if_absent", is_landing=True, is_cloud=False)
    with pytest.raises(conroi.CommitStateUnknown):
        transact(client, 1)
    transact(conroi.connect(lake.uri), 1)
    assert all_rows(lake.uri) == ([0, 1, 1], [1])
