"""Lost answers: a put that landed counts once, one that did not is sent again, an unknown outcome is reported."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import conroi
from conroi import AlreadyExistsError, CommitStateUnknown, LanceTransaction, StoreError, StoreUnavailable
from conroi.commit import conditional_put, pending, table_commit
from conroi.commit.conditional_put import RESENDS
from conroi.format import lance_pb2 as pb
from conroi.format.naming import ManifestNaming
from conroi.snapshots.snapshot import Snapshot, load_transaction
from conroi.storage import open_objects
from conroi.storage.objects import ObjectExists, Objects
from conroi.table import Table
from conroi.testing import Fault, FaultyObjects, Request, Script, call_after, call_before, fail, lose_answer
from conroi.verbs.create import create
from conroi.versions.folder import ConditionalPut, LockedPut, PutNew, RenameIfAbsent
from tests.support.instruments import files_on, table_on
from tests.support.refusals import files_of
from tests.support.transactions import reserve_fragments

pytestmark = pytest.mark.contract("T11")
MANIFESTS = "_versions/*.manifest"

PUTTERS: dict[str, tuple[PutNew, str]] = {
    "conditional": (ConditionalPut(), "put_if_absent"),
    "rename": (RenameIfAbsent(), "rename_if_absent"),
}

VERBS: dict[str, tuple[Callable[[conroi.Table], conroi.Table], list[tuple[int, int]]]] = {
    "append": (lambda t: t.append([{"id": 3, "v": 30}]), [(1, 10), (2, 20), (3, 30)]),
    "delete": (lambda t: t.delete("id = 1"), [(2, 20)]),
    "update": (lambda t: t.update({"v": "v + 1"}), [(1, 11), (2, 21)]),
    "overwrite": (lambda t: t.overwrite([{"id": 7, "v": 70}]), [(7, 70)]),
    "config": (lambda t: t.set_config({"a": "b"}), [(1, 10), (2, 20)]),
    "restore": (lambda t: t.restore(1), [(1, 10), (2, 20)]),
}


@pytest.fixture
def table(tmp_path: Path) -> conroi.Table:
    return conroi.create_table(tmp_path / "t.lance", [{"id": 1, "v": 10}, {"id": 2, "v": 20}])


def rows(table: conroi.Table) -> list[tuple[int, int]]:
    return sorted((row["id"], row["v"]) for row in table.to_arrow().to_pylist())


def faulty_table(
    table: conroi.Table, *faults: Fault, putter: PutNew | None = None
) -> tuple[conroi.Table, FaultyObjects]:
    faulty = FaultyObjects(table._files.objects, faults)
    return table_on(faulty, putter=putter), faulty


# ------------------------------------------------------------------------------ it landed


@pytest.mark.parametrize("putter", PUTTERS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_put_that_landed_without_an_answer_is_a_success(verb: str, putter: str, table: conroi.Table) -> None:
    (put, request), (do, expected) = PUTTERS[putter], VERBS[verb]
    writer, faulty = faulty_table(table, lose_answer(request, MANIFESTS), putter=put)
    done = do(writer)
    assert len(faulty.hits) == 1
    assert (done.version, rows(done)) == (2, expected)
    assert (table.versions(), rows(table.latest())) == ([1, 2], expected)


def test_a_put_under_a_lock_that_landed_without_an_answer_is_a_success(table: conroi.Table) -> None:
    putter = LockedPut(lambda _version: contextlib.nullcontext())
    writer, faulty = faulty_table(table, lose_answer("put", MANIFESTS), putter=putter)
    assert rows(writer.append([{"id": 3, "v": 30}])) == [(1, 10), (2, 20), (3, 30)]
    assert (len(faulty.hits), table.versions()) == (1, [1, 2])


@pytest.mark.parametrize("verb", VERBS)
def test_a_client_that_tried_again_by_itself_and_found_its_own_file_is_recognised(
    verb: str, table: conroi.Table
) -> None:
    """The first try landed, its answer was lost, the client's own second try hears that the name is taken."""
    do, expected = VERBS[verb]
    writer, faulty = faulty_table(table, call_after(_say_taken, "put_if_absent", MANIFESTS))
    done = do(writer)
    assert len(faulty.hits) == 1
    assert (done.version, rows(done), table.versions()) == (2, expected, [1, 2])


def test_an_own_version_is_recognised_also_when_others_went_on_from_it(table: conroi.Table) -> None:
    def go_on(_request: object) -> None:
        table.append([{"id": 9, "v": 90}])
        raise StoreUnavailable("no answer")

    writer, _ = faulty_table(table, call_after(go_on, "put_if_absent", MANIFESTS))
    done = writer.append([{"id": 3, "v": 30}])
    assert (done.version, rows(done)) == (2, [(1, 10), (2, 20), (3, 30)])
    assert rows(table.latest()) == [(1, 10), (2, 20), (3, 30), (9, 90)]


