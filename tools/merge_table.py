"""The table of what a merge does for each pair of changes, in docs/branches.md; a test executes each of its cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

BEGIN = "<!-- The merge table: made by `make docs` from tools/merge_table.py. Do not edit by hand. -->"
END = "<!-- End of the merge table. -->"
Rows: TypeAlias = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Change:
    """Something that one side does to a table; `side` is "source" or "target", so that the two sides can differ."""

    name: str
    do: Callable[[Any, str, str], None]
    """With a transaction, the name of the table, and the side."""


def _add(tx: Any, table: str, side: str) -> None:
    number = 3 if side == "source" else 4
    tx[table].append(pa.table({"id": [number], "v": pa.array([number], pa.int32()), "w": [number]}))


def _rename_column(tx: Any, table: str, side: str) -> None:
    tx[table].rename_columns({"v": f"v_{side}"})


VALUE = {"source": "600", "target": "700"}
INSERT = Change("insert a row", _add)
UPDATE_1 = Change("update row 1", lambda tx, table, side: tx[table].update({"v": VALUE[side]}, where="id = 1"))
UPDATE_2 = Change("update row 2", lambda tx, table, side: tx[table].update({"w": VALUE[side]}, where="id = 2"))
DELETE_1 = Change("delete row 1", lambda tx, table, side: tx[table].delete("id = 1"))
RENAME_COLUMN = Change("rename column v", _rename_column)
RETYPE = Change("retype column v", lambda tx, table, side: tx[table].alter_columns({"v": {"type": pa.int64()}}))
DROP_COLUMN = Change("drop column v", lambda tx, table, side: tx[table].drop_columns(["v"]))
ADD_COLUMN = Change("add a column", lambda tx, table, side: tx[table].add_columns(pa.field(f"c_{side}", pa.int64())))
ADD_NEVER_NULL = Change("add a column that is never null", lambda tx, t, side: tx[t].add_columns({f"d_{side}": "1"}))
NOT_NULL = Change("make w not null", lambda tx, table, side: tx[table].alter_columns({"w": {"nullable": False}}))
RENAME = Change("rename the table", lambda tx, table, side: tx.rename_table(table, f"{table}_{side}"))
DROP = Change("drop the table", lambda tx, table, side: tx.drop_table(table))
SETTING = Change("set a setting", lambda tx, table, side: tx[table].set_config({"k": side}))
METADATA = Change("set metadata", lambda tx, table, side: tx[table].set_metadata({"k": side}))
COMPACT = Change("compact", lambda tx, table, side: tx[table].compact())

ROWS: list[dict[str, Any]] = [{"id": 1, "v": 10, "w": 1}, {"id": 2, "v": 20, "w": 2}]
"""What each table begins with: id and w are int64, v is int32; in two fragments."""

KEYED = (
    INSERT, UPDATE_1, UPDATE_2, DELETE_1, RENAME_COLUMN, RETYPE, DROP_COLUMN, ADD_COLUMN, ADD_NEVER_NULL, NOT_NULL,
    RENAME, DROP, SETTING, METADATA,
)  # fmt: skip
KEYLESS = (INSERT, UPDATE_1, UPDATE_2, DELETE_1, COMPACT, RENAME_COLUMN, RETYPE, ADD_COLUMN, ADD_NEVER_NULL)

# A cell is `both`, or the kind of the conflict. The lines are changes of the source, the columns those of the target,
# both in the order above.
KEYED_OUTCOMES = """
both   both   both   both   both   both   both   both   schema both   both    dropped both    both
both   row    both   row    both   both   both   both   both   both   both    dropped both    both
both   both   row    both   both   both   both   both   both   both   both    dropped both    both
both   row    both   both   both   both   both   both   both   both   both    dropped both    both
both   both   both   both   schema schema schema schema schema schema both    dropped both    both
both   both   both   both   schema both   schema schema schema schema both    dropped both    both
both   both   both   both   schema schema both   schema schema schema both    dropped both    both
both   both   both   both   schema schema schema schema schema schema both    dropped both    both
schema both   both   both   schema schema schema schema schema schema both    dropped both    both
both   both   both   both   schema schema schema schema schema both   both    dropped both    both
both   both   both   both   both   both   both   both   both   both   name    dropped both    both
dropped dropped dropped dropped dropped dropped dropped dropped dropped dropped dropped both   dropped dropped
both   both   both   both   both   both   both   both   both   both   both    dropped setting both
both   both   both   both   both   both   both   both   both   both   both    dropped both    metadata
"""
KEYLESS_OUTCOMES = """
both   both   both   both   both   both   both   both   schema
both   rows   both   rows   both   both   both   both   schema
both   both   rows   both   both   both   both   both   schema
both   rows   both   both   both   both   both   both   both
both   both   both   both   both   both   both   both   both
both   both   both   both   both   schema schema schema schema
both   both   both   both   both   schema both   schema schema
both   both   both   both   both   schema schema schema schema
schema schema schema both   both   schema schema schema schema
"""


def outcomes(text: str, changes: Sequence[Change]) -> dict[tuple[Change, Change], str]:
    """By the change of the source and that of the target."""
    lines = [line.split() for line in text.strip().splitlines()]
    assert [len(line) for line in lines] == [len(changes)] * len(changes)
    return {(s, t): lines[i][j] for i, s in enumerate(changes) for j, t in enumerate(changes)}


def section() -> str:
    """The tables as Markdown."""
    return "\n".join(
        [
            BEGIN,
            "",
            "What the source did since is in the line, what the target did in the column. **both**: the result has "
            "both changes. Anything else is the kind of the conflict.",
            "",
            "With a key:",
            "",
            *_grid(KEYED_OUTCOMES, KEYED),
            "",
            "Without a key:",
            "",
            *_grid(KEYLESS_OUTCOMES, KEYLESS),
            "",
            "Row 1 is the same row on both sides, and each side writes another value. The two sides insert different "
            "rows, add different columns and give different names. Retyping, dropping and `not null` are the same "
            "change on both sides.",
            "",
            END,
        ]
    )


def _grid(text: str, changes: Sequence[Change]) -> list[str]:
    found = outcomes(text, changes)
    head = ["source \\ target", *(change.name for change in changes)]
    lines = [head, ["---"] * len(head)]
    for source in changes:
        cells = [found[source, target] for target in changes]
        lines.append([source.name, *(cell if cell == "both" else f"*{cell}*" for cell in cells)])
    return ["| " + " | ".join(line) + " |" for line in lines]


def with_section(page: str) -> str:
    """A page with the section as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{section()}{after}"
