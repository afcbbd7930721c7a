"""The next step of a random history, chosen from what the model's lake has now.

A step is a tuple of plain values: its kind, then names, rows and conditions. It can be printed, and done again in
another history, where a step that has no meaning (its table is not there) is left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

from tests.branches.histories.model import Branch, Table, World
from tests.branches.histories.values import POOLS, RETYPES, SIMPLE, Column

T = TypeVar("T")
Step = tuple[Any, ...]

TABLE_NAMES = ("a", "b", "c", "sales.a", "sales.d", "ops.e")
BRANCH_NAMES = ("dev", "next", "fix", "try")
TAG_NAMES = ("q1", "q2")
NAMESPACES = ("sales", "ops", "hr")
COLUMN_NAMES = ("v", "w", "x", "y", "z")
MODES = ("rows", "rows", "columns", "auto")
PREFERENCES = (None, None, None, "source", "source", "target", "target", "function")
MAX_BRANCHES, MAX_TABLES, MAX_ROWS = 4, 4, 12
LITERAL = (*SIMPLE, "f32", "f64")


class Picks(Protocol):
    """Where chance comes from: a seed, or Hypothesis."""

    def below(self, bound: int) -> int:
        """A number from 0 to bound - 1."""
        ...


class Seeded:
    """Chance by a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


def one_of(picks: Picks, among: Sequence[T]) -> T:
    return among[picks.below(len(among))]


def chance(picks: Picks, percent: int) -> bool:
    return picks.below(100) >= 100 - percent


# ---------------------------------------------------------------------------- values


def value_for(picks: Picks, column: Column, *, is_key: bool = False) -> Any:
    if is_key:
        pools: dict[str, Sequence[Any]] = {"i64": range(7), "i32": range(7), "str": "abcdef", "f64": POOLS["f64"]}
        return one_of(picks, pools[column.type])
    if column.nullable and picks.below(8) == 7:
        return None
    if column.type == "struct":
        return {child.name: value_for(picks, child) for child in column.children}
    return one_of(picks, POOLS[column.type])


def row_for(picks: Picks, table: Table) -> dict[str, Any]:
    return {each.name: value_for(picks, each, is_key=each.fid in table.key) for each in table.columns}


def rows_for(picks: Picks, table: Table) -> list[dict[str, Any]]:
    return [row_for(picks, table) for _ in range(1 + picks.below(3))]


def where_for(picks: Picks, table: Table) -> tuple[Any, ...] | None:
    """A condition: a column and values, or null, or NaN; None for all rows."""
    found = [column for column in table.columns if column.type in LITERAL]
    if not found or chance(picks, 5):
        return None
    keys = [column for column in found if column.fid in table.key]
    column = one_of(picks, keys if keys and chance(picks, 60) else found)
    if column.type in ("f32", "f64"):
        return (column.name, "nan") if chance(picks, 50) else (column.name, "in", (0.5,))
    if column.nullable and chance(picks, 10):
        return (column.name, "null")
    values = {value_for(picks, column, is_key=column.fid in table.key) for _ in range(1 + picks.below(2))}
    return (column.name, "in", tuple(sorted(values - {None}))) if values - {None} else (column.name, "null")


# ---------------------------------------------------------------------------- statements on one table


def statement(picks: Picks, table: Table) -> tuple[Any, ...] | None:
    kinds = ("append", "append", "upsert", "upsert", "update", "update", "delete", "overwrite", "replace")
    kind = one_of(picks, kinds[:7] if chance(picks, 85) else kinds)
    if kind in ("append", "overwrite"):
        rows = rows_for(picks, table)
        return ("delete", where_for(picks, table)) if len(table.rows) > MAX_ROWS else (kind, rows)
    if kind == "upsert":
        on = [table.by_fid(fid).name for fid in table.key] or [
            column.name for column in table.columns if column.type in SIMPLE
        ][:1]
        return (kind, rows_for(picks, table), tuple(on)) if on else None
    if kind == "delete":
        return (kind, where_for(picks, table))
    columns = [column for column in table.columns if column.type in LITERAL and column.fid not in table.key]
    if not columns:
        return None
    column = one_of(picks, columns)
    value = value_for(picks, column)
    if kind == "replace":
        return (kind, column.name, value)
    return (kind, where_for(picks, table), column.name, value, one_of(picks, MODES))


