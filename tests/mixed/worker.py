"""One client of the lake in a process of its own; lancedb of any release, by the interpreter that runs this.

    python -m tests.mixed.worker LAKE FOLDER CLIENT OWNER SEED

It imports everything, waits for FOLDER/go, and forks the process that works until FOLDER/stop is there; that process
may be killed, its id is in FOLDER/CLIENT.pid. Every client changes only rows of its own: ids from OWNER * 10**9 on in
`t`, the pair and `p`, and 20 keys from OWNER * 1000 on in `k`.
"""

from __future__ import annotations

import importlib
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.mixed.journal import Effect, Journal, Outcome, path_of

NAMESPACE = "conroi.catalog.namespace.ConroiNamespace"
KEYS = 20
Work = Callable[[], list[str] | None]
Planned = tuple[str, tuple[Effect, ...], Work]


def rows(*effects: Effect) -> pa.Table:
    """The rows that these effects put."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
    return pa.table({"id": [each.id for each in effects], "v": [each.value for each in effects]}, schema=schema)


def some(effects: tuple[Effect, ...]) -> str:
    return "id in ({})".format(", ".join(str(each.id) for each in effects))


class Client:
    """Plans operations by chance; subclasses carry them out."""

    def __init__(self, lake: str, owner: int, instance: int, chance: random.Random) -> None:
        self.lake = lake
        self.chance = chance
        self.first_key = owner * 1000
        self.next_id = owner * 10**9 + instance * 10**5
        self.mark = f"{owner}.{instance}"
        self.count = 0
        self.alive: list[int] = []
        """Rows that this process may have in its table of appends."""

    def new_rows(self, *tables: str) -> tuple[Effect, ...]:
        ids = range(self.next_id, self.next_id + self.chance.randint(1, 3))
        self.next_id = ids.stop
        self.alive.extend(ids)
        return tuple(Effect(table, "put", each, self.value()) for table in tables for each in ids)

    def old_rows(self, *tables: str) -> tuple[Effect, ...]:
        ids = [self.alive.pop(self.chance.randrange(len(self.alive))) for _ in range(min(2, len(self.alive)))]
        return tuple(Effect(table, "remove", each) for table in tables for each in ids)

    def keys(self, act: Any) -> tuple[Effect, ...]:
        ids = self.chance.sample(range(self.first_key, self.first_key + KEYS), 2)
        return tuple(Effect("k", act, each, "" if act == "remove" else self.value()) for each in ids)

    def value(self) -> str:
        return f"{self.mark}.{self.count}"

    def plan(self) -> Planned:
        """The operations that all kinds of clients with single verbs have."""
        self.count += 1
        turn = self.chance.random()
        if turn < 0.6 or not self.alive:
            effects = self.new_rows("t")
            return "append", effects, lambda: self.append("t", rows(*effects))
        if turn < 0.7:
            effects = self.old_rows("t")
            return "delete", effects, lambda: self.delete("t", some(effects))
        if turn < 0.85:
            effects = self.keys("put")
            return "upsert", effects, lambda: self.upsert("k", rows(*effects))
        if turn < 0.93:
            effects = self.keys("update")
            return "update", effects, lambda: self.update("k", self.value(), some(effects))
        if turn < 0.98:
            effects = self.keys("remove")
            return "delete key", effects, lambda: self.delete("k", some(effects))
        return "optimize", (), self.optimize

    def append(self, table: str, data: pa.Table) -> None:
        raise NotImplementedError

    def delete(self, table: str, where: str) -> None:
        raise NotImplementedError

    def upsert(self, table: str, data: pa.Table) -> None:
        raise NotImplementedError

    def update(self, table: str, value: str, where: str) -> None:
        raise NotImplementedError

    def optimize(self) -> None:
        raise NotImplementedError


class LanceDb(Client):
    """lancedb through the namespace."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        import lancedb

        self.connection = lancedb.connect(
            namespace_client_impl=NAMESPACE, namespace_client_properties={"root": self.lake}
        )

    def open(self, table: str) -> Any:
        return self.connection.open_table(table)

    def append(self, table: str, data: pa.Table) -> None:
        self.open(table).add(data)

    def delete(self, table: str, where: str) -> None:
        self.open(table).delete(where)

    def upsert(self, table: str, data: pa.Table) -> None:
        self.open(table).merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(data)

    def update(self, table: str, value: str, where: str) -> None:
        self.open(table).update(where=where, values={"v": value})

    def optimize(self) -> None:
        self.open("t").optimize(cleanup_older_than=timedelta(days=36500))


