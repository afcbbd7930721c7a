"""Turns and the priority token: the pure rules. tests/commit/test_fairness.py has the whole commit loop."""

from __future__ import annotations

import importlib
import uuid

import pytest

from conroi import operations
from conroi.commit.fairness import LONGEST_PAUSE_S, SLACK, TOKEN_PATH, PriorityToken, Turns
from conroi.format.on_disk import WRITER_PROPERTY
from conroi.format.transaction import Transaction
from conroi.operations import ReserveFragments
from conroi.storage import open_objects
from conroi.storage.objects import Objects
from conroi.testing import SeededEnvironment


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


@pytest.mark.parametrize("content", [b"", b"{", b'{"needs_s": "x"}', b'{"needs_s": 1e9}', b"[1]"])
def test_a_priority_token_with_invalid_content_delays_writers_only_briefly(objects: Objects, content: bytes) -> None:
    objects.put(TOKEN_PATH, content)
    environment = SeededEnvironment(2)
    PriorityToken(objects, environment, "next").give_way(0.01)
    assert environment.monotonic() < 6.0


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
