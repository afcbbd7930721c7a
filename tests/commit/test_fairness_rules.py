"""Turns and the priority token: the pure rules. tests/commit/test_fairness.py has the whole commit loop."""

from __future__ import annotations

import importlib
import json
import uuid

import pytest

from conroi import operations
from conroi.commit.fairness import (
    BUSY_LOOK_S,
    LONGEST_PAUSE_S,
    LOOK_S,
    RESERVED_PAUSE_S,
    SHORTEST_S,
    SLACK,
    TOKEN_PATH,
    PriorityToken,
    Reservations,
    Turns,
)
from conroi.format.on_disk import RESERVED_DIR, WRITER_PROPERTY
from conroi.format.transaction import Transaction
from conroi.operations import ReserveFragments
from conroi.storage import open_objects
from conroi.storage.objects import Objects
from conroi.testing import CountingObjects, FaultyObjects, SeededEnvironment, fail
from tests.support.instruments import CloudLike


def committed_by(writer: str) -> Transaction:
    return operations.transaction(
        ReserveFragments(1), read_version=1, uuid=str(uuid.UUID(int=1)), properties={WRITER_PROPERTY: writer}
    )


def turns_of(name: str, environment: SeededEnvironment | None = None) -> Turns:
    turns = Turns(environment or SeededEnvironment(1))
    turns.me = name
    return turns


# ------------------------------------------------------------------------------------------------------ the rules


def test_a_single_writer_does_not_wait() -> None:
    turns = turns_of("b")
    turns.saw(2, committed_by("b"))
    assert not turns.is_contended()
    assert turns.places_to_wait() == 0


@pytest.mark.parametrize(("last", "places"), [("a", 0), ("b", 2), ("c", 1)])
def test_the_turn_goes_round_by_name(last: str, places: int) -> None:
    """After b itself come c and a."""
    turns = turns_of("b")
    for version, writer in enumerate(["a", "b", "c", last], start=2):
        turns.saw(version, committed_by(writer))
    assert turns.places_to_wait() == places


def test_a_writer_that_is_gone_is_not_waited_for() -> None:
    environment = SeededEnvironment(1)
    turns = turns_of("b", environment)
    turns.saw(2, committed_by("c"))
    turns.saw(3, committed_by("b"))
    assert turns.places_to_wait() == 1
    environment.sleep(3)
    assert turns.places_to_wait() == 0


def test_waiting_ends_when_the_others_have_committed() -> None:
    environment = SeededEnvironment(1)
    turns = turns_of("b", environment)
    turns.took(0.01)
    looks = iter([False, False, True])
    asked: list[int] = []
    before = environment.monotonic()
    turns.wait(3, lambda versions: (asked.append(versions), next(looks))[1])
    assert asked == [3, 3, 3]
    assert environment.monotonic() - before == pytest.approx(0.02 + 2 * LONGEST_PAUSE_S)


def test_waiting_for_an_idle_writer_ends_too() -> None:
    environment = SeededEnvironment(1)
    turns = turns_of("b", environment)
    turns.took(0.01)
    before = environment.monotonic()
    turns.wait(3, lambda _versions: False)
    assert environment.monotonic() - before == pytest.approx(0.02 + 3 * SLACK * 0.01, abs=LONGEST_PAUSE_S)


def test_where_a_look_costs_a_request_the_turns_of_the_others_are_waited_for_once() -> None:
    environment = SeededEnvironment(1)
    turns = turns_of("b", environment)
    turns.took(0.01)
    turns.wait(3, None)
    turns.wait(2, None, 0.5)
    assert environment.sleeps == [pytest.approx(0.02), pytest.approx(0.5)]


# ------------------------------------------------------------------------------------------- how long a turn is


