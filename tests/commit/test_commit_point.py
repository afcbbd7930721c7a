"""What fails after the point of commit is finished or unknown; HTTP 409 says that a name is busy, not that it is taken.

(F4, F5.) S3 answers 409 ConditionalRequestConflict while another conditional request for the same name is in progress.
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import conroi
from conroi import CommitStateUnknown, CorruptionError, StoreUnavailable
from conroi.storage import cloud, open_objects
from conroi.storage.objects import ObjectExists, Objects
from conroi.testing import FaultyObjects, Script, call_after, call_before, connect_through
from tests.support.external_crashes import FINAL
from tests.support.external_tables import faulty_table
from tests.support.external_tables import rows as rows_of
from tests.support.instruments import CloudLike, table_on
from tests.support.lakes import lake_with, path_of, rows, rows_by_path, settle

PUT = ("put_if_absent", "_versions/*.manifest")


def say_taken(request: object) -> None:
    raise ObjectExists(str(request))


# ------------------------------------------------------------------------------ 409 on the wire

ANSWERS = {
    409: b"<Error><Code>ConditionalRequestConflict</Code></Error>",
    412: b"<Error><Code>PreconditionFailed</Code></Error>",
}


class Server(http.server.ThreadingHTTPServer):
    """Answers puts as the test says, in this order; then with 200."""

    statuses: list[int]
    asked: int = 0


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        self.rfile.read(int(self.headers["content-length"]))
        server.asked += 1
        status = server.statuses.pop(0) if server.statuses else 200
        body = ANSWERS.get(status, b"")
        self.send_response(status)
        self.send_header("etag", '"1"')
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), _Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def objects_on(server: Server) -> Objects:
    options = {
        "aws_access_key_id": "key", "aws_secret_access_key": "secret", "aws_region": "us-east-1", "allow_http": "true",
        "aws_endpoint": f"http://127.0.0.1:{server.server_address[1]}",
    }  # fmt: skip
    return open_objects("s3://bucket/t", options)


@pytest.mark.contract("T18")
def test_a_name_that_is_busy_is_tried_again(server: Server) -> None:
    server.statuses = [409, 409]
    objects_on(server).put_if_absent("_versions/1.manifest", b"abc")
    assert server.asked == 3


@pytest.mark.contract("T18")
def test_a_name_that_stays_busy_is_no_name_that_is_taken(server: Server) -> None:
    server.statuses = [409] * 100
    with pytest.raises(StoreUnavailable, match="409 ConditionalRequestConflict"):
        objects_on(server).put_if_absent("_versions/1.manifest", b"abc")
    assert server.asked == cloud.CONFLICT_ATTEMPTS


@pytest.mark.contract("T18")
def test_a_name_that_is_taken_is_taken_at_once(server: Server) -> None:
    server.statuses = [412]
    with pytest.raises(ObjectExists):
        objects_on(server).put_if_absent("_versions/1.manifest", b"abc")
    assert server.asked == 1


@pytest.mark.contract("T18")
@pytest.mark.parametrize("status", [409, 412])
def test_a_request_without_a_condition_never_finds_its_name_taken(status: int, server: Server) -> None:
    server.statuses = [status] * 100
    with pytest.raises(StoreUnavailable, match=str(status)):
        objects_on(server).put("data/1.lance", b"abc")


# ------------------------------------------------------------------------------ taken, and nothing is there


@pytest.mark.contract("T18", "T19")
def test_a_recorded_version_is_completed_though_its_name_was_busy(store: str, tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    conroi.create_table(uri, [{"row": 1}], store=store)
    table, objects, _ = faulty_table(uri, store, [call_before(say_taken, "put_if_absent", FINAL)])
    assert table.append([{"row": 2}]).version == 2
    assert len(objects.hits) == 1
    assert rows_of(conroi.open_table(uri, store=store)) == [1, 2]


@pytest.mark.contract("T19")
def test_a_recorded_version_that_cannot_be_completed_is_unknown(tmp_path: Path) -> None:
    uri, store = tmp_path / "t.lance", f"sqlite:///{tmp_path}/records.db"
    conroi.create_table(uri, [{"row": 1}], store=store)
    table, _, _ = faulty_table(uri, store, [call_before(say_taken, "put_if_absent", FINAL, times=None)])
    with pytest.raises(CommitStateUnknown):
        table.append([{"row": 2}])
    assert rows_of(conroi.open_table(uri, store=store)) == [1, 2], "the record is the point of commit"


@pytest.mark.contract("T18")
@pytest.mark.parametrize("times", [1, 2])
def test_a_busy_final_name_in_a_lake_is_no_fork(times: int, tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "t")
    path = path_of(lake, "t")
    plan = Script([call_before(say_taken, *PUT, times=times)])

    def wrap(objects: Objects) -> Objects:
        far = CloudLike(objects)
        return FaultyObjects(far, plan) if objects.root.endswith("t.lance") else far

    writer = connect_through(lake.uri, wrap)
    for number in (1, 2, 3):
        writer["t"].append([{"n": number}])
    settle(writer)
    assert rows(conroi.connect(lake.uri)["t"]) == rows_by_path(path) == [0, 1, 2, 3]


@pytest.mark.contract("T18")
def test_a_new_table_whose_name_was_busy_is_made(tmp_path: Path) -> None:
    from conroi.verbs.create import create
    from tests.support.instruments import files_on

    files = files_on(FaultyObjects(open_objects(tmp_path / "t"), [call_before(say_taken, *PUT)]))
    from conroi.commit.table_commit import commit
    from conroi.format.naming import ManifestNaming

    change = create(
        files, [{"row": 1}], key=None, stable_row_ids=False, config={}, data_format="2.0", naming=ManifestNaming.V2,
        properties={}, progress=None,
    )  # fmt: skip
    assert commit(files, change).snapshot.version == 1


# ------------------------------------------------------------------------------ after the point of commit


@pytest.mark.contract("T19")
def test_a_note_of_a_collector_that_cannot_be_read_is_no_refusal(tmp_path: Path) -> None:
    """The version is written; whether its place was collected before cannot be told."""
    table = conroi.create_table(tmp_path / "t", [{"row": 1}])
    note = tmp_path / "t" / "_conroi" / "forgotten" / f"{7:020d}.00000000-0000-0000-0000-000000000000"

    def damage(_request: object) -> None:
        note.parent.mkdir(parents=True)
        note.write_text("no json")

    objects = FaultyObjects(open_objects(table.uri), [])
    writer = table_on(objects)
    objects.plan = Script([call_after(damage, *PUT)])
    with pytest.raises(CommitStateUnknown):
        writer.append([{"row": 2}])
    note.unlink()
    assert rows_of(conroi.open_table(table.uri)) == [1, 2]


@pytest.mark.contract("T19")
@pytest.mark.parametrize("error", [StoreUnavailable, CorruptionError, conroi.InvalidInputError, conroi.NotFoundError])
@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])
def test_a_publication_whose_final_names_cannot_be_put_is_a_success(
    is_cloud: bool, error: type[conroi.ConroiError], tmp_path: Path
) -> None:
    lake = lake_with(tmp_path / "lake", "t", "u")

    def refuse(_request: object) -> None:
        raise error("injected")

    verb = "put_if_absent" if is_cloud else "rename_if_absent"
    plan = Script([call_before(refuse, verb, PUT[1], times=None)])

    def wrap(objects: Objects) -> Objects:
        inner = CloudLike(objects) if is_cloud else objects
        return inner if objects.root.endswith("__manifest") else FaultyObjects(inner, plan)

    with connect_through(lake.uri, wrap).begin() as tx:
        tx["t"].append([{"n": 1}])
        tx["u"].append([{"n": 1}])
    assert (rows(conroi.connect(lake.uri)["t"]), rows(conroi.connect(lake.uri)["u"])) == ([0, 1], [0, 1])
