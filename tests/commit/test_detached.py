"""Detached commits: off the line of versions, so there is no race and nothing to rebase."""

from __future__ import annotations

from pathlib import Path

import pytest

import conroi
from conroi.testing import CountingObjects, FaultyObjects, SeededEnvironment, call_before, fail, lose_answer
from tests.support.arrow import column_values
from tests.support.instruments import interrupted, table_on

pytestmark = pytest.mark.contract("T2", "T5")
DETACHED = 1 << 63


class Repeating(SeededEnvironment):
    """A world in which two draw the same number."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(len(numbers))  # so that their transactions have different ids
        self._numbers = iter(numbers)

    def random_u64(self) -> int:
        return next(self._numbers)


@pytest.fixture
def table(tmp_path: Path) -> conroi.Table:
    return conroi.create_table(tmp_path / "t.lance", [{"id": 1}]).append([{"id": 2}])


def ids(table: conroi.Table) -> list[int]:
    return sorted(column_values(table.to_arrow()["id"]))


def test_the_name_says_that_it_is_detached(table: conroi.Table) -> None:
    detached = table_on(table._files.objects, environment=Repeating(77)).append([{"id": 3}], detached=True)
    assert detached.version == DETACHED + 77
    assert (Path(table.uri) / "_versions" / "d9223372036854775885.manifest").exists()


def test_nothing_on_the_line_of_versions_moves(table: conroi.Table) -> None:
    hint = Path(table.uri) / "_versions" / "latest_version_hint.json"
    before = hint.read_bytes()
    table.delete("id = 1", detached=True)
    assert hint.read_bytes() == before
    assert (table.latest().version, table.versions()) == (2, [1, 2])
    hint.unlink()
    assert conroi.open_table(table.uri).version == 2


def test_a_number_that_is_taken_is_drawn_again(table: conroi.Table) -> None:
    first = table_on(table._files.objects, environment=Repeating(5)).append([{"id": 3}], detached=True)
    second = table_on(table._files.objects, environment=Repeating(5, 5, 6)).append([{"id": 4}], detached=True)
    assert (first.version, second.version) == (DETACHED + 5, DETACHED + 6)
    assert (ids(first), ids(second)) == ([1, 2, 3], [1, 2, 4])


def test_a_number_that_is_always_taken_is_too_much(table: conroi.Table) -> None:
    table_on(table._files.objects, environment=Repeating(5)).append([{"id": 3}], detached=True)
    with pytest.raises(conroi.TooMuchContention):
        table_on(table._files.objects, environment=Repeating(5, 5, 5)).append([{"id": 4}], detached=True, retries=2)


def test_concurrent_commits_do_not_conflict_with_a_detached_one(table: conroi.Table) -> None:
    writer = interrupted(table, lambda: table.overwrite([{"id": 100}]))
    assert ids(writer.delete("id = 1", detached=True)) == [2]
    assert ids(table.latest()) == [100]


@pytest.mark.contract("T11")
@pytest.mark.parametrize("fault", [lose_answer, fail])
def test_an_answer_that_got_lost_is_looked_for(fault: type, table: conroi.Table) -> None:
    faulty = FaultyObjects(table._files.objects, [fault("put_if_absent", "_versions/d*")])
    detached = table_on(faulty).append([{"id": 3}], detached=True)
    assert (len(faulty.hits), ids(detached)) == (1, [1, 2, 3])
    manifests = [path.name for path in (Path(table.uri) / "_versions").glob("d*.manifest")]
    assert manifests == [f"d{detached.version}.manifest"]


def test_a_detached_commit_looks_for_no_newer_version(table: conroi.Table) -> None:
    counting = CountingObjects(table._files.objects)
    opened = table_on(counting)
    with counting.measure() as measured:
        opened.append([{"id": 3}], detached=True)
    assert measured.by_verb_and_kind() == {("put", "transaction"): 1, ("put_if_absent", "manifest"): 1}


def test_control_a_commit_on_the_line_does_conflict(table: conroi.Table) -> None:
    seen: list[object] = []
    faulty = FaultyObjects(table._files.objects, [call_before(seen.append, "head", "_versions/*", times=None)])
    with pytest.raises(conroi.IncompatibleConflict):
        interrupted(table_on(faulty), lambda: table.overwrite([{"id": 100}])).delete("id = 1")
    assert seen
