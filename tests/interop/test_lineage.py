"""Tables with stable row ids: a verb of ours leaves the row ids and row versions that pylance's verb leaves."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

import conroi
from tests.interop.model import Row
from tests.interop.readers import lineage
from tests.interop.tables import Kind, Stable
from tests.interop.verbs import VERBS, Verb, named

pytestmark = pytest.mark.contract("T5", "T10")

BOTH = [verb for verb in VERBS if verb.ours and verb.theirs]
STABLE = Kind("pylance", stable_row_ids=True)


def since(root: Path, version: int) -> dict[int, Row]:
    """The lineage of every row, in which all versions made since count as one: pylance compacts in two."""
    lines = lineage(root)
    for line in lines.values():
        for name in ("_row_created_at_version", "_row_last_updated_at_version"):
            line[name] = min(line[name], version + 1)
    return lines


@pytest.mark.parametrize("verb", BOTH, ids=lambda verb: verb.name.replace(" ", "-"))
def test_row_ids_and_row_versions_are_those_that_pylance_would_have_left(tables: Stable, verb: Verb) -> None:
    ours, model = tables.copy(STABLE)
    theirs, _ = tables.copy(STABLE)
    version = conroi.open_table(ours).version
    assert verb.ours
    assert verb.theirs
    verb.ours(conroi.open_table(ours), model)
    verb.theirs(lance.dataset(str(theirs)), model)
    verb.change(model)
    assert since(ours, version) == since(theirs, version)


@pytest.mark.parametrize("name", ["update columns", "sort", "append with a new column", "overwrite where"])
def test_verbs_that_only_we_have_keep_the_rows_they_do_not_make(tables: Stable, name: str) -> None:
    root, model = tables.copy(STABLE)
    before, old = lineage(root), model.copy()
    verb = named(name)
    assert verb.ours
    now = verb.ours(conroi.open_table(root), model).version
    verb.change(model)
    after = lineage(root)
    for i, line in after.items():
        if i not in before:
            assert line["_row_created_at_version"] == line["_row_last_updated_at_version"] == now
            assert line["_rowid"] not in {each["_rowid"] for each in before.values()}
        elif name == "update columns" and model.rows[i] != old.rows[i]:
            assert line == before[i] | {"_row_last_updated_at_version": now}
        else:
            assert line == before[i]
