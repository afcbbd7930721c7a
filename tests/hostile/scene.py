"""A lake and a table that stands alone, a canary folder outside of both, and every verb that touches files."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import conroi
from conroi.storage.local_folders import settable_times
from tests.support.arrow import column_values

ROWS = [{"id": i, "v": f"row {i}"} for i in range(20)]
LEFT = [row for row in ROWS if row["id"] not in (3, 4)]
MONTH_S = 30 * 86400


@dataclass(frozen=True)
class Scene:
    """Where everything is."""

    root: Path

    @property
    def lake(self) -> Path:
        return self.root / "lake"

    @property
    def table(self) -> Path:
        """The folder of the lake's table `t`."""
        return self.lake / "t.lance"

    @property
    def lone(self) -> Path:
        return self.root / "lone"

    @property
    def canary(self) -> Path:
        """What no verb may read, write or delete: a folder with files of every kind that conroi looks for."""
        return self.root / "canary"

    def one(self, pattern: str) -> Path:
        """The first file below the scene that fits: of manifests, whose names count down, the newest."""
        return min(self.root.glob(pattern))


def build(root: Path) -> Scene:
    """Rows, deletions, an index, tags, a branch with a commit of its own, a lock, a dropped table."""
    scene = Scene(root)
    lake = conroi.connect(scene.lake)
    _fill(lake.create_table("t", pa.Table.from_pylist(ROWS), key="id", stable_row_ids=True))
    lake.create_table("other", [{"id": 1}])
    lake.create_table("dropped", [{"id": 1}])
    lake.set_locks("file")
    lake.insert("other", [{"id": 7}])
    lake["other"].delete("id = 7")
    lake.tags.create("audit")
    lake.branches.create("dev")
    lake.branch("dev")["other"].append([{"id": 2}])
    lake.drop_table("dropped")
    _fill(conroi.create_table(scene.lone, pa.Table.from_pylist(ROWS)))
    conroi.create_table(scene.canary, [{"id": 666}]).create_index("id")
    for name in ("authorized_keys", "latest_version_hint.json", "1.lock", "x.json"):
        (scene.canary / name).write_text('{"version": 1}')
    (scene.canary / "_transactions").mkdir(exist_ok=True)
    _age(root)
    return scene


def _fill(table: conroi.Table) -> None:
    table = table.delete("id in (3, 4)").create_index("id")
    table.tags.create("first")


def _age(folder: Path) -> None:
    then = time.time() - MONTH_S
    for path, _, files in os.walk(folder):
        for name in files:
            os.utime(os.path.join(path, name), (then, then), follow_symlinks=False)


def copy(template: Scene, root: Path) -> Scene:
    """The same, elsewhere."""
    shutil.copytree(template.root, root, dirs_exist_ok=True)
    _age(root)
    return Scene(root)