@pytest.mark.parametrize(
    ("commits", "place_s"),
    [
        ([], 1.0),
        ([(2, 1_000), (4, 1_500)], 0.25),  # two commits in half a second
        ([(2, 1_000), (4, 9_000)], 1.0),  # they are slower than we are
        ([(2, 5_000), (4, 1_000)], 1.0),  # a clock that was set back
        ([(2, 1_000), (2, 1_500)], 1.0),  # the same commit, seen twice
    ],
    ids=["none", "fast", "slow", "clock set back", "one"],
)
def test_a_place_is_as_long_as_our_attempts_or_as_the_commits_of_all_if_they_are_faster(
    commits: list[tuple[int, int]], place_s: float
) -> None:
    turns = turns_of("b")
    turns.took(2.0)
    turns.took(1.0)
    for version, milliseconds in commits:
        turns.saw(version, committed_by("a"), milliseconds * 1_000_000)
    assert turns.turn_s() == 1.0, "the shortest attempt: nothing delayed it"
    assert turns.place_s() == pytest.approx(place_s)


# ---------------------------------------------------------------------------------------------- the priority token


@pytest.fixture
def objects() -> Objects:
    return open_objects(f"memory://{uuid.uuid4().hex}")


def test_the_priority_token_is_taken_only_after_losses_and_released(objects: Objects) -> None:
    token = PriorityToken(objects, SeededEnvironment(1), "a")
    token.ask(2)
    assert objects.head(TOKEN_PATH) is None
    token.ask(3)
    assert objects.head(TOKEN_PATH) is not None
    token.pass_on()
    assert objects.head(TOKEN_PATH) is None


def test_one_priority_token_at_a_time(objects: Objects) -> None:
    first, second = (PriorityToken(objects, SeededEnvironment(1), name) for name in "ab")
    first.ask(3)
    second.ask(3)
    assert (first.is_mine, second.is_mine) == (True, False)
    second.pass_on()
    assert objects.head(TOKEN_PATH) is not None, "only its holder gives it back"


def test_a_priority_token_that_expired_is_removed(objects: Objects) -> None:
    """Its holder was killed: the next waits for a while, then goes on and clears the way for all."""
    PriorityToken(objects, SeededEnvironment(1), "killed").ask(3)
    environment = SeededEnvironment(2)
    PriorityToken(objects, environment, "next").give_way(0.01)
    assert objects.head(TOKEN_PATH) is None
    assert 0.3 < environment.monotonic() < 1.0


def test_who_must_do_long_work_again_is_waited_for_that_long(objects: Objects) -> None:
    PriorityToken(objects, SeededEnvironment(1), "slow").ask(3, needs_s=2.0)
    environment = SeededEnvironment(2)
    PriorityToken(objects, environment, "next").give_way(0.01)
    assert 2.0 <= environment.monotonic() < 3.0


@pytest.mark.parametrize(
    ("content", "seconds"),
    [
        (b"", 0.4),  # forty turns
        (b"{", 0.4),
        (b"[1]", 0.4),
        (b"{}", 0.4),
        (b'{"needs_s": 0}', 0.4),
        (b'{"needs_s": 4.9}', 4.9),
        (b'{"needs_s": "x"}', 5.0),
        (b'{"needs_s": true}', 5.0),
        (b'{"needs_s": -1}', 5.0),
        (b'{"needs_s": 1e9}', 5.0),
    ],
)
def test_a_priority_token_delays_others_as_long_as_it_says_or_briefly(
    objects: Objects, content: bytes, seconds: float
) -> None:
    objects.put(TOKEN_PATH, content)
    environment = SeededEnvironment(2)
    PriorityToken(objects, environment, "next").give_way(0.01)
    assert environment.monotonic() == pytest.approx(seconds, abs=0.011)
    assert objects.head(TOKEN_PATH) is None


def test_a_holder_that_loses_again_renews_its_token_and_asks_for_twice_the_time(objects: Objects) -> None:
    token = PriorityToken(objects, SeededEnvironment(1), "a")
    asked: list[float] = []
    for needs_s in (1.0, 0.1, 9.0):
        token.ask(3, needs_s)
        objects.delete([TOKEN_PATH])  # by a writer that waited for long
        token.ask(3, needs_s)
        asked.append(json.loads(objects.get(TOKEN_PATH))["needs_s"])
    assert asked == [2.0, 8.0, 32.0]
    assert json.loads(objects.get(TOKEN_PATH))["writer"] == "a"


