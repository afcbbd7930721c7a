"""Writers, long readers and a collector at the same time, each a process, on one lake; and what each of them saw."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import conroi
from conroi.lake_snapshot import LakeReader
from conroi.maintenance import lake_expiry
from conroi.versions.retention import other_ages
from tests.support.together import Meet

VERSION_S = 1.0
FILE_S = 3.0
TABLES = ("left", "right")
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64()), pa.field("filler", pa.string())]
)


@dataclass(frozen=True)
class Job:
    uri: str
    number: int
    seed: int
    seconds: float
    kind: str

    @property
    def found(self) -> Path:
        """This file ends a negative control as soon as a reader noticed what it is about."""
        return Path(f"{self.uri}.found")


@dataclass
class Diary:
    kind: str
    written: dict[int, int] = field(default_factory=dict[int, int])
    """By id, the value that its row has now."""
    unknown: set[int] = field(default_factory=set[int])
    done: Counter[str] = field(default_factory=Counter[str])
    problems: list[str] = field(default_factory=list[str])
    freed: int = 0


def rows(ids: list[int]) -> pa.Table:
    return pa.table({"id": ids, "n": ids, "filler": [f"{number:0200d}" for number in ids]}, schema=SCHEMA)


def make(uri: str) -> conroi.Lake:
    lake = conroi.connect(uri)
    with lake.begin("made") as tx:
        for name in TABLES:
            tx.create_table(name, rows([-1]), key="id")
    return lake


def live(job: Job, meet: Meet) -> Diary:
    """What one process does until its time is over."""
    diary = Diary(job.kind)
    chance = random.Random(f"{job.seed} {job.number}")
    with other_ages(VERSION_S, FILE_S):
        lake = conroi.connect(job.uri)
        meet()
        until = time.monotonic() + job.seconds
        while time.monotonic() < until and not job.found.exists():
            work = {"writer": write, "reader": read, "collector": collect, "careless": collect_carelessly}
            work[job.kind](job, lake, chance, diary)
    return diary


# ------------------------------------------------------------------------------ writers


def write(job: Job, lake: conroi.Lake, chance: random.Random, diary: Diary) -> None:
    """The same rows into both tables, or the same change of own rows, in one transaction; now and then a compaction."""
    step = sum(diary.done.values())
    what = chance.choices(["append", "update", "delete", "compact"], [6, 2, 1, 1])[0] if diary.written else "append"
    mine = chance.sample(sorted(diary.written), min(3, len(diary.written)))
    ids = [job.number * 1_000_000 + step * 10 + more for more in range(3)] if what == "append" else mine
    try:
        _change(lake, what, ids, step, chance)
    except conroi.CommitStateUnknown:
        diary.unknown.update(ids)
        for each in ids:
            diary.written.pop(each, None)
    except conroi.ConflictError as conflict:
        diary.done[f"refused {type(conflict).__name__}"] += 1
    else:
        diary.done[what] += 1
        _remember(diary, what, ids, step)


def _change(lake: conroi.Lake, what: str, ids: list[int], step: int, chance: random.Random) -> None:
    if what == "compact":
        lake[chance.choice(TABLES)].compact()
        return
    listed = ", ".join(map(str, ids))

    def work(tx: conroi.Transaction) -> None:
        for name in TABLES:
            if what == "append":
                tx[name].append(rows(ids))
            elif what == "update":
                tx[name].update({"n": str(step)}, f"id in ({listed})")
            else:
                tx[name].delete(f"id in ({listed})")

    lake.run(work)


def _remember(diary: Diary, what: str, ids: list[int], step: int) -> None:
    for each in ids if what != "compact" else ():
        if what == "delete":
            diary.written.pop(each)
        else:
            diary.written[each] = each if what == "append" else step


# ------------------------------------------------------------------------------ readers


def read(job: Job, lake: conroi.Lake, chance: random.Random, diary: Diary) -> None:
    """Either hold a version by a tag and read it for long, or read one for as long as it must be there."""
    if chance.random() < 0.5:
        _read_tagged(job, lake, chance, diary)
    else:
        _read_young(lake, diary)


def _read_tagged(job: Job, lake: conroi.Lake, chance: random.Random, diary: Diary) -> None:
    name = f"reader-{job.number}"
    version = lake.tags.create(name).version
    try:
        held = lake.at(tag=name)
        first = _seen(held)
        until = time.monotonic() + chance.uniform(1, 3) * VERSION_S
        while time.monotonic() < until:
            # One that comes anew, with nothing at hand, sees the same as one that has it open.
            for reader in (held, conroi.connect(job.uri).at(tag=name)):
                if _seen(reader) != first:
                    diary.problems.append(f"tagged version {version} changed")
                diary.done["tagged reads"] += 1
    except conroi.ConroiError as error:
        diary.problems.append(f"tagged version {version}: {error}")
        job.found.touch()
    lake.tags.delete(name)


def _read_young(lake: conroi.Lake, diary: Diary) -> None:
    """The newest version stays for a while after others follow it."""
    asked_at = time.monotonic()
    at = lake.at(version=lake.version)
    while True:
        error = _failed(at)
        if time.monotonic() - asked_at > VERSION_S * 0.9:
            return  # it may have gone while we read
        if error is not None:
            diary.problems.append(f"version {at.version}, which is young: {error}")
            return
        diary.done["young reads"] += 1


def _failed(at: LakeReader) -> conroi.ConroiError | None:
    try:
        _seen(at)
    except conroi.ConroiError as error:
        return error
    return None


def _seen(at: LakeReader) -> list[Any]:
    """The rows of both tables, which no version has different."""
    left, right = (
        sorted(map(tuple, at[name].to_arrow(["id", "n"]).to_pandas().to_numpy().tolist())) for name in TABLES
    )
    assert left == right, f"the tables differ at version {at.version}"
    return left


# ------------------------------------------------------------------------------ the collector


def collect(job: Job, lake: conroi.Lake, chance: random.Random, diary: Diary) -> None:
    expired = lake.expire(f"{VERSION_S}s", keep=2, dry_run=False)
    collected = lake.gc(min_age=f"{FILE_S}s", dry_run=False)
    diary.done["expired"] += len(expired.removed)
    diary.done["collected"] += collected.files
    diary.done["rounds"] += 1
    diary.freed += expired.bytes + collected.bytes


def collect_carelessly(job: Job, lake: conroi.Lake, chance: random.Random, diary: Diary) -> None:
    """The negative control: a collector that does not ask which versions others hold."""
    held = lake_expiry.held_by_refs
    lake_expiry.held_by_refs = lambda *_, **__: set()
    try:
        collect(job, lake, chance, diary)
    finally:
        lake_expiry.held_by_refs = held
