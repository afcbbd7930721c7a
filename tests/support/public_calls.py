"""The public calls, found by looking: the functions of `conroi.__all__`, and the methods of all that they lead to."""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import conroi
from conroi.export.clickhouse_engine import parse
from conroi.export.clickhouse_runs import TABLE as JOURNAL
from conroi.format import lance_pb2 as pb

ROWS = [{"id": 1, "v": "a", "n": 1.5}, {"id": 2, "v": "b", "n": 2.5}]
LOWER_LAYER = {"catalog", "pinned", "files_at", "manifest", "environment", "protection", "run", "source", "wire"}
"""What is public for conroi's own parts only."""
VALUES = {
    "branch", "tag", "commit", "lake_commit", "diff", "lake_merge", "diagnosis", "expired", "collected", "naming",
    "transaction",
}  # fmt: skip
"""Results, which do not change when the world does."""
KEPT_FOLDERS = {"data", "_transactions", "_deletions", "_indices"}
"""Files that no version names may stay in these after a refused call; collection removes them."""
CLAIM = "/_conroi/created"
"""Marks the folder of a table that is being created, so that collection removes it with its files if the creation fails
(test_mistakes.py shows that)."""


CLICKHOUSE = "ch"
"""The folder of the ClickHouse in this process to which is exported."""


def _exported(folder: Path) -> dict[str, tuple[object, ...]]:
    """The rows of the tables there, without the journal of exports. An export creates its table before it reads the
    stream, so that other workers can wait for its lock: it stays, empty."""
    asked = f"SELECT name, total_rows FROM system.tables WHERE database = 'db' AND name != '{JOURNAL}'"
    with closing(parse(f"chdb://{folder}/db/t").engine()) as engine:
        return {f"{CLICKHOUSE}/{row[0]}": (row[1],) for row in engine.ask(asked) if row[1] not in (0, "0")}


@dataclass
class World:
    """A lake with one of everything, in a folder that can be brought back."""

    folder: Path
    objects: dict[str, Any] = field(default_factory=dict[str, Any])
    _calls: dict[str, Callable[..., Any]] | None = None

    def open(self) -> None:
        """All handles anew; what is only a value is made once."""
        lake = conroi.connect(self.folder / "lake")
        alone = conroi.open_table(self.folder / "alone.lance")
        merge = lake["t"].merge(ROWS, on="id").when_matched_update_all()
        values = {name: self.objects[name] for name in VALUES & self.objects.keys()} or {
            "branch": lake.branches.get("dev"),
            "tag": lake.tags.get("first"),
            "commit": alone.history()[0],
            "lake_commit": lake.history()[0],
            "diff": lake.diff(1, 2),
            "lake_merge": lake.merge("dev", dry_run=True),
            "diagnosis": lake.doctor(),
            "expired": lake.expire(),
            "collected": lake.gc(),
            "naming": alone.naming,
            "transaction": conroi.LanceTransaction(pb.Transaction()),
        }
        self.objects = {
            "conroi": conroi,
            "export": conroi.export,
            "lake": lake,
            "past": lake.at(1),
            "dev": lake.branch("dev"),
            "table": lake["t"],
            "alone": alone,
            "merge": merge,
            "lease": lake.at(1, keep="1h").lease,
            "job": lake.job("j"),
            "lock": lake.insert_lock("t"),
            "branches": lake.branches,
            "lake_tags": lake.tags,
            "tags": alone.tags,
            **values,
            "lease_info": lake.leases()[0],
        }
        self.begin()

    def begin(self) -> None:
        """New transactions and a new query, which nothing outside of this process sees."""
        self.end()
        lake, alone = self.objects["lake"], self.objects["alone"]
        self.objects |= {"tx": lake.begin(), "staged": lake.begin()["t"], "table_tx": alone.begin()}
        self.objects["query"] = lake.query("SELECT * FROM t")
        self._calls = None

    def end(self) -> None:
        """Roll back what was begun."""
        for name in ("tx", "staged", "table_tx"):
            with suppress(Exception):
                self.objects[name].rollback()

    def call(self, name: str) -> Callable[..., Any]:
        """A public call by its name."""
        if self._calls is None:
            self._calls = dict(self.calls())
        return self._calls[name]

    def calls(self) -> Iterator[tuple[str, Callable[..., Any]]]:
        """Every public call, by name."""
        for owner, of in self.objects.items():
            names = getattr(of, "__all__", None) or [name for name in dir(of) if not name.startswith("_")]
            for name in sorted(set(names) - LOWER_LAYER):
                member = inspect.getattr_static(of, name, None)
                if isinstance(member, property):
                    continue
                call = getattr(of, name)
                if callable(call) and not inspect.isclass(call):
                    yield f"{owner}.{name}", call

    def state(self) -> dict[str, tuple[object, ...]]:
        """All that readers can see: every file but those that only a version makes visible, and ClickHouse's tables."""
        found: dict[str, tuple[object, ...]] = {}
        if (self.folder / CLICKHOUSE).is_dir():
            found |= _exported(self.folder / CLICKHOUSE)
        for folder, below, files in os.walk(self.folder):
            if folder == os.fspath(self.folder):
                below[:] = [name for name in below if name != CLICKHOUSE]
            below[:] = [name for name in below if name not in KEPT_FOLDERS]
            for name in files:
                path = f"{folder}/{name}"
                if "_conroi" not in name and not path.endswith(CLAIM):
                    stat = os.lstat(path)
                    found[path] = stat.st_ino, stat.st_size, stat.st_mtime_ns
        return found


def make(folder: Path) -> World:
    """The first of all worlds."""
    lake = conroi.connect(folder / "lake")
    lake.create_table("t", ROWS, key="id")
    lake["t"].append([{"id": 3, "v": "c", "n": 3.5}])
    lake.create_table("other", ROWS)
    lake.tags.create("first", version=1)
    lake.branches.create("dev")
    lake.branch("dev")["other"].append([{"id": 9, "v": "z", "n": 0.5}])
    alone = conroi.create_table(folder / "alone.lance", ROWS, key="id")
    alone.tags.create("one", version=1)
    alone.append(pa.table({"id": [3], "v": ["c"], "n": [3.5]}))
    world = World(folder)
    world.open()
    return world


def again(world: World, template: Path) -> None:
    """The world as it was in the template; a call may have dropped what it needs to begin anew."""
    world.end()
    shutil.rmtree(world.folder)
    shutil.copytree(template, world.folder)
    world.open()