def test_a_slow_writer_waits_for_the_holder_of_the_token_and_takes_it_then(objects: Objects) -> None:
    PriorityToken(objects, SeededEnvironment(1), "killed").ask(3)
    environment = SeededEnvironment(2)
    token = PriorityToken(objects, environment, "slow")
    token.ask(3, 0.0, 0.01)
    assert (token.is_mine, environment.monotonic()) == (False, 0.0), "after three losses it does not wait yet"
    token.ask(4, 0.0, 0.01)
    assert token.is_mine
    assert environment.monotonic() == pytest.approx(0.4, abs=0.011)
    assert json.loads(objects.get(TOKEN_PATH))["writer"] == "slow"


def test_who_has_the_token_does_not_wait_for_it_and_others_see_it(objects: Objects) -> None:
    environment = SeededEnvironment(1)
    mine, other = PriorityToken(objects, environment, "a"), PriorityToken(objects, environment, "b")
    assert (mine.is_held(), other.is_held()) == (False, False)
    mine.ask(3)
    assert (mine.is_held(), other.is_held()) == (False, True)
    mine.give_way(0.01)
    assert environment.monotonic() == 0.0
    mine.pass_on()
    assert (mine.is_mine, other.is_held()) == (False, False)


def test_each_new_token_is_waited_for_up_to_ten_seconds_together(objects: Objects) -> None:
    """One after another, each with a time of its own: a writer that waited that long goes on."""
    environment = SeededEnvironment(2)
    objects.put(TOKEN_PATH, b'{"needs_s": 4.0, "id": 0}')

    class Renewed(SeededEnvironment):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            objects.put(TOKEN_PATH, b'{"needs_s": 4.0, "id": %d}' % int(self.monotonic() / 3))

    environment = Renewed(2)
    PriorityToken(objects, environment, "next").give_way(0.01)
    assert environment.monotonic() == pytest.approx(10.0, abs=0.011)
    assert objects.head(TOKEN_PATH) is not None


def test_storage_without_an_answer_delays_no_writer() -> None:
    objects = FaultyObjects(open_objects(f"memory://{uuid.uuid4().hex}"), [fail("*", times=None)])
    environment = SeededEnvironment(1)
    token = PriorityToken(objects, environment, "a")
    token.ask(9)
    assert not token.is_held()
    token.give_way(0.01)
    assert (token.is_mine, environment.monotonic()) == (False, 0.0)


# -------------------------------------------------------------------------------------------- looks and losses


def test_a_writer_alone_looks_for_a_token_with_every_eighth_commit(objects: Objects) -> None:
    environment = SeededEnvironment(1)
    turns = turns_of("b", environment)
    assert [number for number in range(1, 25) if turns.is_look_due()] == [8, 16, 24]
    PriorityToken(objects, environment, "a").ask(3)
    turns.look(PriorityToken(objects, environment, "b"))
    assert turns.is_contended()
    objects.delete([TOKEN_PATH])
    turns.look(PriorityToken(objects, environment, "b"))
    assert not turns.is_contended()


def test_a_writer_that_sees_others_need_not_look() -> None:
    turns = turns_of("b")
    turns.saw(2, committed_by("a"))
    assert not any(turns.is_look_due() for _ in range(24))


@pytest.mark.parametrize(("turn_s", "losses"), [(0.4, 5), (0.41, 10)])
def test_losses_of_a_writer_whose_attempts_take_many_turns_count_twice(turn_s: float, losses: int) -> None:
    turns = turns_of("b")
    turns.took(turn_s)
    for version in (2, 3):
        turns.saw(version, committed_by("a"), version * 100_000_000)
    assert turns.losses(5) == losses


def test_only_the_last_sixteen_of_each_kind_count() -> None:
    turns = turns_of("b")
    for record in (turns.took, lambda seconds: turns.worked(seconds, wasted=False)):
        record(0.1)
        for _ in range(15):
            record(1.0)
    assert (turns.turn_s(), turns.work_s()) == (0.1, 1.0)
    turns.took(1.0)
    assert turns.turn_s() == 1.0
    for number in range(16):
        turns.worked(3.0 if number < 8 else 2.0, wasted=False)
    assert turns.work_s() == 3.0, "the upper one of the two in the middle"
    for version in range(2, 19):  # the first in half a second, all others in a tenth
        turns.saw(version, committed_by("a"), 0 if version == 2 else 400_000_000 + version * 100_000_000)
    assert turns.place_s() == pytest.approx(0.1)