def new_columns(picks: Picks) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Name, type, nullability and inner fields of each column of a new table, and its key."""
    key = one_of(picks, ((), ("id",), ("id",), ("id", "region")))
    key_type = one_of(picks, ("i64", "i64", "str", "f64", "i32")) if key else one_of(picks, ("i64", "i32", "str"))
    columns = [("id", key_type, not key, ())]
    if len(key) > 1:
        columns.append(("region", "str", False, ()))
    for name in COLUMN_NAMES[: 1 + picks.below(3)]:
        columns.append(new_column(picks, name))
    return tuple(columns), key


def new_column(picks: Picks, name: str) -> tuple[Any, ...]:
    if chance(picks, 15):
        return (name, "struct", True, (("p", "i64"), ("q", "str"), ("r", "f64"))[: 1 + picks.below(3)])
    if chance(picks, 50):
        return (name, one_of(picks, ("i32", "i64", "str", "f64")), True, ())
    return (name, one_of(picks, tuple(POOLS)), True, ())


def table_data(picks: Picks, columns: tuple[Any, ...], key: tuple[str, ...]) -> list[dict[str, Any]]:
    made = [Column(n, name, type_, nullable, tuple(Column(0, inner, kind) for inner, kind in inside))
            for n, (name, type_, nullable, inside) in enumerate(columns)]  # fmt: skip
    return [
        {each.name: value_for(picks, each, is_key=each.name in key) for each in made} for _ in range(picks.below(5))
    ]


# ---------------------------------------------------------------------------- steps


class Generator:
    """Chooses steps."""

    def __init__(self, world: World, picks: Picks, without: Collection[str] = ()) -> None:
        self._world, self._picks = world, picks
        self._kinds = [(make, weight) for make, weight in KINDS if make.__name__ not in without]

    def step(self) -> Step | None:
        """The next one; None if what was chosen has no meaning now."""
        total = sum(weight for _, weight in self._kinds)
        left = self._picks.below(total)
        for make, weight in self._kinds:
            left -= weight
            if left < 0:
                return make(self)
        raise AssertionError

    def _branch(self) -> Branch:
        return one_of(self._picks, list(self._world.branches.values()))

    def _table(self) -> tuple[Branch, str, Table] | None:
        branch = self._branch()
        entries = list(branch.head.state.tables.values())
        if not entries:
            return None
        entry = one_of(self._picks, entries)
        return branch, entry.name, entry.table

    def rows(self) -> Step | None:
        found = self._table()
        made = found and statement(self._picks, found[2])
        return ("rows", found[0].name, found[1], made) if found and made else None

    def transaction(self) -> Step | None:
        branch = self._branch()
        entries = list(branch.head.state.tables.values())
        if not entries:
            return None
        done = list[tuple[str, tuple[Any, ...]]]()
        for _ in range(2 + self._picks.below(2)):
            entry = one_of(self._picks, entries)
            made = statement(self._picks, entry.table)
            if made and made[0] not in ("overwrite", "replace"):
                done.append((entry.name, made))
        return ("transaction", branch.name, tuple(done)) if done else None

    def add_column(self) -> Step | None:
        found = self._table()
        if found is None:
            return None
        branch, name, table = found
        new = one_of(self._picks, COLUMN_NAMES)
        how = one_of(self._picks, ("null", "literal", "copy"))
        if how == "null":
            return ("add_column", branch.name, name, how, new_column(self._picks, new))
        if how == "literal":
            return ("add_column", branch.name, name, how, (new, "i64", self._picks.below(3)))
        simple = [column.name for column in table.columns if column.type in SIMPLE]
        return ("add_column", branch.name, name, how, (new, one_of(self._picks, simple))) if simple else None

    def drop_column(self) -> Step | None:
        return self._on_column("drop_column")

    def rename_column(self) -> Step | None:
        return self._on_column("rename_column", lambda _: one_of(self._picks, COLUMN_NAMES))

    def retype(self) -> Step | None:
        def type_(column: Column) -> str | None:
            return one_of(self._picks, RETYPES[column.type]) if column.type in RETYPES else None

        return self._on_column("retype", type_)

    def null(self) -> Step | None:
        return self._on_column("null", lambda column: not column.nullable)

    def nested(self) -> Step | None:
        def inner(column: Column) -> tuple[str, str | None] | None:
            if column.type != "struct":
                return None
            child = one_of(self._picks, column.children)
            new = one_of(self._picks, ("p", "q", "r", "s"))
            return (child.name, None if chance(self._picks, 35) else new)

        return self._on_column("nested", inner, wanted="struct")

    def _on_column(
        self, kind: str, make: Callable[[Column], Any] | None = None, *, wanted: str | None = None
    ) -> Step | None:
        found = self._table()
        columns = [column for column in (found[2].columns if found else ()) if wanted in (None, column.type)]
        if found is None or not columns:
            return None
        column = one_of(self._picks, columns)
        if make is None:
            return (kind, found[0].name, found[1], column.name)
        what = make(column)
        return None if what is None else (kind, found[0].name, found[1], column.name, what)

    def declare_key(self) -> Step | None:
        return self._on_column("declare_key")

    def config(self) -> Step | None:
        found = self._table()
        value = one_of(self._picks, ("1", "2", "3", None))
        return ("config", found[0].name, found[1], one_of(self._picks, ("x.a", "x.b")), value) if found else None

    def metadata(self) -> Step | None:
        found = self._table()
        if found is None:
            return None
        where = one_of(self._picks, ("table", "schema", "field"))
        column = one_of(self._picks, found[2].columns).name if where == "field" else None
        value = one_of(self._picks, ("1", "2", "3", None))
        return ("metadata", found[0].name, found[1], where, column, one_of(self._picks, ("x.a", "x.b")), value)

    def create(self) -> Step | None:
        branch = self._branch()
        if len(branch.head.state.tables) >= MAX_TABLES:
            return None
        columns, key = new_columns(self._picks)
        data = table_data(self._picks, columns, key)
        name = one_of(self._picks, TABLE_NAMES)
        return ("create", branch.name, name, columns, key, data, chance(self._picks, 25))

    def drop(self) -> Step | None:
        found = self._table()
        return ("drop", found[0].name, found[1]) if found else None

    def rename(self) -> Step | None:
        found = self._table()
        return ("rename", found[0].name, found[1], one_of(self._picks, TABLE_NAMES)) if found else None

    def swap(self) -> Step | None:
        branch = self._branch()
        names = sorted(branch.head.state.names)
        if len(names) < 2:
            return None
        first = one_of(self._picks, names)
        return ("swap", branch.name, first, one_of(self._picks, [name for name in names if name != first]))

    def recreate(self) -> Step | None:
        found = self._table()
        if found is None:
            return None
        columns, key = new_columns(self._picks)
        data = table_data(self._picks, columns, key)
        return ("recreate", found[0].name, found[1], columns, key, data, chance(self._picks, 50))

    def namespace(self) -> Step:
        name = one_of(self._picks, NAMESPACES)
        return ("namespace", self._branch().name, name, chance(self._picks, 50))

    def create_branch(self) -> Step | None:
        free = [name for name in BRANCH_NAMES if name not in self._world.branches]
        if len(self._world.branches) >= MAX_BRANCHES or not free:
            return None
        parent = self._branch()
        name = one_of(self._picks, free)
        tags = sorted(self._world.tags)
        how = self._picks.below(4)
        if how == 0 and tags:
            return ("create_branch", name, parent.name, "tag", one_of(self._picks, tags))
        if how == 1:
            return ("create_branch", name, parent.name, "version", one_of(self._picks, sorted(parent.versions)))
        return ("create_branch", name, parent.name, "head", None)

    def delete_branch(self) -> Step | None:
        names = [name for name in self._world.branches if name != "main"]
        return ("delete_branch", one_of(self._picks, names), chance(self._picks, 30)) if names else None

    def rename_branch(self) -> Step | None:
        names = [name for name in self._world.branches if name != "main"]
        free = [name for name in BRANCH_NAMES if name not in self._world.branches]
        return ("rename_branch", one_of(self._picks, names), one_of(self._picks, free)) if names and free else None

    def tag(self) -> Step | None:
        name = one_of(self._picks, TAG_NAMES)
        return ("tag", self._branch().name, name)

    def merge(self) -> Step | None:
        return self._between("merge")

    def criss_cross(self) -> Step | None:
        return self._between("criss_cross")

    def _between(self, kind: str) -> Step | None:
        names = list(self._world.branches)
        if len(names) < 2:
            return None
        source = one_of(self._picks, names)
        target = one_of(self._picks, [name for name in names if name != source])
        return (kind, source, target, one_of(self._picks, PREFERENCES), self._picks.below(8))

    def compact(self) -> Step | None:
        found = self._table()
        return ("compact", found[0].name, found[1]) if found else None

    def index(self) -> Step | None:
        found = self._table()
        columns = [column.name for column in (found[2].columns if found else ()) if column.type in SIMPLE]
        return ("index", found[0].name, found[1], one_of(self._picks, columns)) if found and columns else None

    def collect(self) -> Step:
        return ("collect",)

    def refused(self) -> Step | None:
        found = self._table()
        return ("refused", found[0].name, found[1]) if found else None


KINDS: tuple[tuple[Callable[[Generator], Step | None], int], ...] = (
    (Generator.rows, 90),
    (Generator.transaction, 20),
    (Generator.add_column, 12),
    (Generator.drop_column, 8),
    (Generator.rename_column, 10),
    (Generator.retype, 14),
    (Generator.null, 6),
    (Generator.nested, 10),
    (Generator.declare_key, 5),
    (Generator.config, 8),
    (Generator.metadata, 10),
    (Generator.create, 14),
    (Generator.drop, 7),
    (Generator.rename, 14),
    (Generator.swap, 5),
    (Generator.recreate, 7),
    (Generator.namespace, 6),
    (Generator.create_branch, 16),
    (Generator.delete_branch, 5),
    (Generator.rename_branch, 3),
    (Generator.tag, 6),
    (Generator.merge, 70),
    (Generator.criss_cross, 10),
    (Generator.compact, 8),
    (Generator.index, 6),
    (Generator.collect, 4),
    (Generator.refused, 3),
)
