"""Flips of single bytes over every kind of file that conroi writes, read in a process of its own.

::

    python -m tests.hostile.flips --flips 5000 --seed 1

The process that reads may die of a flip (pylance aborts on some damaged files), so it runs apart, tells each flip
before it reads, and is started again behind the one that it died of.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import conroi
from tests.hostile.scene import Scene, build
from tests.support.arrow import column_values

SAME, REFUSED, OTHER, UNTYPED, DIED = "same", "refused", "other data", "untyped", "died"
KINDS = {
    "manifest": "*/_versions/*.manifest",
    "manifest of a lake's table": "lake/*/_versions/*.manifest",
    "transaction": "*/_transactions/*.txn",
    "deletion file": "*/_deletions/*.arrow",
    "deletion file of a lake": "lake/*/_deletions/*",
    "deletion bitmap": "*/_deletions/*.bin",
    "tag": "*/_refs/tags/*.json",
    "tag of a lake": "lake/*/_refs/tags/*.json",
    "branch": "lake/__manifest/_conroi/branches/*/*.json",
    "branch for pylance": "lake/*/_refs/branches/*.json",
    "hint": "*/_versions/latest_version_hint.json",
    "mark": "lake/*/_conroi/created",
}


def many_deleted(root: Path) -> None:
    """A table with a bitmap of deletions, and a tag that was moved."""
    table = conroi.create_table(root / "bitmap", [{"id": i, "v": "x"} for i in range(12_000)])
    table = table.delete("id % 2 = 0")
    table.tags.create("first")
    table.append([{"id": -1, "v": "y"}]).tags.move("first")


def answers(scene: Scene) -> dict[str, Any]:
    """What readers see."""
    found: dict[str, Any] = {}
    for name in ("lone", "bitmap"):
        table = conroi.open_table(scene.root / name)
        found[name] = sorted(column_values(table.to_arrow()["id"])), table.version
        found[f"{name} tags"] = [(tag.name, tag.version) for tag in table.tags]
        found[f"{name} log"] = [(entry.version, entry.operation) for entry in table.history()]
    lake = conroi.connect(scene.lake)
    found["tables"] = lake.tables(), lake.version
    for name in lake.tables():
        found[f"lake {name}"] = sorted(column_values(lake[name].to_arrow()["id"])), lake[name].version
        found[f"lake {name} tags"] = [(tag.name, tag.version) for tag in lake[name].tags]
    found["lake tags"] = [(tag.name, tag.version) for tag in lake.tags]
    found["branches"] = [(branch.name, branch.parent_version) for branch in lake.branches]
    dev = lake.branch("dev")
    found["dev"] = {name: sorted(column_values(dev[name].to_arrow()["id"])) for name in dev.tables()}
    found["log"] = [entry.version for entry in lake.history()]
    return json.loads(json.dumps(found))


def flips(scene: Scene, count: int, seed: int) -> Iterator[tuple[str, Path, int, int]]:
    """Kind, file, place and bit; the kinds in turn."""
    chance = random.Random(seed)
    files = {kind: sorted(scene.root.glob(pattern)) for kind, pattern in KINDS.items()}
    kinds = [kind for kind, paths in files.items() if paths]
    for number in range(count):
        kind = kinds[number % len(kinds)]
        path = chance.choice(files[kind])
        yield kind, path, chance.randrange(max(1, path.stat().st_size)), 1 << chance.randrange(8)


def read_flipped(scene: Scene, path: Path, place: int, bit: int, right: dict[str, Any]) -> str:
    """Flip, read, put it back."""
    whole = path.read_bytes()
    if not whole:
        return SAME
    damaged = bytearray(whole)
    damaged[place] ^= bit
    path.write_bytes(bytes(damaged))
    try:
        return SAME if answers(scene) == right else OTHER
    except conroi.ConroiError:
        return REFUSED
    except Exception as error:  # noqa: BLE001  # whatever it is, it is counted
        return f"{UNTYPED}: {type(error).__name__}"
    finally:
        path.write_bytes(whole)


def child(root: str, count: int, seed: int, start: int) -> None:
    """Tell each flip, then what came of it."""
    scene = Scene(Path(root))
    right = answers(scene)
    for number, (kind, path, place, bit) in enumerate(flips(scene, count, seed)):
        if number < start:
            continue
        where = f"{kind}: {path.relative_to(scene.root)} byte {place} bit {bit}"
        print(json.dumps([number, where, None]), flush=True)
        print(json.dumps([number, where, read_flipped(scene, path, place, bit, right)]), flush=True)


def run(root: Path, count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """How often what came out, and each flip of which something bad did."""
    build(root)
    many_deleted(root)
    outcomes: Counter[str] = Counter()
    bad: list[str] = []
    start = 0
    while start < count:
        whole = {path: path.read_bytes() for pattern in KINDS.values() for path in root.glob(pattern)}
        command = [sys.executable, "-m", "tests.hostile.flips", "--child", str(root)]
        command += ["--flips", str(count), "--seed", str(seed), "--start", str(start)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
        told = [json.loads(line) for line in done.stdout.splitlines()]
        for number, where, outcome in told:
            if outcome is not None:
                outcomes[outcome] += 1
                start = number + 1
                if outcome not in (SAME, REFUSED):
                    bad.append(f"{outcome}: {where}")
        if done.returncode:
            if not told:
                raise RuntimeError(done.stderr[-2000:])
            if told[-1][2] is None:
                outcomes[DIED] += 1
                bad.append(f"{DIED} ({done.returncode}): {told[-1][1]}")
                start = told[-1][0] + 1
                for path, data in whole.items():
                    path.write_bytes(data)
    return outcomes, bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child")
    parser.add_argument("--start", type=int, default=0)
    given = parser.parse_args()
    if given.child:
        child(given.child, given.flips, given.seed, given.start)
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        outcomes, bad = run(Path(folder), given.flips, given.seed)
    took = time.monotonic() - began
    print(
        f"flips: {sum(outcomes.values()):,} over {len(KINDS)} kinds of files, seed {given.seed}, {took:,.0f} s: "
        f"{dict(outcomes)}, bad {len(bad)}"
    )
    for line in bad:
        print(f"  {line}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
