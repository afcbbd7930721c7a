"""Others write a table by its path, past the lake: before a publication, and between publication and final name."""

from __future__ import annotations

import threading
from pathlib import Path

import lance
import pytest

import conroi
from conroi.testing import Gate, call_before
from tests.support.lakes import (
    append_by_path,
    cloud,
    faulty,
    lake_with,
    manifests,
    path_of,
    rows,
    rows_by_path,
    settle,
)

pytestmark = pytest.mark.contract("P8")

PUT = ("put_if_absent", "_versions/*.manifest")


@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])
def test_a_commit_by_path_before_ours_is_adopted(is_cloud: bool, tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "t")
    path = path_of(lake, "t")
    append_by_path(path, 1)
    append_by_path(path, 2)
    lake = cloud(lake.uri) if is_cloud else lake
    assert rows(lake["t"]) == [0], "the lake has its own version until the next publication"
    assert lake["t"].append([{"n": 3}]).version == 4
    settle(lake)
    assert [commit.message for commit in lake.history(3)][1:] == [
        f"adopt version {version} of t, which was written past the lake" for version in (3, 2)
    ]
    assert rows(conroi.connect(lake.uri)["t"]) == rows_by_path(path) == [0, 1, 2, 3]
    assert [rows_by_path(path, version) for version in (1, 2, 3)] == [[0], [0, 1], [0, 1, 2]]


def test_a_long_backlog_of_commits_by_path_is_no_contention(tmp_path: Path) -> None:
    """Each adoption is progress, not a lost race: more of them than retries are allowed do not end the commit."""
    lake = lake_with(tmp_path / "lake", "t")
    for n in range(1, 5):
        append_by_path(path_of(lake, "t"), n)
    assert lake["t"].append([{"n": 5}], retries=1).version == 6
    assert rows(lake["t"]) == [0, 1, 2, 3, 4, 5]


def test_a_commit_by_path_while_we_work_is_adopted(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "t", "u")
    path = path_of(lake, "t")
    with lake.begin() as tx:
        tx["t"].update({"n": "n + 10"})
        tx["u"].append([{"n": 5}])
        append_by_path(path, 1)
    assert tx.result.rebased == {"t": (2,)}
    assert rows(lake["t"]) == rows_by_path(path) == [1, 10]
    assert rows(lake["u"]) == [0, 5]


def test_a_delete_by_path_and_ours_of_other_rows_are_merged(tmp_path: Path) -> None:
    lake = conroi.connect(str(tmp_path / "lake"))
    path = lake.create_table("t", [{"n": n} for n in range(6)]).uri
    with lake.begin() as tx:
        tx["t"].delete("n = 1")
        lance.dataset(path).delete("n = 4")
    assert rows(lake["t"]) == rows_by_path(path) == [0, 2, 3, 5]


def test_an_overwrite_by_path_refuses_our_change_and_stays(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "t")
    path = path_of(lake, "t")
    tx = lake.begin()
    tx["t"].delete("n = 0")
    lance.write_dataset(lance.dataset(path).to_table(filter="n > 0"), path, mode="overwrite")
    with pytest.raises(conroi.IncompatibleConflict):
        tx.commit()
    assert rows_by_path(path) == []
    assert lake["t"].append([{"n": 7}]).version == 3
    assert rows(lake["t"]) == [7], "what was written by path is the table's state for the next writer"


def forked(folder: Path, *, is_cloud: bool = False) -> tuple[conroi.Lake, str]:
    """A lake whose table `t` got row 1 through the lake and row 2 by path as the same version."""
    lake = lake_with(folder, "t", "u")
    path = path_of(lake, "t")
    verb = "put_if_absent" if is_cloud else "rename_if_absent"
    hook = call_before(lambda _: append_by_path(path, 2), verb, "_versions/*.manifest")
    writer = faulty(lake.uri, [hook], only="t.lance", is_cloud=is_cloud)
    with writer.begin("the lake's") as tx:
        tx["t"].append([{"n": 1}])
        tx["u"].append([{"n": 1}])
    if is_cloud:
        settle(writer)
    assert tx.result.tables == {"t": 2, "u": 2}
    return lake, path


@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])
def test_a_commit_by_path_between_publication_and_final_name_forks_the_table(is_cloud: bool, tmp_path: Path) -> None:
    lake, path = forked(tmp_path / "lake", is_cloud=is_cloud)
    before = manifests(path)
    lake = cloud(lake.uri) if is_cloud else conroi.connect(lake.uri)
    assert (rows(lake["t"]), rows(lake["u"])) == ([0, 1], [0, 1]), "the lake has all of its transaction"
    assert rows_by_path(path) == [0, 2], "and who wrote by path has its own"
    with pytest.raises(conroi.ForkedTableError, match="mend") as caught:
        lake["t"].append([{"n": 3}])
    assert caught.value.version == 2
    tx = lake.begin()
    tx["u"].append([{"n": 3}])
    tx["t"].append([{"n": 3}])
    with pytest.raises(conroi.ForkedTableError):
        tx.commit()
    lake["u"].append([{"n": 4}])
    assert (rows(lake["t"]), rows(lake["u"])) == ([0, 1], [0, 1, 4]), "other tables go on"
    append_by_path(path, 5)
    assert rows(conroi.connect(lake.uri)["t"]) == [0, 1]
    kept = manifests(path)
    assert {name: kept.get(name) for name in before} == before, "nothing was overwritten or removed"


def test_a_publisher_that_adopted_does_not_pass_over_one_that_published_the_same_number(tmp_path: Path) -> None:
    """B looked before pylance wrote, A after: B publishes version 2 while A has adopted pylance's version 2."""
    lake = lake_with(tmp_path / "lake", "t")
    path = path_of(lake, "t")
    b_at_put, a_at_put = Gate(), Gate()
    b = faulty(lake.uri, [call_before(b_at_put, *PUT)], only="__manifest")
    thread_b = threading.Thread(target=lambda: b["t"].append([{"n": 1}]))
    thread_b.start()
    b_at_put.wait_for_arrival()
    append_by_path(path, 2)
    a = faulty(lake.uri, [call_before(a_at_put, *PUT)], only="__manifest")
    answers: list[BaseException] = []

    def append() -> None:
        try:
            a["t"].append([{"n": 3}])
        except conroi.ConroiError as error:
            answers.append(error)

    thread_a = threading.Thread(target=append)
    thread_a.start()
    a_at_put.wait_for_arrival()
    b_at_put.open()
    thread_b.join(30)
    a_at_put.open()
    thread_a.join(30)
    assert rows(conroi.connect(lake.uri)["t"]) == [0, 1], "what B published is not lost"
    assert [type(answer) for answer in answers] == [conroi.ForkedTableError]
    assert rows_by_path(path) == [0, 2]


def test_control_a_final_name_that_is_overwritten_loses_rows(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "t")
    path = path_of(lake, "t")

    def overwrite(_request: object) -> None:
        append_by_path(path, 2)
        (staged,) = (Path(path) / "_versions").glob("*.manifest-*")
        final = staged.with_name(staged.name.rpartition(".manifest")[0] + ".manifest")
        final.write_bytes(staged.read_bytes())

    writer = faulty(lake.uri, [call_before(overwrite, "rename_if_absent", "_versions/*")], only="t.lance")
    writer["t"].append([{"n": 1}])
    assert 2 not in rows_by_path(path)
