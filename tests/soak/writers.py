"""Processes of both kinds that write one table, and keep books of what they were told succeeded.

Each process writes rows of its own, so that it knows what must become of them; and all add to the same few counters.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import lance
import pyarrow as pa

import conroi
from tests.support.together import Meet

COUNTERS = 4
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64()), pa.field("who", pa.string())]
)
REFUSALS = ("concurrent writers", "commit conflict", "incompatible transaction")


@dataclass(frozen=True)
class Writer:
    """One process, in plain values."""

    root: str
    number: int
    seed: int
    steps: int | None = None
    seconds: float | None = None
    is_pylance: bool = False
    without_rebase: bool = False


@dataclass
class Books:
    """What one process knows: its rows, how much it added to the counters, and which version it made by what."""

    rows: dict[int, int] = field(default_factory=dict[int, int])
    added: Counter[int] = field(default_factory=Counter[int])
    versions: dict[int, str] = field(default_factory=dict[int, str])
    done: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])


class Refused(Exception):
    """The change was not made, because of a conflict."""


class Hand(Protocol):
    """The verbs, by one library or the other; each returns the version that it made, or raises Refused."""

    def append(self, rows: pa.Table) -> int: ...
    def delete(self, where: str) -> int: ...
    def update(self, values: dict[str, str], where: str) -> int: ...
    def merge(self, rows: pa.Table) -> int: ...
    def compact(self) -> int: ...
    def index(self) -> int: ...
    def configure(self, key: str, value: str) -> int: ...


class ByConroi:
    def __init__(self, root: str) -> None:
        self.table = conroi.open_table(root)

    def _did(self, work: Callable[[conroi.Table], conroi.Table]) -> int:
        try:
            self.table = work(self.table)
        except conroi.ConflictError as error:
            raise Refused(str(error)) from error
        return self.table.version

    def append(self, rows: pa.Table) -> int:
        return self._did(lambda table: table.append(rows))

    def delete(self, where: str) -> int:
        return self._did(lambda table: table.delete(where))

    def update(self, values: dict[str, str], where: str) -> int:
        return self._did(lambda table: table.update(values, where))

    def merge(self, rows: pa.Table) -> int:
        return self._did(
            lambda table: (
                table.merge(rows, on="id").when_matched_update_all().when_not_matched_insert_all().execute().table
            )
        )

    def compact(self) -> int:
        return self._did(lambda table: table.compact())

    def index(self) -> int:
        return self._did(lambda table: table.create_index("n", "BTREE", name="by_n", replace=True))

    def configure(self, key: str, value: str) -> int:
        return self._did(lambda table: table.set_config({key: value}))


class ByPylance:
    def __init__(self, root: str) -> None:
        self.root = root

    def _did(self, work: Callable[[lance.LanceDataset], Any]) -> int:
        dataset = lance.dataset(self.root)
        try:
            made = work(dataset)
        except (OSError, RuntimeError, ValueError) as error:
            if not any(words in str(error).lower() for words in REFUSALS):
                raise
            raise Refused(str(error)) from error
        return (made if isinstance(made, lance.LanceDataset) else dataset).version

    def append(self, rows: pa.Table) -> int:
        return self._did(lambda dataset: lance.write_dataset(rows, dataset, mode="append"))

    def delete(self, where: str) -> int:
        return self._did(lambda dataset: dataset.delete(where))

    def update(self, values: dict[str, str], where: str) -> int:
        return self._did(lambda dataset: dataset.update(values, where))

    def merge(self, rows: pa.Table) -> int:
        return self._did(
            lambda dataset: (
                dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)
            )
        )

    def compact(self) -> int:
        return self._did(lambda dataset: dataset.optimize.compact_files())

    def index(self) -> int:
        return self._did(lambda dataset: dataset.create_scalar_index("n", "BTREE", name="by_n", replace=True))

    def configure(self, key: str, value: str) -> int:
        return self._did(lambda dataset: dataset.update_config({key: value}))


def write(writer: Writer, meet: Meet) -> Books:
    """Change rows of one's own and the common counters, by chance, until it is time to stop."""
    hand: Hand = ByPylance(writer.root) if writer.is_pylance else ByConroi(writer.root)
    if writer.without_rebase:
        _forget_to_merge_deletions()
    day = _Day(writer, hand)
    meet()
    started = time.monotonic()
    step = 0
    while step < (writer.steps or 1 << 60) and time.monotonic() - started < (writer.seconds or 1e9):
        day.do_something()
        step += 1
    return day.books