class Pylance(Client):
    """pylance through the namespace."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        import lance_namespace

        self.namespace = lance_namespace.connect(NAMESPACE, {"root": self.lake})

    def open(self, table: str) -> Any:
        import lance

        return lance.dataset(namespace_client=self.namespace, table_id=[table])

    def append(self, table: str, data: pa.Table) -> None:
        self.open(table).insert(data)

    def delete(self, table: str, where: str) -> None:
        self.open(table).delete(where)

    def upsert(self, table: str, data: pa.Table) -> None:
        self.open(table).merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(data)

    def update(self, table: str, value: str, where: str) -> None:
        self.open(table).update({"v": f"'{value}'"}, where=where)

    def optimize(self) -> None:
        self.open("t").optimize.compact_files()


class ByPath(Client):
    """pylance by path: reads what the others write, and writes one table that only it writes."""

    def plan(self) -> Planned:
        self.count += 1
        time.sleep(self.chance.uniform(0.1, 0.5))  # alone on its table, it would take the cores from the others
        if self.chance.random() < 0.5:
            return "read by path", (), self.read
        if self.chance.random() < 0.8 or not self.alive:
            effects = self.new_rows("p")
            return "append by path", effects, lambda: self.append("p", rows(*effects))
        effects = self.old_rows("p")
        return "delete by path", effects, lambda: self.delete("p", some(effects))

    def open(self, table: str) -> Any:
        import lance

        return lance.dataset(f"{self.lake}/{table}.lance")

    def append(self, table: str, data: pa.Table) -> None:
        self.open(table).insert(data)

    def delete(self, table: str, where: str) -> None:
        self.open(table).delete(where)

    def read(self) -> list[str]:
        problems: list[str] = []
        for table in ("t", "k"):
            ids = self.open(table).to_table(columns=["id"])["id"].to_pylist()
            if len(ids) != len(set(ids)):
                problems.append(f"{table} by path has an id twice")
        return problems


class Verbs(Client):
    """conroi, one verb at a time."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        import conroi

        self.tables = conroi.connect(self.lake)

    def append(self, table: str, data: pa.Table) -> None:
        self.tables[table].append(data)

    def delete(self, table: str, where: str) -> None:
        self.tables[table].delete(where)

    def upsert(self, table: str, data: pa.Table) -> None:
        merge = self.tables[table].merge(data, on="id")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def update(self, table: str, value: str, where: str) -> None:
        self.tables[table].update({"v": f"'{value}'"}, where=where)

    def optimize(self) -> None:
        self.tables["k"].optimize_indices()


class Transactions(Verbs):
    """conroi transactions over a pair of tables, a third table with them now and then."""

    def plan(self) -> Planned:
        self.count += 1
        turn = self.chance.random()
        if turn < 0.5 or not self.alive:
            effects = self.new_rows("a", "b")
        elif turn < 0.7:
            effects = self.new_rows("a", "b", "t")
        elif turn < 0.85:
            effects = tuple(
                Effect(table, "put", each, self.value())
                for each in self.chance.sample(self.alive, 1)
                for table in ("a", "b")
            )
            return "transaction, upsert", effects, lambda: self.change_all(effects)
        else:
            effects = self.old_rows("a", "b")
            return "transaction, delete", effects, lambda: self.change_all(effects)
        return "transaction, append", effects, lambda: self.change_all(effects, is_new=True)

    def change_all(self, effects: tuple[Effect, ...], *, is_new: bool = False) -> None:
        with self.tables.begin() as tx:
            for table in dict.fromkeys(each.table for each in effects):
                mine = tuple(each for each in effects if each.table == table)
                if is_new:
                    tx[table].append(rows(*mine))
                elif mine[0].act == "remove":
                    tx[table].delete(some(mine))
                else:
                    merge = tx[table].merge(rows(*mine), on="id")
                    merge.when_matched_update_all().when_not_matched_insert_all().execute()


class Compactor(Verbs):
    """conroi's compaction of all tables, at its own pace."""

    def plan(self) -> Planned:
        self.count += 1
        time.sleep(self.chance.uniform(0.2, 1.0))
        table = self.chance.choice(("t", "t", "k", "a", "b"))
        return f"compact {table}", (), lambda: self.compact(table)

    def compact(self, table: str) -> None:
        self.tables[table].compact()


KINDS: dict[str, type[Client]] = {
    "lancedb": LanceDb,
    "pylance": Pylance,
    "path": ByPath,
    "verbs": Verbs,
    "transactions": Transactions,
    "compactor": Compactor,
}
"""By the first part of a client's name."""


def judged(error: Exception) -> Outcome:
    """What an error says about its operation: refused means that nothing was committed."""
    import conroi

    if isinstance(error, conroi.ConroiError):
        return "unknown" if isinstance(error, conroi.CommitStateUnknown) else "refused"
    text = str(error).lower()
    if "unknown" in text:
        return "unknown"
    refusals = ("conflict", "too many concurrent writers", "concurrent", "split of indexed and non-indexed")
    return "refused" if any(each in text for each in refusals) else "unknown"


def work(lake: str, folder: Path, client: str, instance: int, owner: int, seed: str) -> None:
    """One operation after the other, until the run ends or this process is killed."""
    chance = random.Random(f"{seed} {client} {instance}")
    me = KINDS[client.split("-")[0]](lake, owner, instance, chance)
    journal = Journal(path_of(folder, client, instance))
    while not (folder / "stop").exists():
        what, effects, operation = me.plan()
        journal.intent(what, effects)
        started = time.monotonic()
        outcome: Outcome = "ok"
        problems, error = None, ""
        try:
            problems = operation()
        except Exception as raised:  # noqa: BLE001 (the oracle judges it)
            outcome, error = judged(raised), f"{type(raised).__name__}: {raised}"[:600]
        journal.outcome(outcome, error, time.monotonic() - started, problems or [])


def main(arguments: list[str]) -> int:
    """Import everything, and fork a process that works; one more whenever it was killed."""
    lake, folder, client, owner, seed = arguments
    place = Path(folder)
    for module in (
        "conroi",
        "conroi.catalog.namespace",
        "lance",
        *(["lancedb"] if client.startswith("lancedb") else []),
    ):
        importlib.import_module(module)
    (place / f"{client}.ready").touch()
    while not (place / "go").exists():
        time.sleep(0.02)
    instance = 0
    while not (place / "stop").exists():
        instance += 1
        child = os.fork()
        if child == 0:
            try:
                work(lake, place, client, instance, int(owner), seed)
            except BaseException:  # noqa: BLE001 (a forked process must not go on as its parent)
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        (place / f"{client}.pid").write_text(str(child))
        if os.waitpid(child, 0)[1] not in (0, signal.SIGKILL):
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
