"""List-append transactions over the rows of four tables, chosen by chance from a seed.

A register is a list in one row (`cells`, and `rare`, which seldom changes), the rows of one number in the order of a
sequence (`log`, where the key makes two that append at the same place conflict), or the rows of one number as a set
(`bag`, to which all may add).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

import conroi
from conroi.reader import Reader
from conroi.testing.history import Append, Operation, Read
from conroi.writer import Writer

CELLS, LOG, BAG, RARE = "cells", "log", "bag", "rare"
BUSY = (CELLS, LOG, BAG)
TABLES = (*BUSY, RARE)
REGISTERS = {CELLS: range(6), LOG: range(4), BAG: range(4), RARE: range(3)}
OF_BRANCHES = 100
"""The register that only merged branches append to, in each table."""
PLACES = 1_000_000
SCHEMAS = {
    CELLS: pa.schema(
        [pa.field("reg", pa.int64(), nullable=False), pa.field("items", pa.string()), pa.field("filler", pa.string())]
    ),
    LOG: pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("element", pa.int64()), pa.field("filler", pa.string())]
    ),
    BAG: pa.schema([("reg", pa.int64()), ("element", pa.int64()), ("filler", pa.string())]),
}
SCHEMAS[RARE] = SCHEMAS[CELLS]
KEYS = {CELLS: "reg", LOG: "id", BAG: None, RARE: "reg"}
IN_CELLS = (CELLS, RARE)


class Broken(Exception):
    """What was read contradicts itself."""


def make(lake: conroi.Lake) -> None:
    """The tables, empty."""
    with lake.begin("made") as tx:
        for name in TABLES:
            tx.create_table(name, SCHEMAS[name], key=KEYS[name], stable_row_ids=name == BAG)
        for name in IN_CELLS:
            rows = [{"reg": number, "items": "", "filler": "new"} for number in (*REGISTERS[name], OF_BRANCHES)]
            tx[name].append(pa.Table.from_pylist(rows, SCHEMAS[name]))


def register(table: str, number: int) -> str:
    return f"{table}.{number}"


# ------------------------------------------------------------------------------ reading


def read_table(table: Reader, name: str, numbers: Sequence[int] | None = None) -> dict[int, list[int]]:
    """The registers of a table; with `numbers` only these, by a filter, which may use an index."""
    data = table.to_arrow(SCHEMAS[name].names[:2], filter=None if numbers is None else _filter(name, numbers))
    found = data.to_pylist()
    lists: dict[int, list[int]] = {number: [] for number in numbers or (*REGISTERS[name], OF_BRANCHES)}
    if name in IN_CELLS:
        if len({row["reg"] for row in found}) != len(found):
            raise Broken(f"two rows of {name} have one key: {found}")
        return lists | {row["reg"]: [int(item) for item in row["items"].split()] for row in found}
    if name == BAG:
        for row in found:
            lists.setdefault(row["reg"], []).append(row["element"])
        return lists
    places: dict[int, list[int]] = defaultdict(list)
    for row in sorted(found, key=lambda row: row["id"]):
        number, place = divmod(row["id"], PLACES)
        places[number].append(place)
        lists.setdefault(number, []).append(row["element"])
    for number, taken in places.items():
        if taken != list(range(len(taken))):
            raise Broken(f"log {number} has the places {taken}")
    return lists


def _filter(name: str, numbers: Sequence[int]) -> str:
    if name == LOG:
        return " or ".join(f"(id >= {number * PLACES} and id < {(number + 1) * PLACES})" for number in numbers)
    return f"reg in ({', '.join(map(str, numbers))})"


def as_reads(name: str, lists: dict[int, list[int]]) -> Iterator[Read]:
    for number, elements in sorted(lists.items()):
        yield Read(register(name, number), tuple(elements), is_ordered=name != BAG)


# ------------------------------------------------------------------------------ choosing


@dataclass(frozen=True)
class Step:
    """One statement, or a read and the statement that depends on it."""

    table: str
    action: str
    number: int
    element: int = 0
    """What is appended, or which own row is touched."""

    @property
    def append(self) -> Append | None:
        is_append = self.action not in ("read", "scan", "touch", "move")
        return Append(register(self.table, self.number), self.element) if is_append else None


ACTIONS = {
    CELLS: {"read": 3, "scan": 1, "update": 2, "write": 2, "merge": 2, "replace": 1},
    LOG: {"read": 3, "scan": 1, "append": 3, "merge": 2},
    BAG: {"read": 3, "scan": 1, "append": 4, "merge": 1, "touch": 1, "move": 1},
    RARE: {"read": 1, "update": 1, "write": 1, "merge": 1},
}


@dataclass
class Choices:
    """What one process does next: the same for the same seed."""

    chance: random.Random
    first_element: int
    own: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Register and element of own rows of the bag that are known to be there."""
    _used: int = 0

    def element(self) -> int:
        self._used += 1
        return self.first_element + self._used

    def steps(self) -> list[Step]:
        tables: list[str] = self.chance.sample(BUSY, self.chance.choices([1, 2, 3], [2, 4, 3])[0])
        if self.chance.random() < 0.05:
            tables.append(RARE)
        steps = [self._step(name) for name in tables for _ in range(self.chance.choices([1, 2, 3], [5, 3, 1])[0])]
        if self.chance.random() < 0.3:
            seen = self.chance.choice(steps)
            steps.append(Step(seen.table, "read", seen.number))
        return steps

    def reading(self) -> list[Step]:
        """For one that only reads."""
        tables = self.chance.sample(TABLES, self.chance.randint(2, 4))
        return [Step(name, "scan" if self.chance.random() < 0.7 else "read", self._number(name)) for name in tables]

    def verb(self) -> Step:
        """For a verb outside of transactions."""
        name = self.chance.choice([CELLS, BAG])
        action = {CELLS: "update", BAG: "append"}[name]
        return Step(name, action, self._number(name), self.element())

    def _number(self, name: str) -> int:
        return self.chance.choice(REGISTERS[name])

    def _step(self, name: str) -> Step:
        actions = ACTIONS[name]
        action = self.chance.choices(list(actions), list(actions.values()))[0]
        number = self._number(name)
        if action in ("touch", "move"):
            if not self.own:
                return Step(name, "read", number)
            number, element = self.chance.choice(self.own)
            return Step(name, action, number, element)
        return Step(name, action, number, 0 if action in ("read", "scan") else self.element())


