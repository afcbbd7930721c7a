"""A lost answer, and the version is collected before its writer looks: the outcome is unknown, nothing is done twice.

(F12.) The writer stands still for longer than the shortest age of a version; here other writers do their work, and
files are made older, in the hook that then loses the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import conroi
from conroi import CommitStateUnknown, StoreError, StoreUnavailable
from conroi.commit.conditional_put import Putting
from conroi.format.naming import ManifestNaming
from conroi.storage import open_objects
from conroi.storage.local_folders import settable_times
from conroi.storage.objects import Objects
from conroi.testing import Fault, FaultyObjects, Script, call_after, call_before, connect_through
from tests.support.aging import make_older
from tests.support.external_tables import faulty_table
from tests.support.external_tables import rows as numbers
from tests.support.instruments import CloudLike, table_on

pytestmark = pytest.mark.contract("T17")

PUT = ("put_if_absent", "_versions/*")
BOTH = pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])


@pytest.fixture(autouse=True)
def settable() -> Iterator[None]:
    """make_older() works: local files are as old as their modification time."""
    with settable_times():
        yield


def near(objects: Objects, is_cloud: bool) -> Objects:
    return CloudLike(objects) if is_cloud else objects


def go_on_and_collect(uri: Path, version: int, store: str | None = None) -> None:
    """Other writers commit, and a collector takes the version away."""
    for number in (10, 11):
        conroi.open_table(uri, store=store).append([{"row": number}])
    make_older(uri, hours=1)
    assert version in conroi.open_table(uri, store=store).expire(timedelta(seconds=60), keep=1, dry_run=False).removed


def rows(uri: Path, store: str | None = None) -> list[int]:
    return numbers(conroi.open_table(uri, store=store))


@pytest.fixture
def uri(tmp_path: Path) -> Path:
    conroi.create_table(tmp_path / "t.lance", [{"row": 0}])
    return tmp_path / "t.lance"


def faulty(uri: Path, is_cloud: bool, *faults: Fault) -> conroi.Table:
    objects = FaultyObjects(near(open_objects(uri), is_cloud), [])
    table = table_on(objects)
    objects.plan = Script(faults)
    return table


@BOTH
def test_a_commit_that_landed_without_an_answer_and_was_collected_is_unknown(is_cloud: bool, uri: Path) -> None:
    def stand_still(_request: object) -> None:
        go_on_and_collect(uri, 2)
        raise StoreUnavailable("no answer")

    with pytest.raises(CommitStateUnknown) as caught:
        faulty(uri, is_cloud, call_after(stand_still, *PUT)).append([{"row": 1}])
    assert (caught.value.version, rows(uri)) == (2, [0, 1, 10, 11]), "it had landed, and was not done again"
    assert 2 not in conroi.open_table(uri).versions(), "the collected version does not come back"


def test_control_without_the_memory_of_the_unanswered_send_the_row_is_doubled(
    uri: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stand_still(_request: object) -> None:
        go_on_and_collect(uri, 2)
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(Putting, "_is_unanswered", property(lambda _: False, lambda _, __: None), raising=False)
    faulty(uri, False, call_after(stand_still, *PUT)).append([{"row": 1}])
    assert rows(uri) == [0, 1, 1, 10, 11]


@BOTH
def test_a_version_that_is_collected_between_two_looks_is_unknown(is_cloud: bool, uri: Path) -> None:
    """The name is taken; when the file is to be read, it is gone."""

    def no_answer(_request: object) -> None:
        raise StoreUnavailable("no answer")

    lost = call_after(no_answer, *PUT)
    collected = call_before(lambda _: go_on_and_collect(uri, 2), "get*", "_versions/*")
    with pytest.raises(CommitStateUnknown):
        faulty(uri, is_cloud, lost, collected).append([{"row": 1}])
    assert rows(uri) == [0, 1, 10, 11]


def test_a_refusal_after_a_send_without_an_answer_is_no_answer(uri: Path) -> None:
    """The first request is still on its way when the second one is refused; then it lands."""
    late: list[bytes] = []

    def on_its_way(_request: object) -> None:
        raise StoreUnavailable("no answer")

    def refuse(_request: object) -> None:
        raise StoreError("permission denied")

    class Keeping(FaultyObjects):
        def put_if_absent(self, path: str, data: bytes) -> None:
            late.append(data)
            super().put_if_absent(path, data)

    keeping = Keeping(open_objects(uri), [])
    table = table_on(keeping)
    keeping.plan = Script([call_before(on_its_way, *PUT), call_before(refuse, *PUT, times=None)])
    with pytest.raises(CommitStateUnknown) as caught:
        table.append([{"row": 1}])
    open_objects(uri).put_if_absent(ManifestNaming.V2.path(2), late[0])
    assert rows(uri) == [0, 1]
    assert caught.value.transaction_uuid in {commit.transaction_uuid for commit in conroi.open_table(uri).history()}


@BOTH
def test_in_a_lake_it_is_unknown_too(is_cloud: bool, tmp_path: Path) -> None:
    uri = str(tmp_path / "lake")
    conroi.connect(uri).create_table("t", [{"row": 0}])
    collected = conroi.connect(uri).version + 1

    def stand_still(_request: object) -> None:
        other = conroi.connect(uri)
        for number in (10, 11):
            other["t"].append([{"row": number}])
        make_older(uri, hours=1)
        assert collected in other.expire(timedelta(seconds=60), keep=1, dry_run=False).removed
        raise StoreUnavailable("no answer")

    plan = Script([call_after(stand_still, *PUT)])

    def wrap(objects: Objects) -> Objects:
        inner = near(objects, is_cloud)
        return FaultyObjects(inner, plan) if objects.root.endswith("__manifest") else inner

    lake = connect_through(uri, wrap)
    with pytest.raises(CommitStateUnknown):
        lake.run(lambda tx: tx["t"].append([{"row": 1}]))
    assert numbers(conroi.connect(uri)["t"]) == [0, 1, 10, 11]
    assert lake["t"].append([{"row": 2}]).count_rows() == 5, "the same lake goes on"


def test_under_a_store_it_is_unknown_too(tmp_path: Path) -> None:
    uri, store = tmp_path / "t.lance", f"sqlite:///{tmp_path}/records.db"
    conroi.create_table(uri, [{"row": 0}], store=store)

    def stand_still(_request: object) -> None:
        go_on_and_collect(uri, 2, store)
        raise StoreUnavailable("no answer")

    table, _, _ = faulty_table(uri, store, at_store=[call_after(stand_still, "put_if_absent")])
    with pytest.raises(CommitStateUnknown):
        table.append([{"row": 1}])
    assert rows(uri, store) == [0, 1, 10, 11]


def test_a_record_that_may_have_landed_keeps_its_staged_manifest(tmp_path: Path) -> None:
    """The store loses the answer, and refuses the resend: the record names the staged file, which must stay."""
    uri, store = tmp_path / "t.lance", f"sqlite:///{tmp_path}/records.db"
    conroi.create_table(uri, [{"row": 0}], store=store)

    def no_answer(_request: object) -> None:
        raise StoreUnavailable("no answer")

    def refuse(_request: object) -> None:
        raise StoreError("permission denied")

    table, _, _ = faulty_table(
        uri, store, at_store=[call_after(no_answer, "put_if_absent"), call_before(refuse, "put_if_absent", times=None)]
    )
    with pytest.raises(CommitStateUnknown):
        table.append([{"row": 1}])
    assert rows(uri, store) == [0, 1]
