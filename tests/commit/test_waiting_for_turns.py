"""How a writer waits for its turn: it follows the commits of those before it where that costs nothing."""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Callable

import pytest

import conroi
from conroi import history
from conroi.commit.change import Change
from conroi.commit.fairness import LONGEST_PAUSE_S, SLACK, PriorityToken, Turns
from conroi.commit.loop import _wait_for_turn, run
from conroi.commit.table_commit import FolderCommit
from conroi.snapshots.snapshot import load_transaction
from conroi.storage import open_objects
from conroi.storage.objects import Objects
from conroi.testing import SeededEnvironment
from conroi.verbs import Appending
from tests.support.arrow import column_values
from tests.support.instruments import CloudLike, table_on
from tests.support.transactions import new_id

TURN_S = 0.01


class Crowd(SeededEnvironment):
    """While our writer sleeps, the others do something, one thing each time."""

    def __init__(self) -> None:
        super().__init__(1)
        self.next: list[Callable[[], object]] = []

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.next:
            self.next.pop(0)()


class Place:
    """A table with the writers b, c, d and e, of which b was the last to commit: c, d and e come before it."""

    def __init__(self, is_cloud: bool) -> None:
        self.clock = Crowd()
        self.objects: Objects = open_objects(f"memory://{uuid.uuid4().hex}")
        self.uri = self.objects.root
        conroi.create_table(self.uri, [{"id": 0}], environment=self.clock)
        ours = CloudLike(self.objects) if is_cloud else self.objects
        self.writers = {name: self.writer(name, self.objects, SeededEnvironment(ord(name))) for name in "cde"}
        self.writers["b"] = self.writer("b", ours, self.clock)
        for number, name in enumerate("cdeb", start=1):
            self.add(name, number)
        self.turns = self.writers["b"]._files.kept(Turns)
        files = self.writers["b"]._files
        for version in range(2, 6):
            snapshot = history.find(files, version)
            transaction = load_transaction(files.objects, snapshot)
            assert transaction is not None
            self.turns.saw(version, transaction)
        self.turns._attempts.clear()
        self.turns.took(TURN_S)
        assert (self.turns.places_to_wait(), self.turns.place_s()) == (3, TURN_S)
        self.clock.sleeps.clear()

    def writer(self, name: str, objects: Objects, clock: SeededEnvironment) -> conroi.Table:
        table = table_on(objects, environment=clock)
        table._files.kept(Turns).me = name
        return table

    def add(self, name: str, number: int) -> None:
        self.writers[name] = self.writers[name].append([{"id": number}])

    def commit(self) -> FolderCommit:
        """An append of ours that is not committed yet."""
        table = self.writers["b"]
        plan = Appending([{"id": 99}])(table._pinned)
        assert plan is not None
        change = Change(plan, table._pinned.snapshot, uuid=new_id(), base_is_fresh=True)
        return FolderCommit(table._files, change, retries=5)

    def ids(self) -> list[int]:
        return sorted(column_values(conroi.open_table(self.uri).to_arrow()["id"]))


def test_on_local_disk_each_commit_of_the_others_is_seen_while_the_next_is_awaited() -> None:
    place = Place(is_cloud=False)
    place.clock.next = [lambda: place.add("c", 5), lambda: place.add("d", 6), lambda: place.add("e", 7)]
    commit = place.commit()
    assert _wait_for_turn(commit, 3) is None
    assert place.clock.sleeps == pytest.approx([2 * TURN_S, TURN_S, LONGEST_PAUSE_S])
    assert commit.heads() is None
    commit.get_ready()
    assert commit.rebased_over == [6, 7, 8]


def test_a_writer_that_is_not_running_is_waited_for_twice_the_time_of_its_turn() -> None:
    place = Place(is_cloud=False)
    started = place.clock.monotonic()
    assert _wait_for_turn(place.commit(), 3) is None
    assert place.clock.monotonic() - started == pytest.approx(SLACK * 3 * TURN_S, abs=2 * TURN_S)
    assert set(place.clock.sleeps) == {2 * TURN_S}


def test_the_last_place_is_looked_at_often() -> None:
    place = Place(is_cloud=False)
    place.clock.next = [lambda: None, lambda: None, lambda: place.add("e", 5)]
    assert _wait_for_turn(place.commit(), 1) is None
    assert place.clock.sleeps == pytest.approx([LONGEST_PAUSE_S] * 3)


def test_where_a_look_is_a_request_the_writer_sleeps_once() -> None:
    place = Place(is_cloud=True)
    assert _wait_for_turn(place.commit(), 3) is None
    assert place.clock.sleeps == [3 * TURN_S]


def test_without_places_before_it_a_writer_does_not_wait() -> None:
    place = Place(is_cloud=False)
    assert _wait_for_turn(place.commit(), 0) is None
    assert place.clock.sleeps == []


@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])
def test_the_commit_waits_for_its_turn_and_lands_after_the_others(
    is_cloud: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module("conroi.commit.fairness"), "PROCESSORS", 99)
    place = Place(is_cloud)
    place.clock.next = [lambda: place.add("c", 5), lambda: place.add("d", 6), lambda: place.add("e", 7)]
    result = run(place.commit())
    assert result.attempts == 1
    assert result.version == (9 if not is_cloud else 7), "far away it waits once, while one other commits"
    assert 99 in place.ids()


def test_a_writer_alone_finds_the_token_of_another_with_its_eighth_commit() -> None:
    clock = SeededEnvironment(1)
    uri = f"memory://{uuid.uuid4().hex}"
    table = conroi.create_table(uri, [{"id": 0}], environment=clock)
    turns = table._files.kept(Turns)
    for _ in range(100):  # whatever the creation of the table counted
        if turns.is_look_due():
            break
    PriorityToken(open_objects(uri), SeededEnvironment(2), "starving").ask(3)
    for number in range(7):
        table = table.append([{"id": number}])
        assert not turns.is_contended(), number
    table.append([{"id": 7}])
    assert turns.is_contended()