def test_the_same_transaction_committed_twice_is_one_version(table: conroi.Table) -> None:
    first = conroi.commit(table.uri, reserve_fragments(read_version=1))
    table.append([{"id": 3, "v": 30}])
    second = conroi.commit(table.uri, reserve_fragments(read_version=1))
    assert (first.version, second.version) == (2, 2)
    assert table.versions() == [1, 2, 3]


# --------------------------------------------------------------------------- it did not land


@pytest.mark.parametrize("times", [1, RESENDS])
@pytest.mark.parametrize("verb", VERBS)
def test_a_put_that_did_not_land_is_sent_again(verb: str, times: int, table: conroi.Table) -> None:
    do, expected = VERBS[verb]
    writer, faulty = faulty_table(table, fail("put_if_absent", MANIFESTS, times=times))
    done = do(writer)
    assert len(faulty.hits) == times
    assert (done.version, rows(done), table.versions()) == (2, expected, [1, 2])


def test_a_concurrent_writer_may_take_the_name_while_the_answer_is_lost(table: conroi.Table) -> None:
    def lose_and_let_another_in(_request: object) -> None:
        table.append([{"id": 9, "v": 90}])
        raise StoreUnavailable("never arrived")

    writer, faulty = faulty_table(table, call_before(lose_and_let_another_in, "put_if_absent", MANIFESTS))
    done = writer.append([{"id": 3, "v": 30}])
    assert len(faulty.hits) == 1
    assert (done.version, rows(done)) == (3, [(1, 10), (2, 20), (3, 30), (9, 90)])


def test_a_refusal_is_an_answer_and_is_not_tried_again(table: conroi.Table) -> None:
    def refuse(_request: object) -> None:
        raise StoreError("permission denied")

    writer, faulty = faulty_table(table, call_before(refuse, "put_if_absent", MANIFESTS, times=None))
    with pytest.raises(StoreError, match="permission denied") as caught:
        writer.append([{"id": 3, "v": 30}])
    assert type(caught.value) is StoreError
    assert (len(faulty.hits), table.versions()) == (1, [1])


@pytest.mark.parametrize("path", ["_transactions/*", "_deletions/*"])
def test_an_error_before_the_put_leaves_the_table_as_it_was(path: str, table: conroi.Table) -> None:
    writer, faulty = faulty_table(table, fail("put", path, times=None))
    with pytest.raises(StoreUnavailable):
        writer.delete("id = 1")
    assert faulty.hits
    assert (table.versions(), rows(table.latest())) == ([1], [(1, 10), (2, 20)])


# ------------------------------------------------------------------------------ unknown outcomes

UNREADABLE = (fail("head", MANIFESTS, times=None), fail("get", MANIFESTS, times=None))


def open_then_break(table: conroi.Table, *faults: Fault) -> tuple[conroi.Table, FaultyObjects]:
    """A table that was opened in time, on storage that then breaks."""
    writer, faulty = faulty_table(table)
    return writer, _broken_once_put(faulty, *faults)


def _broken_once_put(faulty: FaultyObjects, *faults: Fault) -> FaultyObjects:
    """The faults begin with the first put of a manifest; before it, everything works."""
    healthy = faulty.plan

    class AfterTheFirstPut:
        def __init__(self) -> None:
            self.script: Script | None = None

        def choose(self, request: Request) -> Fault | None:
            if self.script is None and request.verb == "put_if_absent":
                self.script = Script(faults)
            return (self.script or healthy).choose(request)

    faulty.plan = AfterTheFirstPut()
    return faulty


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_outcome_that_did_land_is_said_and_found_later(verb: str, table: conroi.Table) -> None:
    do, expected = VERBS[verb]
    writer, _ = open_then_break(table, lose_answer("put_if_absent", MANIFESTS), *UNREADABLE)
    with pytest.raises(CommitStateUnknown) as caught:
        do(writer)
    error = caught.value
    assert (error.table, error.version) == (table.uri, 2)
    assert "history()" in (error.hint or "")
    found = {commit.transaction_uuid: commit.version for commit in table.latest().history()}
    assert found[error.transaction_uuid] == 2
    assert rows(table.latest()) == expected


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_outcome_that_did_not_land_is_said_and_found_later(verb: str, table: conroi.Table) -> None:
    do, expected = VERBS[verb]
    writer, _ = open_then_break(table, fail("put_if_absent", MANIFESTS, times=None), *UNREADABLE)
    with pytest.raises(CommitStateUnknown) as caught:
        do(writer)
    assert caught.value.transaction_uuid not in {commit.transaction_uuid for commit in table.latest().history()}
    assert rows(table.latest()) == [(1, 10), (2, 20)]
    assert rows(do(table)) == expected, "so it is safe to do the work again"


