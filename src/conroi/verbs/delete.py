"""Delete: writes new deletion vectors; fragments without live rows are dropped."""

from __future__ import annotations

from collections.abc import Callable

from conroi.data.finding import find_rows
from conroi.data.pinned import Pinned
from conroi.data.predicates import Predicate, checked_predicate, predicate_text
from conroi.data.rows import Rows, take_out
from conroi.operations import Delete
from conroi.verbs.plan import Plan

Finding = Callable[[Pinned, Predicate], Rows]


def delete(pinned: Pinned, where: Predicate, *, find: Finding = find_rows) -> Plan | None:
    """Delete the rows that match the condition; None if there are none."""
    rows = find(pinned, checked_predicate(where, table=pinned.root))
    if not rows:
        return None
    left = take_out(pinned.files, pinned.manifest, pinned.version, rows, later=pinned.is_contended)
    operation = Delete(
        updated_fragments=left.updated, deleted_fragment_ids=left.removed, predicate=predicate_text(where)
    )
    staged = pinned.staged(operation, rows, unwritten=left.unwritten)
    return Plan(staged, counts={"rows_deleted": sum(map(len, rows.values()))})
