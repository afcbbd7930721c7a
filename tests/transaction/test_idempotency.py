"""A transaction with a key that was published before is not done again; its result is."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

import conroi
from conroi.errors import StoreUnavailable
from conroi.testing import FaultyObjects, Meter, call_after, connect_through, die, lose_answer
from tests.support.paused_commits import PUBLICATION, paused_before_publication, while_paused
from tests.support.processes import fork_context
from tests.support.together import Meet, together


def load(lake: conroi.Lake, key: str, number: int = 4) -> Any:
    with lake.begin(f"load {number}", idempotency_key=key) as tx:
        tx["orders"].append([{"id": number, "n": number}])
        tx["rates"].append([{"name": key, "rate": number}])
    return tx.result


def test_the_second_time_nothing_is_done_and_the_first_result_is_told(lake: conroi.Lake):
    first = load(lake, "monday")
    version = lake.version
    lake["rates"].append([{"name": "between", "rate": 0}])
    second = load(conroi.connect(lake.uri), "monday", number=5)
    assert not first.was_done_before
    assert second.was_done_before
    assert (second.version, second.tables) == (first.version, first.tables) == (version, {"orders": 2, "rates": 2})
    assert lake["orders"].count_rows(filter="id > 3") == 1
    assert lake["rates"].count_rows(filter="name = 'monday'") == 1


def test_other_keys_are_other_work(lake: conroi.Lake):
    load(lake, "monday", 4)
    assert not load(lake, "tuesday", 5).was_done_before
    assert lake["orders"].count_rows() == 5


def test_a_key_that_was_only_tried_is_free(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin(idempotency_key="monday")
    tx["orders"].delete("id = 1")
    other["orders"].update({"n": "0"}, where="id = 1")
    with pytest.raises(conroi.RetryableConflict):
        tx.commit()
    assert not load(lake, "monday").was_done_before
    assert load(lake, "monday").was_done_before


def test_a_file_that_is_being_written_beside_the_key_is_skipped(lake: conroi.Lake):
    load(lake, "monday")
    (attempt,) = (Path(lake.uri) / "__manifest" / "_conroi" / "keys").rglob("*/*")
    (attempt.parent / ".tmp_conroi_0_1_2").write_bytes(b"")
    assert load(conroi.connect(lake.uri), "monday").was_done_before


def test_a_key_whose_attempt_lost_a_race_is_still_found(lake: conroi.Lake, other: conroi.Lake):
    mine, gate = paused_before_publication(lake.uri)
    future = while_paused(gate, lambda: load(mine, "monday"), lambda: other["rates"].append([{"name": "x", "rate": 0}]))
    result: Any = future.result()
    assert result.attempts == 2
    assert load(conroi.connect(lake.uri), "monday").version == result.version


def test_the_same_key_while_the_first_is_about_to_be_published(lake: conroi.Lake, other: conroi.Lake):
    """Both passed the look for an earlier one; the second to put finds it then."""
    mine, gate = paused_before_publication(lake.uri)
    future = while_paused(gate, lambda: load(mine, "monday"), lambda: load(other, "monday"))
    result: Any = future.result()
    assert result.was_done_before
    assert lake["rates"].count_rows(filter="name = 'monday'") == 1


def test_a_transaction_that_began_before_the_other_was_published(lake: conroi.Lake, other: conroi.Lake):
    tx = lake.begin(idempotency_key="monday")
    tx["rates"].append([{"name": "monday", "rate": 4}])
    first = load(other, "monday")
    for number in range(3):
        other["rates"].append([{"name": "more", "rate": number}])
    assert tx.commit().version == first.version
    assert lake["rates"].count_rows(filter="name = 'monday'") == 1


def test_a_transaction_that_slept_through_a_long_history(lake: conroi.Lake, other: conroi.Lake):
    """So long that no client follows it commit by commit."""
    tx, plain = lake.begin(idempotency_key="monday"), lake.begin()
    tx["rates"].append([{"name": "monday", "rate": 4}])
    plain["orders"].append([{"id": 77, "n": 0}])
    first = load(other, "monday")
    table = other["rates"]
    for number in range(150):
        table = table.set_config({"step": str(number)})
    assert tx.commit().version == first.version
    assert tx.result.was_done_before
    assert plain.commit().tables == {"orders": 3}
    assert lake["rates"].count_rows(filter="name = 'monday'") == 1
    assert lake["orders"].count_rows() == 5


def test_run_with_a_key_is_done_once(lake: conroi.Lake):
    for _ in range(3):
        lake.run(lambda tx: tx["rates"].append([{"name": "once", "rate": 1}]), idempotency_key="k")
    assert lake["rates"].count_rows(filter="name = 'once'") == 1


def test_an_earlier_one_is_found_with_as_many_requests_however_long_the_history(lake: conroi.Lake):
    load(lake, "monday")

    def requests() -> dict[tuple[str, str], int]:
        meter = Meter()
        fresh = connect_through(lake.uri, meter.counting)
        with meter.measure() as measured:
            assert load(fresh, "monday").was_done_before
        return measured.by_verb_and_kind()

    before = requests()
    for number in range(40):
        lake["rates"].append([{"name": "more", "rate": number}])
    assert requests() == before


# ---------------------------------------------------------------------------------- lost answers and crashes


def test_after_a_lost_answer_the_same_key_finds_what_landed(lake: conroi.Lake):
    """The put landed, and its answer was lost: it is recognised, and the key as well."""
    unlucky = connect_through(lake.uri, lambda o: FaultyObjects(o, [lose_answer(PUBLICATION, "_versions/*.manifest")]))
    result = load(unlucky, "monday")
    assert not result.was_done_before
    assert load(lake, "monday").version == result.version
    assert lake["rates"].count_rows(filter="name = 'monday'") == 1


def die_after_publication(uri: str, meet: Meet) -> None:
    """A process that is killed when its publication has landed and before it knows."""
    meet()
    fault = call_after(die, PUBLICATION, "_versions/*.manifest")
    load(connect_through(uri, lambda objects: FaultyObjects(objects, [fault])), "monday")


def load_once(uri: str, meet: Meet) -> tuple[int, bool]:
    lake = conroi.connect(uri)
    meet()
    result = lake.run(
        lambda tx: tx["rates"].append([{"name": "monday", "rate": 1}]), idempotency_key="monday", retries=20
    )
    assert result is not None
    with lake.begin(idempotency_key="monday") as tx:
        tx["rates"].append([{"name": "monday", "rate": 2}])
    return tx.result.version, tx.result.was_done_before


@pytest.mark.contract("P1")
def test_killed_between_put_and_answer_the_key_tells_that_it_was_done(tmp_path: Any):
    lake = two_tables(str(tmp_path))
    process = fork_context().Process(target=die_after_publication, args=(lake.uri, _no_barrier))
    process.start()
    process.join(60)
    assert process.exitcode == -9
    result = load(lake, "monday")
    assert result.was_done_before
    assert result.tables == {"orders": 2, "rates": 2}
    assert lake["rates"].count_rows(filter="name = 'monday'") == 1


def _no_barrier() -> None:
    """There is no other process to wait for."""


def two_tables(uri: str) -> conroi.Lake:
    lake = conroi.connect(uri)
    lake.create_table("orders", [{"id": 1, "n": 1}], key="id")
    lake.create_table("rates", [{"name": "a", "rate": 1}])
    return lake


def test_eight_processes_with_one_key_do_it_once(tmp_path: Any):
    lake = two_tables(str(tmp_path))
    said = together(load_once, [lake.uri] * 8)
    assert len({version for version, _ in said}) == 1
    assert all(was_done for _, was_done in said)
    assert lake["rates"].count_rows(filter="name = 'monday'") == 1


def test_control_eight_processes_with_keys_of_their_own_do_it_eight_times(tmp_path: Any):
    lake = two_tables(str(tmp_path))
    together(load_with_own_key, [lake.uri] * 8)
    assert lake["rates"].count_rows(filter="name = 'monday'") == 8


def load_with_own_key(uri: str, meet: Meet) -> None:
    lake = conroi.connect(uri)
    meet()
    lake.run(
        lambda tx: tx["rates"].append([{"name": "monday", "rate": 1}]), idempotency_key=uuid.uuid4().hex, retries=20
    )


def test_storage_that_is_gone_for_good_leaves_it_open_and_the_key_settles_it(lake: conroi.Lake):
    """The put landed, its answer and every look after it are lost: an error of its own type, and no second load."""
    state = {"is_down": False}

    def go_down(_: Any) -> None:
        state["is_down"] = True
        raise StoreUnavailable("The line went dead (injected)")

    def wrap(objects: Any) -> Any:
        if not objects.root.endswith("__manifest"):
            return objects
        return _Down(objects, state, go_down)

    tx = connect_through(lake.uri, wrap).begin(idempotency_key="monday")
    tx["rates"].append([{"name": "monday", "rate": 4}])
    with pytest.raises(conroi.CommitStateUnknown):
        tx.commit()
    assert load(lake, "monday").was_done_before
    assert lake["rates"].count_rows(filter="name = 'monday'") == 1


class _Down(FaultyObjects):
    def __init__(self, inner: Any, state: dict[str, bool], go_down: Any) -> None:
        super().__init__(inner, [call_after(go_down, PUBLICATION, "_versions/*.manifest")])
        self._state = state

    def around(self, request: Any, call: Any) -> Any:
        if self._state["is_down"]:
            raise StoreUnavailable("The line is dead (injected)")
        return super().around(request, call)