# ------------------------------------------------------------------------------ doing

Opener = Callable[[str], Writer]


def do(tables: Opener, step: Step, done: list[Operation]) -> None:
    """One step in a transaction, or by verbs of the lake; what it did and saw is added to `done`."""
    table = tables(step.table)
    if step.action == "scan":
        done += as_reads(step.table, read_table(table, step.table))
        return
    if step.action in ("read", "write", "replace") or (step.action in ("append", "merge") and step.table != BAG):
        lists = read_table(table, step.table, [step.number])
        done += as_reads(step.table, lists)
        _write(table, step, lists[step.number])
    else:
        _write(table, step, [])
    if step.append is not None:
        done.append(step.append)


def _write(table: Writer, step: Step, there: list[int]) -> None:
    filler = f"{step.action} {step.element}"
    if step.action in ("touch", "move"):
        where = f"reg = {step.number} and element = {step.element}"
        count = table.count_rows(where)
        if count != 1:
            raise Broken(f"an own row, {where}, is there {count} times")
        if step.action == "touch":
            table.update({"filler": f"'{filler}'"}, where)
            return
        table.delete(where)
    if step.table in IN_CELLS:
        items = " ".join(map(str, [*there, step.element]))
        row = {"reg": step.number, "items": items, "filler": filler}
        if step.action == "update":
            table.update({"items": f"concat(items, ' {step.element}')"}, f"reg = {step.number}")
        elif step.action == "write":
            table.update({"items": f"'{items}'", "filler": f"'{filler}'"}, f"reg = {step.number}")
        elif step.action == "replace":
            table.delete(f"reg = {step.number}")
            table.append(_rows(step.table, row))
    elif step.table == LOG:
        row = {"id": step.number * PLACES + len(there), "element": step.element, "filler": filler}
    else:
        row = {"reg": step.number, "element": step.element, "filler": filler}
    if step.action == "merge":
        keys = ["reg", "element"] if step.table == BAG else [str(KEYS[step.table])]
        merge = table.merge(_rows(step.table, row), on=keys)
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    elif step.action in ("append", "move"):
        table.append(_rows(step.table, row))


def _rows(name: str, row: Mapping[str, object]) -> pa.Table:
    return pa.Table.from_pylist([dict(row)], SCHEMAS[name])
