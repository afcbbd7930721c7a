"""Both readers look at a table, and must see what the model says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import conroi
from tests.interop.model import Model, Row, Where
from tests.support.arrow import column_values

PROBES = (
    Where("id = 21", lambda row: row["id"] == 21),
    Where("id >= 10 AND id < 33", lambda row: 10 <= row["id"] < 33),
)
LINEAGE = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def rows_of(table: pa.Table) -> list[Row]:
    """The rows in the order of their ids."""
    return sorted(table.to_pylist(maps_as_pydicts="strict"), key=lambda row: row["id"])


def opened(root: Path | str) -> conroi.Table:
    """The table; it may refer to files of tables beside it."""
    return conroi.open_table(str(root), allow_bases=[Path(root).parent.parent])


def assert_seen(root: Path | str, model: Model, *, version: int | None = None) -> None:
    """pylance and conroi each open the newest version afresh and see the model's rows; filtered too, if indexed."""
    theirs, ours = lance.dataset(str(root)), opened(root)
    assert ours.version == theirs.version == (theirs.version if version is None else version)
    theirs.validate()
    assert_schema(theirs.schema, model)
    assert_schema(ours.schema, model)
    assert ours.count_rows() == theirs.count_rows() == len(model.rows)
    expected = model.sorted_rows()
    assert rows_of(theirs.to_table()) == expected, "pylance sees other rows"
    assert rows_of(ours.to_arrow()) == expected, "conroi sees other rows"
    if ours.indices:
        for where in PROBES:
            assert_found(theirs, ours, model, where)


def assert_found(theirs: lance.LanceDataset, ours: conroi.Table, model: Model, where: Where) -> None:
    """A filtered scan, which may go through an index, finds what the model finds."""
    expected = sorted(model.matching(where))
    assert sorted(column_values(theirs.to_table(["id"], filter=where.sql)["id"])) == expected, f"pylance, {where.sql}"
    assert sorted(column_values(ours.to_arrow(["id"], where.sql)["id"])) == expected, f"conroi, {where.sql}"


def assert_schema(schema: pa.Schema, model: Model) -> None:
    shown = {field.name: (field.type, field.nullable) for field in schema}
    assert shown == {name: (column.type, column.nullable) for name, column in model.columns.items()}
    assert schema.names == list(model.columns)


def lineage(root: Path | str) -> dict[int, Row]:
    """By id: the row id and the versions in which the row was made and last changed. Both readers must agree."""
    by_reader: list[dict[int, Any]] = []
    for dataset in (lance.dataset(str(root)), conroi.open_table(str(root)).to_lance()):
        found = dataset.to_table(["id", *LINEAGE]).to_pylist()
        by_reader.append({row.pop("id"): row for row in found})
        assert len(by_reader[-1]) == len(found)
        assert len({row["_rowid"] for row in found}) == len(found), "a row id twice"
    assert by_reader[0] == by_reader[1]
    return by_reader[0]
