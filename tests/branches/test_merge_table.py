"""Every cell of the merge table in docs/branches.md, executed on a real lake; each has a table of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import conroi
from tools import merge_table
from tools.merge_table import KEYED, KEYED_OUTCOMES, KEYLESS, KEYLESS_OUTCOMES, ROWS, VALUE, Change, outcomes

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int32()), ("w", pa.int64())])


@pytest.mark.parametrize(
    ("changes", "text", "key"),
    [(KEYED, KEYED_OUTCOMES, "id"), (KEYLESS, KEYLESS_OUTCOMES, None)],
    ids=["with a key", "without a key"],
)
@pytest.mark.contract("B3", "B6", "B8")
def test_every_cell_of_the_merge_table(changes: Sequence[Change], text: str, key: str | None) -> None:
    pairs = {f"t{i}_{j}": (s, t) for i, s in enumerate(changes) for j, t in enumerate(changes)}
    expected = {name: outcomes(text, changes)[pair] for name, pair in pairs.items()}
    lake = conroi.connect(f"memory://{uuid.uuid4().hex}")
    with lake.begin() as tx:
        for name in pairs:
            tx.create_table(name, pa.Table.from_pylist(ROWS[:1], schema=SCHEMA), key=key)
    with lake.begin() as tx:
        for name in pairs:
            tx[name].append(pa.Table.from_pylist(ROWS[1:], schema=SCHEMA))
    for name in ("dev", "sources", "targets"):
        lake.branches.create(name)
    with lake.branch("dev").begin() as tx:
        for name, (source, _) in pairs.items():
            source.do(tx, name, "source")
    for branch in ("sources", "targets"):
        with lake.branch(branch).begin() as tx:
            for name, (_, target) in pairs.items():
                target.do(tx, name, "target")

    dry = lake.merge("dev", into="targets", dry_run=True)
    found = {each.table.removesuffix("_source").removesuffix("_target"): each.kind for each in dry.conflicts}
    assert {name: found.get(name, "both") for name in pairs} == expected

    before = {name: _content(lake, "targets", name) for name in pairs}
    lake.merge("dev", into="targets", prefer="target")
    lake.merge("dev", into="sources", prefer="source")
    for name, outcome in expected.items():
        theirs, mine = _content(lake, "sources", name), _content(lake, "targets", name)
        if outcome == "both":
            assert theirs == mine, name
            for change, side in zip(pairs[name], ("source", "target"), strict=True):
                assert VISIBLE[change](mine, side), (name, change.name, mine)
            assert mine is None or len(mine.rows) == 2 + _rows_added(pairs[name]), name
        elif outcome != "row":
            assert theirs == _content(lake, "dev", name), name
            assert mine == before[name], name


@dataclass(frozen=True)
class Content:
    """All that there is to see of a table."""

    name: str
    columns: dict[str, tuple[str, bool]]
    """By name: type, and whether it may be null."""
    rows: list[dict[str, Any]]
    config: dict[str, str]
    metadata: dict[str, str]

    def row(self, number: int) -> dict[str, Any]:
        return next((row for row in self.rows if row["id"] == number), {})

    def v(self, number: int) -> Any:
        """The value of the column v, whatever it is called now; None if it was dropped."""
        return next((value for name, value in self.row(number).items() if name.startswith("v")), None)


def _content(lake: conroi.Lake, branch: str, name: str) -> Content | None:
    """None if the table is not there."""
    on = lake.branch(branch)
    there = [each for each in (name, f"{name}_source", f"{name}_target") if each in on]
    if not there:
        return None
    (now,) = there
    table = on[now]
    columns = {field.name: (str(field.type), field.nullable) for field in table.schema}
    rows = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    return Content(now, columns, rows, dict(table.config), dict(table.metadata))


def _rows_added(pair: tuple[Change, Change]) -> int:
    return pair.count(merge_table.INSERT) - (merge_table.DELETE_1 in pair)


VISIBLE: dict[Change, Callable[[Any, str], bool]] = {
    merge_table.INSERT: lambda table, side: table.row({"source": 3, "target": 4}[side]) != {},
    merge_table.UPDATE_1: lambda table, side: table.v(1) in (int(VALUE[side]), None),
    merge_table.UPDATE_2: lambda table, side: table.row(2)["w"] == int(VALUE[side]),
    merge_table.DELETE_1: lambda table, _: table.row(1) == {},
    merge_table.RENAME_COLUMN: lambda table, side: f"v_{side}" in table.columns,
    merge_table.RETYPE: lambda table, _: any(
        name.startswith("v") and type_ == "int64" for name, (type_, _) in table.columns.items()
    ),
    merge_table.DROP_COLUMN: lambda table, _: not any(name.startswith("v") for name in table.columns),
    merge_table.ADD_COLUMN: lambda table, side: f"c_{side}" in table.columns,
    merge_table.ADD_NEVER_NULL: lambda table, side: f"d_{side}" in table.columns,
    merge_table.NOT_NULL: lambda table, _: table.columns["w"] == ("int64", False),
    merge_table.RENAME: lambda table, side: table.name.endswith(f"_{side}"),
    merge_table.DROP: lambda table, _: table is None,
    merge_table.SETTING: lambda table, side: table.config == {"k": side},
    merge_table.METADATA: lambda table, side: table.metadata == {"k": side},
    merge_table.COMPACT: lambda table, _: table is not None,
}
"""By change: how it is seen in the result. What was written into a column that is gone went with it."""


def test_the_table_is_able_to_be_wrong() -> None:
    found = merge_table.outcomes(merge_table.KEYED_OUTCOMES, merge_table.KEYED)
    assert found[merge_table.UPDATE_1, merge_table.UPDATE_1] == "row"
    assert found[merge_table.DROP, merge_table.DROP] == "both"