def _forget_to_merge_deletions() -> None:
    """For the negative control: our deletion vectors go in as they are, without those of concurrent commits."""
    from conroi.conflicts.rebase import Merged, Rebase
    from conroi.operations import Delete, Update

    merge = Rebase.merge

    def as_it_was(self: Rebase, head: Any, vectors: Any) -> Merged:
        if not isinstance(self.staged.operation, Delete | Update):
            return merge(self, head, vectors)
        return Merged(self.verdict, head.version, with_files=lambda _files: self.staged.operation)

    Rebase.merge = as_it_was  # type: ignore[method-assign,assignment]


class _Day:
    """What one process does, and its books."""

    def __init__(self, writer: Writer, hand: Hand) -> None:
        self.hand = hand
        self.books = Books()
        self.chance = random.Random(f"{writer.seed} {writer.number}")
        self.who = f"{'pylance' if writer.is_pylance else 'conroi'} {writer.number}"
        self.next_id = (writer.number + 1) * 1_000_000
        verbs = {self.append: 5, self.delete: 3, self.update: 4, self.merge: 4, self.add: 5, self.compact: 1}
        self.verbs = {**verbs, self.index: 0.5, self.configure: 0.5}

    def do_something(self) -> None:
        (verb,) = self.chance.choices(list(self.verbs), list(self.verbs.values()))
        name = verb.__name__
        try:
            version = verb()
        except Refused:
            self.books.refused[name] += 1
            return
        if version is not None:
            self.books.done[name] += 1

    def _rows(self, ids: list[int], n: int) -> pa.Table:
        return pa.table({"id": ids, "n": [n] * len(ids), "who": [self.who] * len(ids)}, schema=SCHEMA)

    def _new(self, count: int) -> list[int]:
        ids = list(range(self.next_id, self.next_id + count))
        self.next_id += count  # also if it fails: an id is never tried twice
        return ids

    def _some(self) -> list[int]:
        own = sorted(self.books.rows)
        return self.chance.sample(own, min(len(own), self.chance.randint(1, 4)))

    def _made(self, version: int, operation: str) -> int:
        assert version not in self.books.versions, f"version {version} was made twice"
        self.books.versions[version] = operation
        return version

    def append(self) -> int:
        ids = self._new(self.chance.randint(1, 5))
        version = self._made(self.hand.append(self._rows(ids, 0)), "Append")
        self.books.rows.update(dict.fromkeys(ids, 0))
        return version

    def delete(self) -> int | None:
        ids = self._some()
        if not ids:
            return None
        version = self._made(self.hand.delete(f"id in {_listed(ids)}"), "Delete")
        for key in ids:
            del self.books.rows[key]
        return version

    def update(self) -> int | None:
        ids = self._some()
        if not ids:
            return None
        version = self._made(self.hand.update({"n": "n + 1"}, f"id in {_listed(ids)}"), "Update")
        for key in ids:
            self.books.rows[key] += 1
        return version

    def merge(self) -> int:
        ids = [*self._some(), *self._new(self.chance.randint(1, 3))]
        value = self.chance.randrange(1000)
        version = self._made(self.hand.merge(self._rows(ids, value)), "Update")
        self.books.rows.update(dict.fromkeys(ids, value))
        return version

    def add(self) -> int:
        counter = self.chance.randrange(COUNTERS)
        version = self._made(self.hand.update({"n": "n + 1"}, f"id = {counter}"), "Update")
        self.books.added[counter] += 1
        return version

    def compact(self) -> int:
        return self.hand.compact()

    def index(self) -> int:
        return self._made(self.hand.index(), "CreateIndex")

    def configure(self) -> int:
        return self._made(self.hand.configure(f"by {self.who}", str(self.next_id)), "UpdateConfig")


def _listed(ids: list[int]) -> str:
    return f"({', '.join(map(str, ids))})"