@pytest.mark.parametrize("has_landed", [True, False])
def test_an_unknown_outcome_deletes_nothing(has_landed: bool, table: conroi.Table) -> None:
    put = lose_answer("put_if_absent", MANIFESTS) if has_landed else fail("put_if_absent", MANIFESTS, times=None)
    writer, faulty = open_then_break(table, put, *UNREADABLE)
    deletions: list[object] = []
    faulty.inner = _watching_deletes(faulty.inner, deletions)
    before = files_of(Path(table.uri))
    with pytest.raises(CommitStateUnknown) as caught:
        writer.delete("id = 1")
    after = files_of(Path(table.uri))
    assert not deletions
    assert before <= after
    assert any(name.startswith("_deletions/") for name in after - before)
    assert f"_transactions/1-{caught.value.transaction_uuid}.txn" in after


def _watching_deletes(objects: Objects, seen: list[object]) -> Objects:
    return FaultyObjects(objects, [call_before(seen.append, "delete", times=None)])


def test_a_name_that_stays_free_after_every_resend_is_an_unknown_outcome_too(table: conroi.Table) -> None:
    """The last request may still be on its way, so it may yet land."""
    writer, faulty = faulty_table(table, fail("put_if_absent", MANIFESTS, times=None))
    with pytest.raises(CommitStateUnknown):
        writer.append([{"id": 3, "v": 30}])
    assert len(faulty.hits) == RESENDS + 1


# ----------------------------------------------------------------------------------- creating


def create_on(objects: Objects) -> conroi.Table:
    """What create_table does, on storage of our choice."""
    files = files_on(objects)
    change = create(
        files, pa.table({"id": [1], "v": [10]}), key=None, stable_row_ids=False, config=None, data_format="2.2",
        naming=ManifestNaming.V2, properties={}, progress=None,
    )  # fmt: skip
    return Table(files, table_commit.commit(files, change).snapshot)


@pytest.fixture
def place(tmp_path: Path) -> Objects:
    return open_objects(tmp_path / "new.lance")


@pytest.mark.parametrize(
    "fault", [lose_answer("put_if_absent"), fail("put_if_absent"), call_after(lambda r: _say_taken(r), "put_if_absent")]
)
def test_a_table_is_created_once_whatever_happens_to_the_answer(fault: Fault, place: Objects) -> None:
    faulty = FaultyObjects(place, [fault])
    made = create_on(faulty)
    assert (made.version, rows(made), len(faulty.hits)) == (1, [(1, 10)], 1)
    assert conroi.open_table(place.root).versions() == [1]


def test_a_table_that_a_concurrent_writer_created_is_theirs(place: Objects) -> None:
    def another(_request: object) -> None:
        conroi.create_table(place.root, [{"id": 5, "v": 50}])

    with pytest.raises(AlreadyExistsError) as caught:
        create_on(FaultyObjects(place, [call_before(another, "put_if_absent")]))
    assert caught.value.table == place.root
    assert rows(conroi.open_table(place.root)) == [(5, 50)]


@pytest.mark.parametrize("has_landed", [True, False])
def test_an_unknown_outcome_of_a_creation_is_said_and_found_later(has_landed: bool, place: Objects) -> None:
    put = lose_answer("put_if_absent", MANIFESTS) if has_landed else fail("put_if_absent", MANIFESTS, times=None)
    with pytest.raises(CommitStateUnknown) as caught:
        create_on(FaultyObjects(place, [put, *UNREADABLE]))
    assert (caught.value.version, caught.value.table) == (1, place.root)
    if has_landed:
        (commit,) = conroi.open_table(place.root).history()
        assert commit.transaction_uuid == caught.value.transaction_uuid
    else:
        assert rows(conroi.create_table(place.root, [{"id": 5, "v": 50}])) == [(5, 50)]


def test_control_a_writer_that_does_not_know_its_own_version_doubles_the_rows(
    table: conroi.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same lost answer, with the look for one's own transaction made blind."""

    def with_another_id(objects: Objects, snapshot: Snapshot) -> LanceTransaction:
        transaction = load_transaction(objects, snapshot)
        assert transaction is not None
        wire = pb.Transaction()
        wire.CopyFrom(transaction.wire)
        wire.uuid = "another writer"
        return LanceTransaction(wire)

    monkeypatch.setattr(pending, "load_transaction", with_another_id)
    monkeypatch.setattr(conditional_put, "load_transaction", with_another_id)
    writer, _ = faulty_table(table, lose_answer("put_if_absent", MANIFESTS))
    assert rows(writer.append([{"id": 3, "v": 30}])) == [(1, 10), (2, 20), (3, 30), (3, 30)]


def _say_taken(request: object) -> None:
    raise ObjectExists(str(request))
