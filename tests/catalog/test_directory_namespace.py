"""pylance's own directory namespace lists, creates and deregisters tables in the same `__manifest`."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import lance_namespace as ln
import pyarrow as pa
import pytest
from lance.namespace import DirectoryNamespace

import conroi
from conroi.testing import call_before
from tests.support.lakes import append_by_path, cloud, faulty, lake_with, rows, rows_by_path

pytestmark = pytest.mark.contract("P8")

PUT = ("put_if_absent", "_versions/*.manifest")


def create_by_pylance(uri: str, name: str, *numbers: int) -> None:
    data, sink = pa.table({"n": list(numbers)}), io.BytesIO()
    with pa.ipc.new_stream(sink, data.schema) as stream:
        stream.write_table(data)
    DirectoryNamespace(root=uri).create_table(ln.CreateTableRequest(id=[name]), sink.getvalue())


def deregister_by_pylance(uri: str, name: str) -> None:
    DirectoryNamespace(root=uri).deregister_table(ln.DeregisterTableRequest(id=[name]))


def listed_by_pylance(uri: str) -> list[str]:
    return sorted(DirectoryNamespace(root=uri).list_tables(ln.ListTablesRequest(id=[])).tables)


@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])
def test_a_table_that_pylance_made_is_read_and_first_published(is_cloud: bool, tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "a")
    create_by_pylance(lake.uri, "p", 1)
    path = str(tmp_path / "lake" / "p.lance")
    append_by_path(path, 2)
    if is_cloud:
        lake = cloud(lake.uri)
    assert rows(lake["p"]) == [1, 2], "not managed yet, so it is what its folder has"
    with lake.begin() as tx:
        tx["p"].delete("n = 1")
        tx["a"].append([{"n": 3}])
        append_by_path(path, 4)
    assert (rows(lake["p"]), lake["p"].version) == ([2, 4], 4)
    append_by_path(path, 5)
    assert rows(conroi.connect(lake.uri)["p"]) == [2, 4], "now it is the lake's"
    assert rows(lake["p"].append([{"n": 6}])) == [2, 4, 5, 6]
    assert listed_by_pylance(lake.uri) == ["a", "p"]


def test_a_table_that_pylance_makes_while_we_publish_is_no_conflict(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "a", "b")
    hook = call_before(lambda _: create_by_pylance(lake.uri, "p", 1), *PUT)
    writer = faulty(lake.uri, [hook], only="__manifest")
    with writer.begin() as tx:
        tx["a"].append([{"n": 1}])
        tx.create_table("c", [{"n": 7}])
    assert tx.result.attempts == 2
    for each in (writer, lake, conroi.connect(lake.uri)):
        assert {name: rows(each[name]) for name in each.tables()} == {"a": [0, 1], "b": [0], "c": [7], "p": [1]}
    assert listed_by_pylance(lake.uri) == ["a", "b", "c", "p"]
    assert [commit.operation for commit in lake.history()][:3] == ["Update", "Overwrite", "Update"]


def test_what_pylance_rewrote_keeps_our_versions_and_history(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "a", "b")
    lake["a"].append([{"n": 1}])
    before = lake.version
    create_by_pylance(lake.uri, "p", 1)
    deregister_by_pylance(lake.uri, "p")
    fresh = conroi.connect(lake.uri)
    assert fresh.tables() == ["a", "b"]
    assert (fresh["a"].version, rows(fresh["a"])) == (2, [0, 1])
    assert rows(fresh.at(before - 1)["a"]) == [0]
    lake["a"].append([{"n": 2}])
    assert rows(conroi.connect(lake.uri)["a"]) == rows_by_path(lake["a"].uri) == [0, 1, 2]


def test_a_table_that_pylance_deregisters_while_we_write_it_is_refused(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "a", "b")
    hook = call_before(lambda _: deregister_by_pylance(lake.uri, "a"), *PUT)
    writer = faulty(lake.uri, [hook], only="__manifest")
    tx = writer.begin()
    tx["a"].append([{"n": 1}])
    tx["b"].append([{"n": 1}])
    with pytest.raises(conroi.IncompatibleConflict, match="dropped"):
        tx.commit()
    assert lake.tables() == ["b"]
    assert rows(lake["b"]) == [0]


def test_a_name_that_pylance_takes_while_we_create_it_is_refused(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "a")
    hook = call_before(lambda _: create_by_pylance(lake.uri, "p", 1), *PUT)
    writer = faulty(lake.uri, [hook], only="__manifest")
    with pytest.raises(conroi.AlreadyExistsError):
        writer.create_table("p", [{"n": 9}])
    assert rows(lake["p"]) == [1]
    assert rows(lake["p"].append([{"n": 2}])) == [1, 2]


def test_conroi_publishers_beside_pylance_lose_nothing(tmp_path: Path) -> None:
    """pylance fails when it loses the race for a version of `__manifest`; then it tries again here."""
    lake = lake_with(tmp_path / "lake", "a", "b")
    rounds = 8

    def pylance() -> None:
        for number in range(rounds):
            for _ in range(200):
                try:
                    create_by_pylance(lake.uri, f"p{number}", number)
                    break
                except (OSError, RuntimeError, ln.LanceNamespaceError):
                    if f"p{number}" in listed_by_pylance(lake.uri):
                        break

    thread = threading.Thread(target=pylance)
    thread.start()
    mine = conroi.connect(lake.uri)
    done = 0
    while thread.is_alive() or done < rounds:
        done += 1
        with mine.begin() as tx:
            tx["a"].append([{"n": done}])
            tx["b"].append([{"n": done}])
    thread.join()
    fresh = conroi.connect(lake.uri)
    assert rows(fresh["a"]) == rows(fresh["b"]) == list(range(done + 1))
    assert fresh.tables() == ["a", "b", *(f"p{number}" for number in range(rounds))]
    assert [rows(fresh[f"p{number}"]) for number in range(rounds)] == [[number] for number in range(rounds)]