def test_a_writer_that_never_committed_is_not_ahead() -> None:
    turns = turns_of("b")
    for writer in "acdefghi":
        turns.saw(2, committed_by(writer))
    assert not turns.is_ahead(), "two versions, and a quarter of eight writers is two"


def test_wasted_work_is_remembered_by_the_clock() -> None:
    environment = SeededEnvironment(1)
    environment.sleep(100.0)
    turns = turns_of("b", environment)
    turns.worked(0.1, wasted=True)
    environment.sleep(1.9)
    assert turns.wastes_work()
    environment.sleep(0.1)
    assert not turns.wastes_work()


def test_a_short_turn_is_looked_at_twice() -> None:
    environment = SeededEnvironment(1)
    turns = turns_of("b", environment)
    turns.wait(1, lambda _versions: False, 0.0004)
    assert environment.sleeps[1:3] == [pytest.approx(0.0002)] * 2


def test_the_first_attempts_are_expected_to_be_short() -> None:
    turns = turns_of("b")
    assert (turns.turn_s(), turns.place_s(), turns.work_s()) == (SHORTEST_S, SHORTEST_S, SHORTEST_S)


def test_among_more_writers_than_processors_the_first_attempt_may_skip_the_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.import_module("conroi.commit.fairness"), "PROCESSORS", 2)
    turns = turns_of("b")
    for version, writer in enumerate(["b", "d", "e", "c"], start=2):
        turns.saw(version, committed_by(writer))
    assert (turns.places_to_wait(), turns.is_ahead()) == (2, False), "after c come d and e"
    assert (turns.places_before(may_skip=True), turns.places_before(may_skip=False)) == (0, 2)
    for version, writer in enumerate(["f", "g", "h", "i", "j", "b"], start=6):
        turns.saw(version, committed_by(writer))
    assert turns.is_ahead()
    assert (turns.places_before(may_skip=True), turns.places_before(may_skip=False)) == (1, 8)
    turns.worked(0.1, wasted=True)
    assert turns.places_before(may_skip=False) == 0, "it waits before its work instead"


def test_an_older_commit_that_is_seen_late_changes_no_turn() -> None:
    turns = turns_of("b")
    turns.saw(5, committed_by("c"))
    turns.saw(6, committed_by("b"))
    turns.saw(3, committed_by("b"))
    turns.saw(4, committed_by("c"))
    assert turns.places_to_wait() == 1, "the last one was b"


# --------------------------------------------------------------------------------------------------- reservations


def reservations_of(objects: Objects) -> tuple[Reservations, SeededEnvironment]:
    environment = SeededEnvironment(1)
    found = Reservations(objects, environment)
    environment.sleep(LOOK_S)
    return found, environment


@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])
def test_the_oldest_reservation_of_a_table_is_waited_for_and_removed_when_it_expired(
    is_cloud: bool, objects: Objects
) -> None:
    objects = CloudLike(objects) if is_cloud else objects
    client, clock = reservations_of(objects)
    client.reserve(["t", "u"])
    (path,) = objects.list_names(RESERVED_DIR)
    assert json.loads(objects.get(path)) == {"tables": ["t", "u"]}
    client.reserve(["u", "t"])
    assert list(objects.list_names(RESERVED_DIR)) == [path], "it has one already"
    started = clock.monotonic()
    client.let_pass(["t"])
    assert clock.monotonic() == started, "it is its own"

    writer, environment = reservations_of(objects)
    for tables in ([], ["v"]):
        writer.let_pass(tables)
        environment.sleep(LOOK_S)
    started = environment.monotonic()
    writer.let_pass(["u"], 0.5)
    assert environment.monotonic() - started == pytest.approx(0.5, abs=0.051)
    assert environment.sleeps[-1] == RESERVED_PAUSE_S * (10 if is_cloud else 1)
    assert objects.head(path) is not None, "who does not wait for all of its time does not remove it"
    environment.sleep(BUSY_LOOK_S)
    started = environment.monotonic()
    writer.let_pass(["u"])
    assert environment.monotonic() - started == pytest.approx(1.0, abs=0.051)
    assert objects.head(path) is None


