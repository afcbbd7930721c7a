"""The loop: load what is new, rebase, build, put, back off, go round again; and when to stop."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import conroi
from conroi import IncompatibleConflict, RetryableConflict, TooMuchContention
from conroi.commit.change import Change
from conroi.commit.fairness import TOKEN_PATH
from conroi.commit.loop import run
from conroi.commit.table_commit import FolderCommit
from conroi.retry_policy import FREE_RETRIES, LONGEST_S, MOST_DOUBLINGS, pause_s
from conroi.testing import CountingObjects, FaultyObjects, SeededEnvironment, call_before
from conroi.verbs import Appending
from tests.support.arrow import column_values
from tests.support.instruments import interrupted, table_on
from tests.support.transactions import new_id, reserve_fragments

pytestmark = pytest.mark.contract("T4")
PUT = {"verb": "put_if_absent", "at": "_versions/*.manifest"}


@pytest.fixture
def table(uri: str) -> conroi.Table:
    return conroi.create_table(uri, [{"id": 1, "v": 10}, {"id": 2, "v": 20}])


def ids(table: conroi.Table) -> list[int]:
    return sorted(column_values(table.to_arrow(["id"])["id"]))


def always_beaten(table: conroi.Table, times: int) -> conroi.Table:
    """A writer that loses the race so many times: its next version is taken right before its put."""
    return interrupted(table, lambda: table.reserve_fragments(1), times=times, **PUT)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------- rebasing


def test_newer_transactions_are_loaded_and_rebased_over(table: conroi.Table) -> None:
    for row in (3, 4, 5):
        table = table.append([{"id": row, "v": 0}])
    result = conroi.commit(table.uri, reserve_fragments(read_version=1))
    assert (result.version, result.rebased_over, result.attempts) == (5, (2, 3, 4), 1)
    assert result.transaction.read_version == 1


def test_a_loser_goes_round_again_and_reads_only_what_is_new(table: conroi.Table) -> None:
    for row in range(3, 13):
        table = table.append([{"id": row, "v": 0}])
    counting = CountingObjects(table._files.objects)
    beaten = FaultyObjects(
        counting, [call_before(lambda _: table.reserve_fragments(1), "put_if_absent", "_versions/*", times=4)]
    )
    writer = table_on(beaten)
    with counting.measure() as measured:
        done = writer.append([{"id": 99, "v": 0}])
    assert done.version == 16
    assert measured.requests("get", "manifest") == 4, "one for each version of a concurrent writer"
    assert measured.requests("put", "transaction") == 1, "an append is the same transaction on every base"
    assert measured.requests("put_if_absent", "manifest") == 5


def test_the_data_is_written_once_however_often_the_commit_is_tried(table: conroi.Table) -> None:
    before = len(list(table._files.objects.list_names("data")))
    done = always_beaten(table, 5).append([{"id": 3, "v": 30}])
    assert (done.version, ids(done)) == (7, [1, 2, 3])
    assert len(list(table._files.objects.list_names("data"))) == before + 1


# -------------------------------------------------------------------------------- how often


def test_twenty_retries_are_enough_for_twenty_lost_races(table: conroi.Table) -> None:
    done = always_beaten(table, 20).append([{"id": 3, "v": 30}])
    assert (done.version, ids(done)) == (22, [1, 2, 3])


def test_the_twenty_first_lost_race_is_too_much(table: conroi.Table) -> None:
    with pytest.raises(TooMuchContention) as caught:
        always_beaten(table, 21).append([{"id": 3, "v": 30}])
    error = caught.value
    assert (error.attempts, error.table, error.base_version) == (21, table.uri, 1)
    assert error.hint
    assert error.reason is not None
    assert (error.reason.rule, error.reason.mine, error.reason.theirs) == (
        "table/contended",
        "Append",
        "ReserveFragments",
    )
    assert (table.latest().version, ids(table.latest())) == (22, [1, 2])


def test_a_version_that_was_not_expected_is_explained_by_who_committed_it(table: conroi.Table) -> None:
    table.delete("id = 1")
    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        table.append([{"id": 3, "v": 30}], expect=1)
    reason = caught.value.reason
    assert reason is not None
    assert (reason.rule, reason.theirs, reason.winner and reason.winner.version) == ("table/moved", "Delete", 2)


@pytest.mark.parametrize("retries", [0, 1, 5])
def test_the_number_of_retries_is_the_callers_choice(retries: int, table: conroi.Table) -> None:
    with pytest.raises(TooMuchContention) as caught:
        always_beaten(table, retries + 1).append([{"id": 3, "v": 30}], retries=retries)
    assert caught.value.attempts == retries + 1
    assert ids(always_beaten(table, retries).append([{"id": 3, "v": 30}], retries=retries)) == [1, 2, 3]


@pytest.mark.parametrize("retries", [0, 3])
def test_the_lower_layer_takes_retries_too(retries: int, table: conroi.Table) -> None:
    beaten: list[int] = []

    class Lock:
        """A commit lock is asked for just before the put: the moment to be faster."""

        def __init__(self, _version: int) -> None:
            if len(beaten) <= retries:
                beaten.append(1)
                table.reserve_fragments(1)

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    with pytest.raises(TooMuchContention) as caught:
        conroi.commit(table.uri, reserve_fragments(1), retries=retries, commit_lock=Lock)
    assert caught.value.attempts == retries + 1


def test_when_the_last_race_was_lost_to_a_change_that_forbids_ours_that_is_said(table: conroi.Table) -> None:
    writer = interrupted(table, lambda: table.overwrite([{"id": 5, "v": 5}]), **PUT)  # type: ignore[arg-type]
    with pytest.raises(IncompatibleConflict):
        writer.append([{"id": 3, "v": 30}], retries=0)


def test_a_conflict_is_not_tried_again_by_the_loop(table: conroi.Table) -> None:
    calls: list[int] = []

    def overwrite() -> None:
        calls.append(1)
        table.overwrite([{"id": 5, "v": 5}])

    with pytest.raises(IncompatibleConflict):
        interrupted(table, overwrite, times=99).append([{"id": 3, "v": 30}])
    assert (len(calls), ids(table.latest())) == (1, [5])


def test_time_runs_out_too(table: conroi.Table) -> None:
    clock = SeededEnvironment(1)
    rival = table_on(table._files.objects, environment=SeededEnvironment(2))

    def be_faster(_request: object) -> None:
        clock.sleep(1.0)
        rival.reserve_fragments(1)

    faulty = FaultyObjects(table._files.objects, [call_before(be_faster, "put_if_absent", times=None)])
    writer = table_on(faulty, environment=clock)
    plan = Appending([{"id": 3, "v": 30}])(writer._pinned)
    assert plan is not None
    change = Change(plan, writer._pinned.snapshot, uuid=new_id(), base_is_fresh=True)
    attempts = FolderCommit(writer._files, change, retries=1000)
    attempts.timeout_s = 30.0
    with pytest.raises(TooMuchContention) as caught:
        run(attempts)
    assert 2 < caught.value.attempts < 31


# ------------------------------------------------------------------------ the work done again


def same_row_each_time(table: conroi.Table) -> Callable[[], object]:
    return lambda: table.update({"v": "v + 1"}, where="id = 1", mode="rows")


def test_work_is_done_again_on_a_retryable_conflict(table: conroi.Table) -> None:
    writer = interrupted(table, same_row_each_time(table))
    done = writer.update({"v": "v * 100"}, where="id = 1", mode="rows")
    assert done.to_arrow(["v"], "id = 1")["v"].to_pylist() == [1100]


@pytest.mark.parametrize(("how", "executions"), [({}, 11), ({"retries": 3}, 4), ({"retries": 0}, 1)], ids=str)
def test_work_is_done_again_only_so_often(how: dict[str, int], executions: int, table: conroi.Table) -> None:
    others = 0

    def same_row() -> None:
        nonlocal others
        others += 1
        same_row_each_time(table)()

    with pytest.raises(RetryableConflict) as caught:
        interrupted(table, same_row, times=99).update({"v": "0"}, where="id = 1", mode="rows", **how)  # type: ignore[arg-type]
    assert others == executions
    assert caught.value.reason is not None
    assert table.latest().to_arrow(["v"], "id = 1")["v"].to_pylist() == [10 + executions]
    assert table._files.objects.head(TOKEN_PATH) is None, "it is released however the verb ends"


# ------------------------------------------------------------------------------- backing off


def test_the_first_losses_cost_no_pause() -> None:
    assert [pause_s(SeededEnvironment(1), lost, 1.0) for lost in range(1, FREE_RETRIES + 1)] == [0.0] * FREE_RETRIES


@pytest.mark.parametrize("lost", range(FREE_RETRIES + 1, 30))
def test_a_pause_is_drawn_from_a_range_that_doubles_up_to_a_point(lost: int) -> None:
    world = SeededEnvironment(lost)
    longest = 0.05 * 2 ** min(lost - FREE_RETRIES, MOST_DOUBLINGS)
    pauses = [pause_s(world, lost, 0.05) for _ in range(200)]
    assert all(0 <= pause <= longest for pause in pauses)
    assert max(pauses) > 0.8 * longest
    assert min(pauses) < 0.2 * longest


def test_work_that_took_an_hour_is_not_followed_by_a_pause_of_hours() -> None:
    assert max(pause_s(SeededEnvironment(seed), 20, 3600.0) for seed in range(100)) <= LONGEST_S


def test_pauses_are_in_proportion_to_the_attempts_own_time(table: conroi.Table) -> None:
    """The same race on storage that is ten times slower: ten times the pauses, in a clock that only we move."""
    fast, slow = slept(table, attempt_s=0.01), slept(table, attempt_s=0.1)
    assert fast > 0.01
    assert slow == pytest.approx(10 * fast, rel=0.25)


def test_a_writer_that_keeps_losing_asks_the_others_to_yield_for_two_of_its_rounds(table: conroi.Table) -> None:
    """Its attempts take many turns of the others, so that two losses count as four: then it has the priority token."""
    clock, asked = SeededEnvironment(3), list[float]()

    def be_faster(_request: object) -> None:
        clock.sleep(0.1)
        table_on(table._files.objects, environment=clock).reserve_fragments(1)
        if table._files.objects.head(TOKEN_PATH) is not None:
            asked.append(json.loads(table._files.objects.get(TOKEN_PATH))["needs_s"])

    faulty = FaultyObjects(table._files.objects, [call_before(be_faster, "put_if_absent", "_versions/*", times=4)])
    done = table_on(faulty, environment=clock).append([{"id": 3, "v": 30}])
    assert done.version == 6
    assert asked == [pytest.approx(0.2)] * 2, "at the third and the fourth put"
    assert table._files.objects.head(TOKEN_PATH) is None


def test_control_on_storage_that_takes_no_time_there_are_no_pauses(table: conroi.Table) -> None:
    assert slept(table, attempt_s=0.0) < 0.05


def slept(table: conroi.Table, attempt_s: float) -> float:
    """How long a writer pauses in all that loses twelve races, each attempt of which takes so long.

    Another writer takes the priority token each time, so that it cannot ask for it.
    """
    clock, working_s = SeededEnvironment(3), 0.0
    rival = table_on(table._files.objects, environment=clock)

    def be_faster(_request: object) -> None:
        nonlocal working_s
        clock.sleep(attempt_s)
        working_s += attempt_s
        rival.reserve_fragments(1)
        table._files.objects.put(TOKEN_PATH, b"another writer")

    faulty = FaultyObjects(table._files.objects, [call_before(be_faster, "put_if_absent", times=12)])
    table_on(faulty, environment=clock).append([{"id": 3, "v": 30}])
    table._files.objects.delete([TOKEN_PATH])
    return sum(clock.sleeps) - working_s
