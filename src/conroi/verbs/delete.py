"""Delete: new deletion vectors; fragments with no row left are dropped."""

from __future__ import annotations

from conroi.data.pinned import Pinned
from conroi.data.predicates import Predicate, checked_predicate, predicate_text
from conroi.data.pylance import pylance_errors
from conroi.data.rows import addresses_of, offsets_by_fragment, take_out
from conroi.operations import Delete
from conroi.verbs.plan import Plan


def delete(pinned: Pinned, where: Predicate) -> Plan | None:
    """Take out the rows for which the condition holds; None if there are none."""
    predicate = checked_predicate(where, table=pinned.root)
    with pylance_errors(pinned.root):
        found = pinned.dataset.scanner(columns=[], filter=predicate, with_row_address=True).to_table()
    rows = offsets_by_fragment(addresses_of(found["_rowaddr"]))
    if not rows:
        return None
    left = take_out(pinned.files, pinned.manifest, pinned.version, rows)
    operation = Delete(
        updated_fragments=left.updated, deleted_fragment_ids=left.removed, predicate=predicate_text(where)
    )
    return Plan(pinned.staged(operation, rows), counts={"rows_deleted": found.num_rows})
