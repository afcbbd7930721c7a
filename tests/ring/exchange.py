"""Tables and a lake that one release of pylance makes, and what another one makes of them.

    python -m tests.ring.exchange write FOLDER     tables of every kind, by pylance and by conroi, and a lake
    python -m tests.ring.exchange use FOLDER       read them, append by conroi and by pylance, read them again

Both print one line of JSON: by name the rows that were found, or the refusal.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import lance
import pyarrow as pa

import conroi
from tests.support.arrow import column_values
from tools.old_tables import KINDS, MAKER


def write(folder: Path) -> dict[str, int]:
    folder.mkdir(parents=True)
    for kind in KINDS:
        make(folder / f"{kind}.lance", kind)
    keyed = conroi.create_table(folder / "keyed.lance", [{"id": i, "v": "a"} for i in range(20)], key="id")
    keyed.create_index("id").delete("id = 3").update({"v": "'b'"}, where="id = 4")
    lake = conroi.connect(folder / "lake")
    with lake.begin("two tables") as tx:
        tx.create_table("orders", [{"id": i} for i in range(5)], key="id")
        tx.create_table("log", [{"text": "a"}], stable_row_ids=True)
    lake.tags.create("first")
    lake.branches.create("dev")
    lake.branch("dev")["orders"].append([{"id": 100}])
    return found(folder)


def make(root: Path, kind: str) -> None:
    """As a process of its own would, which takes longer to start than to write."""
    given, sys.argv = sys.argv, ["", str(root), kind]
    try:
        exec(compile(MAKER, "MAKER", "exec"), {"__name__": "maker"})
    finally:
        sys.argv = given


def found(folder: Path) -> dict[str, int]:
    """The rows of everything, by conroi and by pylance, which must agree."""
    rows = {path.stem: conroi.open_table(path).count_rows() for path in tables(folder)}
    assert rows == {path.stem: lance.dataset(str(path)).count_rows() for path in tables(folder)}
    for path in tables(folder):
        ours, theirs = (column_values(each.to_table(["id"])["id"]) for each in both(path))
        assert sorted(ours) == sorted(theirs)
    lake = conroi.connect(folder / "lake")
    rows |= {f"lake/{name}": lake[name].count_rows() for name in ("orders", "log")}
    rows["lake/dev/orders"] = lake.branch("dev")["orders"].count_rows()
    rows["lake@first/orders"] = lake.at(tag="first")["orders"].count_rows()
    return rows


def both(path: Path) -> tuple[lance.LanceDataset, lance.LanceDataset]:
    return conroi.open_table(path).to_lance(), lance.dataset(str(path))


def tables(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.lance"))


def use(folder: Path) -> dict[str, int]:
    """What is there; then two rows more in each, one by conroi and one by pylance."""
    before = found(folder)
    for path in tables(folder):
        table = conroi.open_table(path)
        one = table.to_lance().to_table(limit=1) if path.stem != "blobs" else None
        if one is not None:
            table.append(_renumbered(one, 1_000_000))
            lance.write_dataset(_renumbered(one, 1_000_001), str(path), mode="append")
        assert conroi.open_table(path).doctor(deep=True).findings == ()
    lake = conroi.connect(folder / "lake")
    with lake.begin("both") as tx:
        tx["orders"].append([{"id": 1_000_000}])
        tx["log"].append([{"text": "b"}])
    lake.merge("dev")
    assert lake.doctor(deep=True).findings == ()
    found(folder)
    return before


def _renumbered(row: pa.Table, key: int) -> pa.Table:
    place = row.schema.get_field_index("id")
    return row.set_column(place, row.schema.field(place), pa.array([key], row.schema.field(place).type))


if __name__ == "__main__":
    work = {"write": write, "use": use}[sys.argv[1]]
    print(json.dumps(work(Path(sys.argv[2]))))
