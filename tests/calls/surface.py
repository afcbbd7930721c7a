"""The public calls, found by looking: the functions of `conroi.__all__`, and the methods of all that they lead to."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import conroi
from conroi.format import lance_pb2 as pb

ROWS = [{"id": 1, "v": "a", "n": 1.5}, {"id": 2, "v": "b", "n": 2.5}]
LOWER_LAYER = {"catalog", "pinned", "files_at", "manifest", "environment", "protection", "run", "source", "wire"}
"""What is public for conroi's own parts only."""
KEPT_FOLDERS = {"data", "_transactions", "_deletions", "_indices"}
"""Files that no version names may stay in these after a refused call; collection removes them."""


@dataclass
class World:
    """A lake with one of everything, in a folder that can be brought back."""

    folder: Path
    objects: dict[str, Any] = field(default_factory=dict[str, Any])

    def open(self) -> None:
        """All handles anew."""
        lake = conroi.connect(self.folder / "lake")
        alone = conroi.open_table(self.folder / "alone.lance")
        merge = lake["t"].merge(ROWS, on="id").when_matched_update_all()
        self.objects = {
            "conroi": conroi,
            "export": conroi.export,
            "lake": lake,
            "past": lake.at(1),
            "dev": lake.branch("dev"),
            "table": lake["t"],
            "alone": alone,
            "tx": lake.begin(),
            "staged": lake.begin()["t"],
            "table_tx": alone.begin(),
            "merge": merge,
            "lease": lake.at(1, keep="1h").lease,
            "job": lake.job("j"),
            "lock": lake.insert_lock("t"),
            "branches": lake.branches,
            "lake_tags": lake.tags,
            "tags": alone.tags,
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
            "lease_info": lake.leases()[0],
            "query": lake.query("SELECT * FROM t"),
        }

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

    def state(self) -> dict[str, bytes | None]:
        """All that readers can see: every file but those that only a version makes visible."""
        found: dict[str, bytes | None] = {}
        for path in self.folder.rglob("*"):
            parts = path.relative_to(self.folder).parts
            if path.is_file() and not KEPT_FOLDERS & set(parts) and "_conroi" not in parts[-1]:
                found["/".join(parts)] = path.read_bytes()
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
    """The world as it was in the template."""
    for name in ("tx", "table_tx"):
        with suppress(Exception):
            world.objects[name].rollback()
    shutil.rmtree(world.folder)
    shutil.copytree(template, world.folder)
    world.open()