def test_a_reservation_that_was_used_is_waited_for_no_longer(objects: Objects) -> None:
    client, _ = reservations_of(objects)
    client.reserve(["t"])
    writer, environment = reservations_of(objects)
    client.used(["u"])
    assert len(list(objects.list_names(RESERVED_DIR))) == 1, "that was another table"
    client.used(["t"])
    started = environment.monotonic()
    writer.let_pass(["t"])
    assert environment.monotonic() == started
    client.reserve(["t"])
    assert len(list(objects.list_names(RESERVED_DIR))) == 1, "it reserves again"


def test_where_a_look_is_a_request_it_is_made_once_in_a_while_and_more_often_when_busy(objects: Objects) -> None:
    counted = CountingObjects(CloudLike(objects))
    environment = SeededEnvironment(1)
    writer = Reservations(counted, environment)

    def looks(seconds: float) -> bool:
        environment.sleep(seconds)
        with counted.measure() as counts:
            writer.let_pass(["t"], 0.0)
        return counts.requests() > 0

    assert [looks(LOOK_S - 0.1), looks(0.1), looks(LOOK_S - 0.1)] == [False, True, False]
    other = Reservations(objects, SeededEnvironment(2))
    other.reserve(["t"])
    assert looks(0.1)
    other.used(["t"])
    assert [looks(BUSY_LOOK_S - 0.1), looks(0.1), looks(BUSY_LOOK_S)] == [False, True, True]
    assert [looks(54.0), looks(5.0), looks(5.0)] == [True, False, True], "a minute after it was found"


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"tables": [7]}', b'{"tables": ["u"]}'])
def test_a_damaged_reservation_and_one_of_other_tables_delay_no_writer(objects: Objects, content: bytes) -> None:
    objects.put(f"{RESERVED_DIR}/00000000000000000001-x", content)
    writer, environment = reservations_of(objects)
    started = environment.monotonic()
    writer.let_pass(["t"])
    assert environment.monotonic() == started
    Reservations(objects, SeededEnvironment(2)).reserve(["t"])
    environment.sleep(LOOK_S)
    started = environment.monotonic()
    writer.let_pass(["t"])
    assert environment.monotonic() > started, "the one after it counts"


# -------------------------------------------------------------------------------------- wasted attempts


def test_a_writer_with_wasted_attempts_waits_before_the_work_for_a_while() -> None:
    environment = SeededEnvironment(1)
    turns = turns_of("b", environment)
    turns.worked(0.01, wasted=False)
    assert not turns.wastes_work()
    turns.worked(0.03, wasted=True)
    turns.worked(0.02, wasted=False)
    assert turns.wastes_work()
    assert turns.work_s() == 0.02, "the middle one of three"
    environment.sleep(3)
    assert not turns.wastes_work()


def test_writers_are_many_if_not_all_of_them_can_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("conroi.commit.fairness"), "PROCESSORS", 2)
    turns = turns_of("b")
    turns.saw(2, committed_by("a"))
    assert not turns.are_many()
    turns.saw(3, committed_by("c"))
    assert turns.are_many()


def test_a_writer_that_just_committed_is_ahead_until_a_quarter_of_the_others_have() -> None:
    turns = turns_of("b")
    for version, writer in enumerate(["a", "c", "d", "e", "f", "g", "h", "i", "b"], start=2):
        turns.saw(version, committed_by(writer))
    assert turns.is_ahead()
    turns.saw(11, committed_by("d"))
    assert turns.is_ahead()
    turns.saw(12, committed_by("a"))
    assert not turns.is_ahead()


def test_among_few_writers_none_is_ahead() -> None:
    turns = turns_of("b")
    for version, writer in enumerate(["a", "c", "b"], start=2):
        turns.saw(version, committed_by(writer))
    assert not turns.is_ahead()
