"""The checker of histories: for every anomaly a history made by hand that has it, and what it must not take for one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import conroi
from conroi.testing.history import Append, Operation, Outcome, Read, Recorder, Transaction, check, load_history

pytestmark = pytest.mark.contract("H1")


class Story:
    """A history written by hand; transactions overlap in time unless `after_all` is called between them."""

    def __init__(self) -> None:
        self.history: list[Transaction] = []
        self._now = 0

    def did(self, name: str, *operations: Operation, outcome: Outcome = "ok") -> Story:
        self.history.append(Transaction(name, operations, outcome, self._now, self._now + 100))
        return self

    def after_all(self) -> Story:
        self._now += 1000
        return self

    def kinds(self, isolation: str = "serializable") -> list[str]:
        return sorted(check(self.history, isolation).kinds)  # type: ignore[arg-type]


def a(register: str, element: int) -> Append:
    return Append(register, element)


def r(register: str, *elements: int) -> Read:
    return Read(register, elements)


def s(register: str, *elements: int) -> Read:
    return Read(register, elements, is_ordered=False)


FORBIDDEN = {
    "G0": Story()
    .did("t1", a("x", 1), a("y", 1))
    .did("t2", a("x", 2), a("y", 2))
    .did("x", r("x", 1, 2))
    .did("y", r("y", 2, 1)),
    "G1a": Story().did("t1", a("x", 1), outcome="fail").did("t2", r("x", 1)),
    "G1b": Story().did("t1", a("x", 1), a("x", 2)).did("t2", r("x", 1)),
    "G1b of a set": Story().did("t1", a("x", 1), a("x", 2)).did("t2", s("x", 2)).did("t3", s("x", 1)),
    "G1c": Story().did("t1", a("x", 1), r("y", 2)).did("t2", a("y", 2), r("x", 1)),
    "G1c of sets": Story().did("t1", a("x", 1), s("y", 2)).did("t2", a("y", 2), s("x", 1)),
    "G-single: read skew": Story().did("t1", a("x", 1), a("y", 1)).did("t2", r("x", 1), r("y")).did("t3", r("y", 1)),
    "G-single: read skew of sets": Story()
    .did("t1", a("x", 1), a("y", 1))
    .did("t2", s("x", 1), s("y"))
    .did("t3", s("y", 1)),
    "G-single: lost update": Story()
    .did("t1", r("x"), a("x", 1))
    .did("t2", r("x"), a("x", 2))
    .did("t3", r("x", 1, 2)),
    "G-single: a fractured unknown one": Story()
    .did("t1", a("x", 1), a("y", 1), outcome="info")
    .did("t2", r("x", 1), r("y"))
    .did("t3", r("y", 1)),
    "G-nonadjacent: long fork": Story()
    .did("t1", a("x", 1))
    .did("t2", a("y", 2))
    .did("t3", r("x", 1), r("y"))
    .did("t4", r("x"), r("y", 2))
    .did("t5", r("x", 1), r("y", 2)),
    "G-nonadjacent: read skew over layers of sets": Story()
    .did("t1", a("x", 1), a("y", 1))
    .did("t2", s("x", 1), s("y"))
    .did("t3", a("y", 3))
    .did("t4", s("y", 3))
    .did("t5", s("y", 1, 3)),
    "G-single-realtime: stale read": Story().did("t1", a("x", 1)).after_all().did("t2", r("x")).did("t3", r("x", 1)),
    "G-single-realtime: stale set": Story().did("t1", a("x", 1)).after_all().did("t2", s("x")).did("t3", s("x", 1)),
    "G1c-realtime": Story().did("t1", r("x", 2)).after_all().did("t2", a("x", 2)),
    "lost": Story().did("t1", a("x", 1)).after_all().did("t2", r("x")),
    "lost from a set": Story().did("t1", a("x", 1)).after_all().did("t2", s("x")),
    "duplicate": Story().did("t1", a("x", 1)).did("t2", r("x", 1, 1)),
    "duplicate in a set": Story().did("t1", a("x", 1)).did("t2", s("x", 1, 1)),
    "unwritten": Story().did("t1", r("x", 7)),
    "internal: own append": Story().did("t1", a("x", 1), r("x")),
    "internal: own append of a set": Story().did("t1", a("x", 1), s("x")),
    "internal: not repeatable": Story().did("t1", a("x", 1)).did("t2", r("x"), r("x", 1)),
    "internal: another one's append after ours": Story().did("t1", a("x", 1)).did("t2", a("x", 2), r("x", 2, 1)),
    "internal: before it was appended": Story().did("t1", r("x", 1), a("x", 1)),
    "internal: in one that failed": Story().did("t1", a("x", 1)).did("t2", r("x"), r("x", 1), outcome="fail"),
    "incompatible": Story().did("t1", a("x", 1)).did("t2", a("x", 2)).did("t3", r("x", 1)).did("t4", r("x", 2)),
    "incompatible sets": Story()
    .did("t1", a("x", 1))
    .did("t2", a("x", 2))
    .did("t3", s("x", 1))
    .did("t4", s("x", 2))
    .did("t5", s("x", 1, 2)),
}  # fmt: skip


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
@pytest.mark.parametrize("name", FORBIDDEN)
def test_each_anomaly_is_found_at_both_levels(name: str, isolation: str):
    kind = name.split(":")[0].split(" ")[0]
    assert kind in FORBIDDEN[name].kinds(isolation)


def test_cycles_have_the_name_of_their_strongest_kind():
    for name in ("G0", "G1c", "G-single: read skew", "G-single: lost update", "G-nonadjacent: long fork"):
        assert FORBIDDEN[name].kinds() == [name.split(":")[0]]


SKEW = Story().did("t1", r("x"), r("y"), a("y", 1)).did("t2", r("x"), r("y"), a("x", 2)).did("t3", r("x", 2), r("y", 1))
SKEW_OF_SETS = (
    Story()
    .did("t1", s("x"), s("y"), a("y", 1))
    .did("t2", s("x"), s("y"), a("x", 2))
    .did("t3", s("x", 2), s("y", 1))
)  # fmt: skip


@pytest.mark.parametrize("story", [SKEW, SKEW_OF_SETS])
def test_write_skew_is_an_anomaly_only_at_serializable(story: Story):
    assert story.kinds("serializable") == ["G2"]
    assert story.kinds("snapshot") == []
    assert check(story.history, "snapshot").write_skews == 1


def test_the_read_only_anomaly_of_snapshot_isolation_is_write_skew():
    """Fekete, O'Neil, O'Neil 2004: without the reader the two writers could be put in order."""
    story = (
        Story()
        .did("deposit", r("savings"), a("savings", 20))
        .did("withdraw", r("savings"), r("checking"), a("checking", 11))
        .did("look", r("savings", 20), r("checking"))
        .did("end", r("savings", 20), r("checking", 11))
    )
    assert (story.kinds("serializable"), story.kinds("snapshot")) == (["G2"], [])


def test_two_that_add_to_a_set_they_read_do_not_lose_an_update():
    """Rows added beside each other are no conflict of rows: write skew by predicate."""
    story = Story().did("t1", s("x"), a("x", 1)).did("t2", s("x"), a("x", 2)).did("t3", s("x", 1, 2))
    assert (story.kinds("serializable"), story.kinds("snapshot")) == (["G2"], [])


ALLOWED = {
    "one after the other": Story()
    .did("t1", r("x"), a("x", 1), r("x", 1))
    .after_all()
    .did("t2", r("x", 1), a("x", 2), a("x", 3), r("x", 1, 2, 3))
    .after_all()
    .did("t3", r("x", 1, 2, 3)),
    "an unknown one that landed": Story().did("t1", a("x", 1), outcome="info").did("t2", r("x", 1)),
    "an unknown one that did not": Story().did("t1", a("x", 1), outcome="info").after_all().did("t2", r("x")),
    "a failed one that is absent": Story().did("t1", a("x", 1), outcome="fail").after_all().did("t2", r("x")),
    "a failed one saw an older state": Story()
    .did("t1", a("x", 1))
    .did("t2", r("x"), a("x", 2), outcome="fail")
    .after_all()
    .did("t3", r("x", 1)),
    "concurrent readers see it or not": Story().did("t1", a("x", 1)).did("t2", r("x")).did("t3", r("x", 1)),
    "sets that grow": Story()
    .did("t1", a("x", 1))
    .did("t2", s("x", 1), a("x", 2))
    .did("t3", s("x", 2, 1), a("x", 3))
    .after_all()
    .did("t4", s("x", 3, 1, 2)),
    "an append that was not read": Story().did("t1", a("x", 1)),
}


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_right_is_left_alone(name: str, isolation: str):
    assert ALLOWED[name].kinds(isolation) == []


def test_what_is_not_known_is_counted():
    story = Story().did("t1", a("x", 1)).did("t2", a("y", 1), outcome="info").did("t3", r("y", 1))
    report = check(story.history)
    assert (report.unobserved, report.recovered, report.committed, report.tried, report.reads) == (1, 1, 3, 3, 1)
    assert str(report) == "3 of 3 transactions committed, 1 reads checked, no anomaly"


def test_an_element_that_two_append_makes_no_history():
    with pytest.raises(conroi.InvalidInputError, match="twice"):
        check(Story().did("t1", a("x", 1)).did("t2", a("x", 1)).history)
    with pytest.raises(conroi.InvalidInputError, match="Two transactions"):
        check(Story().did("t1").did("t1").history)


def test_a_long_history_is_checked_in_time():
    """A correct serial run of two thousand transactions, with reads of long lists and sets."""
    story = Story()
    for n in range(1_000):
        tail = n // 50
        xs, ys = range(tail * 50, n), range(tail * 50, n)
        story.did(f"w{n}", r(f"x{tail}", *xs), a(f"x{tail}", n), s(f"y{tail}", *ys), a(f"y{tail}", n)).after_all()
        story.did(f"r{n}", r(f"x{tail}", *xs, n), s(f"y{tail}", n, *ys)).after_all()
    assert check(story.history).anomalies == ()


def test_what_a_killed_process_was_doing_is_unknown(tmp_path: Path):
    first, second = Recorder(tmp_path / "1"), Recorder(tmp_path / "2")
    first.invoke("t1", [a("x", 1)], 10)
    first.complete("t1", "ok", [r("x"), a("x", 1)], 20, version=7)
    first.note(killed=1)
    second.invoke("t2", [a("x", 2)], 15)
    with (tmp_path / "2").open("a") as cut:
        cut.write('{"complete": "t2"')
    assert load_history([tmp_path / "1", tmp_path / "2"]) == [
        Transaction("t1", [Read("x", ()), a("x", 1)], "ok", 10, 20),
        Transaction("t2", [a("x", 2)], "info", 15, None),
    ]


class Database:
    """A database in memory, with transactions that overlap by chance: histories whose isolation is known."""

    def __init__(self, seed: int, isolation: str) -> None:
        self._chance = random.Random(seed)
        self._isolation = isolation
        self._states: list[dict[str, tuple[int, ...]]] = [{}]
        self._now = 0
        self._elements = 0

    def history(self, count: int) -> list[Transaction]:
        done: list[Transaction] = []
        running: list[Iterator[Transaction | None]] = []
        while len(done) < count:
            if len(running) < 4:
                running.append(self._transaction())
            one = self._chance.choice(running)
            ended = next(one)
            if ended is not None:
                done.append(ended)
                running.remove(one)
        names = [f"{kind}{number}" for kind in "xs" for number in range(3)]
        reads = [Read(name, self._states[-1].get(name, ()), is_ordered=name[0] == "x") for name in names]
        return [*done, Transaction("end", reads, "ok", self._tick(), self._tick())]

    def _tick(self) -> int:
        self._now += 1
        return self._now

    def _transaction(self) -> Iterator[Transaction | None]:
        """Registers called x… are lists, of which only one of two writers may commit; those called s… are sets."""
        invoked, base = self._tick(), len(self._states) - 1
        operations: list[Operation] = []
        own: dict[str, tuple[int, ...]] = {}
        for _ in range(self._chance.randint(1, 4)):
            yield None
            register = f"{self._chance.choice('xs')}{self._chance.randrange(3)}"
            seen = self._states[-1 if self._isolation == "read committed" else base].get(register, ())
            if self._chance.random() < 0.5:
                self._elements += 1
                own[register] = (*own.get(register, ()), self._elements)
                operations.append(Append(register, self._elements))
            else:
                both = (*seen, *own.get(register, ()))
                operations.append(Read(register, both, is_ordered=register[0] == "x"))
        yield None
        outcome: Outcome = "ok" if self._may_commit(base, operations) else "fail"
        if outcome == "ok" and own:
            newest = self._states[-1]
            self._states.append(newest | {r: (*newest.get(r, ()), *elements) for r, elements in own.items()})
        yield Transaction(f"t{invoked}", operations, outcome, invoked, self._tick())

    def _may_commit(self, base: int, operations: list[Operation]) -> bool:
        def moved(register: str) -> bool:
            return self._states[base].get(register, ()) != self._states[-1].get(register, ())

        written = {each.register for each in operations if isinstance(each, Append)}
        read = {each.register for each in operations if isinstance(each, Read)}
        if self._isolation == "serializable":
            return not any(map(moved, read))
        if self._isolation == "snapshot":
            return not any(moved(register) for register in written if register[0] == "x")
        return True


@pytest.mark.parametrize("seed", range(20))
def test_histories_of_a_model_are_as_isolated_as_the_model(seed: int):
    assert check(Database(seed, "serializable").history(150), "serializable").anomalies == ()
    snapshot = Database(seed, "snapshot").history(150)
    assert check(snapshot, "snapshot").anomalies == ()
    assert {"G2"} <= set(check(snapshot, "serializable").kinds) <= {"G2", "G2-realtime"}
    assert check(Database(seed, "read committed").history(150), "snapshot").anomalies