def photograph(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything in a folder: names, times, bytes."""
    found: dict[str, tuple[int, int, bytes]] = {}
    for path, folders, files in os.walk(folder):
        for name in (*folders, *files):
            full = os.path.join(path, name)
            stat = os.lstat(full)
            found[os.path.relpath(full, folder)] = (
                stat.st_size if name in files else 0,
                stat.st_mtime_ns,
                Path(full).read_bytes() if name in files else b"",
            )
    return found


class TookTooLong(BaseException):
    """Past every handler."""


@contextlib.contextmanager
def bounded(seconds: float, megabytes: int) -> Generator[None]:
    """Fail if it takes longer, or more memory at any moment."""

    def stop(*_: object) -> None:
        raise TookTooLong(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    start = _status("VmRSS")
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    peak = _status("VmHWM") - start
    assert peak < megabytes * 1024, f"{peak // 1024} MB at its peak"


def _status(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])


@dataclass
class Outcome:
    """What a verb ended with."""

    verb: str
    value: Any = None
    error: conroi.ConroiError | None = None


def _ids(table: Any) -> list[int]:
    return sorted(table.to_arrow(columns=["id"])["id"].to_pylist())


def _merge(table: conroi.Table) -> object:
    builder = table.merge([{"id": 1, "v": "new"}], on="id")
    return builder.when_matched_update_all().when_not_matched_insert_all().execute()


LAKE_VERBS: dict[str, Callable[[conroi.Lake], object]] = {
    "read": lambda lake: _ids(lake["t"]),
    "read other": lambda lake: _ids(lake["other"]),
    "filter": lambda lake: sorted(column_values(lake["t"].to_arrow(filter="id = 7")["id"])),
    "count": lambda lake: lake["t"].count_rows(),
    "tables": lambda lake: lake.tables(),
    "history": lambda lake: list(lake.history()),
    "table history": lambda lake: list(lake["t"].history()),
    "tags": lambda lake: list(lake.tags),
    "table tags": lambda lake: list(lake["t"].tags),
    "branches": lambda lake: list(lake.branches),
    "locks": lambda lake: lake.locks(),
    "doctor": lambda lake: lake.doctor(deep=True),
    "expire dry": lambda lake: lake.expire("7d", keep=1),
    "gc dry": lambda lake: lake.gc(),
    "append": lambda lake: lake["t"].append([{"id": 100, "v": "x"}]),
    "merge": lambda lake: _merge(lake["t"]),
    "delete": lambda lake: lake["t"].delete("id = 5"),
    "update": lambda lake: lake["t"].update({"v": "'y'"}, where="id = 6"),
    "add column": lambda lake: lake["other"].add_columns({"w": "id + 1"}),
    "index": lambda lake: lake["t"].create_index("v"),
    "compact": lambda lake: lake["t"].compact(),
    "tag": lambda lake: lake["t"].tags.create("new"),
    "move tag": lambda lake: lake["t"].tags.move("first"),
    "insert": lambda lake: lake.insert("t", [{"id": 200, "v": "z"}], wait_s=0.1),
    "merge branch": lambda lake: lake.merge("dev"),
    "branch": lambda lake: lake.branches.create("hostile"),
    "branch write": lambda lake: lake.branch("dev")["t"].append([{"id": 300, "v": "b"}]),
    "create": lambda lake: lake.create_table("made", [{"id": 1}]),
    "expire": lambda lake: lake.expire("7d", keep=1, dry_run=False),
    "gc": lambda lake: lake.gc(dry_run=False),
    "drop": lambda lake: lake.drop_table("other"),
    "gc again": lambda lake: lake.gc(dry_run=False),
    "doctor fix": lambda lake: lake.doctor(fix=True),
}
TABLE_VERBS: dict[str, Callable[[conroi.Table], object]] = {
    "read": _ids,
    "filter": lambda table: sorted(column_values(table.to_arrow(filter="id = 7")["id"])),
    "history": lambda table: list(table.history()),
    "tags": lambda table: list(table.tags),
    "doctor": lambda table: table.doctor(deep=True),
    "gc dry": lambda table: table.gc(),
    "append": lambda table: table.append([{"id": 100, "v": "x"}]),
    "delete": lambda table: table.delete("id = 5"),
    "update": lambda table: table.update({"v": "'y'"}, where="id = 6"),
    "index": lambda table: table.create_index("v"),
    "compact": lambda table: table.compact(),
    "tag": lambda table: table.tags.create("new"),
    "move tag": lambda table: table.tags.move("first"),
    "clone": lambda table: table.clone(f"{table.uri}-clone", deep=True),
    "expire": lambda table: table.expire("7d", keep=1, dry_run=False),
    "gc": lambda table: table.gc(dry_run=False),
    "doctor fix": lambda table: table.doctor(fix=True),
}


def attempt(name: str, verb: Callable[[], object]) -> Outcome:
    """Right data or a typed error; anything else fails the test."""
    try:
        return Outcome(name, verb())
    except conroi.ConroiError as error:
        return Outcome(name, error=error)


def run_all(scene: Scene) -> dict[str, Outcome]:
    """Every verb on the lake, and on the table that stands alone; each opens anew."""
    outcomes: dict[str, Outcome] = {}
    with settable_times():
        for name, verb in LAKE_VERBS.items():
            outcomes[name] = attempt(name, lambda verb=verb: verb(conroi.connect(scene.lake)))
        for name, on_table in TABLE_VERBS.items():
            key = f"lone {name}"
            outcomes[key] = attempt(key, lambda verb=on_table: verb(conroi.open_table(scene.lone)))
    return outcomes
