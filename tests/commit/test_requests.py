"""What a verb asks of the storage: a fixed number of requests, whatever the table has been through.

Counted are the requests of conroi itself. The files of rows are read and written by pylance, past the counter.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import conroi
from conroi.environment import SYSTEM, moment
from conroi.format.naming import ManifestNaming
from conroi.storage import open_objects
from conroi.testing import CountingObjects
from conroi.versions.folder import FolderVersions, ManifestRef
from tests.support.instruments import CloudLike, table_on

pytestmark = pytest.mark.contract("W5")

Counts = dict[tuple[str, str], int]
HISTORIES = (10, 300)


def commit_on(store: str) -> Counts:
    """One look for a newer version, the transaction, the manifest; on a disk the hint, which is cheap.

    There is no second look before the put: a newer version has the name that the put must find free.
    """
    counts = {("head", "manifest"): 1, ("put", "transaction"): 1, ("put_if_absent", "manifest"): 1}
    return {**counts, ("put_best_effort", "hint"): 1} if store == "local" else counts


OPENING: dict[str, Counts] = {
    "local": {("get", "hint"): 1, ("head", "manifest"): 2, ("get", "manifest"): 1},
    "cloud": {("list", "versions"): 1, ("get", "manifest"): 1},
}

COMMITTING: dict[str, Callable[[conroi.Table], conroi.Table]] = {
    "append": lambda t: t.append([{"id": 7, "v": 7}]),
    "delete": lambda t: t.delete("id = 2"),
    "update": lambda t: t.update({"v": "v + 1"}, where="id = 1"),
    "overwrite": lambda t: t.overwrite([{"id": 1, "v": 1}]),
    "set_config": lambda t: t.set_config({"a": "b"}),
    "add_columns": lambda t: t.add_columns({"w": "v"}),
}


@pytest.fixture(scope="module", params=HISTORIES)
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of one fragment with a short or a long past."""
    table = conroi.create_table(tmp_path_factory.mktemp("requests") / "t.lance", [{"id": 1, "v": 1}])
    for _ in range(request.param - 1):
        table = table.reserve_fragments(1)
    return table.uri


@pytest.fixture
def history(original: str, tmp_path: Path) -> str:
    """A copy of it that a test may change."""
    return str(shutil.copytree(original, tmp_path / "t.lance"))


def counted(uri: str, store: str) -> CountingObjects:
    objects = open_objects(uri)
    return CountingObjects(CloudLike(objects) if store == "cloud" else objects)


@pytest.mark.parametrize("store", ["local", "cloud"])
def test_opening_the_newest_version(store: str, history: str) -> None:
    counting = counted(history, store)
    with counting.measure() as measured:
        table_on(counting)
    assert measured.by_verb_and_kind() == OPENING[store]


@pytest.mark.parametrize("verb", COMMITTING)
@pytest.mark.parametrize("store", ["local", "cloud"])
def test_a_commit_on_a_handle_that_is_open(store: str, verb: str, history: str) -> None:
    counting = counted(history, store)
    table = table_on(counting).append([{"id": 2, "v": 2}, {"id": 3, "v": 3}])
    with counting.measure() as measured:
        COMMITTING[verb](table)
    vector = {("put", "deletion"): 1} if verb == "delete" else {}
    assert measured.by_verb_and_kind() == {**commit_on(store), **vector}
    assert measured.bytes_read == 0


def test_without_retries_there_is_a_second_look_on_local_disk(history: str) -> None:
    """A lost race would be an error where a rebase is possible, and to look costs nothing."""
    counting = counted(history, "local")
    table = table_on(counting)
    with counting.measure() as measured:
        table.append([{"id": 7, "v": 7}], retries=0)
    assert measured.requests("head", "manifest") == 2


@pytest.mark.parametrize("store", ["local", "cloud"])
def test_reading_an_open_table_asks_for_nothing_but_its_data(store: str, history: str) -> None:
    counting = counted(history, store)
    table = table_on(counting)
    with counting.measure() as measured:
        table.to_arrow()
        table.count_rows()
        assert len(table.schema) == len(table.to_pandas().columns)
        assert "rows" in repr(table) + table._repr_html_()
    assert measured.requests() == 0


@pytest.mark.parametrize("store", ["local", "cloud"])
def test_any_other_version_costs_a_look_and_a_read(store: str, history: str) -> None:
    counting = counted(history, store)
    table = table_on(counting)
    with counting.measure() as measured:
        table.at(5)
    assert measured.by_verb_and_kind() == {("head", "manifest"): 1, ("get", "manifest"): 1}


def test_the_bytes_of_a_commit_follow_the_table_and_not_its_past(tmp_path: Path) -> None:
    written: list[int] = []
    for length in HISTORIES:
        table = conroi.create_table(tmp_path / str(length), [{"id": 1, "v": 1}])
        for _ in range(length):
            table = table.reserve_fragments(1)
        counting = counted(table.uri, "local")
        with counting.measure() as measured:
            table_on(counting).append([{"id": 2, "v": 2}])
        written.append(measured.bytes_written)
    assert written[1] - written[0] < 20, "a few digits of the numbers are longer"


def test_control_work_that_does_follow_the_past_is_seen(history: str) -> None:
    """The instrument can tell: a full history costs a request for each version."""
    versions = len(conroi.open_table(history).versions())
    counting = counted(history, "local")
    table = table_on(counting)
    with counting.measure() as measured:
        table.history()
    assert measured.requests("get", "manifest") == versions


def test_a_client_that_is_far_behind_finds_the_newest_version_with_few_requests(history: str) -> None:
    """By doubling on local disk, by one listing where the first name is the newest: never one request for each."""
    versions = len(conroi.open_table(history).versions())
    (Path(history) / "_versions" / "latest_version_hint.json").write_text('{"version":1}')
    counting = counted(history, "local")
    with counting.measure() as measured:
        assert table_on(counting).version == versions
    assert measured.requests("head", "manifest") <= 5 + 2 * math.ceil(math.log2(versions))

    counting = counted(history, "cloud")
    objects = FolderVersions(counting)
    objects.saw(ManifestRef(1, ManifestNaming.V2.path(1), ManifestNaming.V2), moment(SYSTEM))
    with counting.measure() as measured:
        found = objects.latest()
    assert found is not None
    assert found.version == versions
    assert (measured.requests("head"), measured.requests("list")) == (2, 1)
