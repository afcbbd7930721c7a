"""Every verb of a table, done by us and by pylance, each on a copy of a table that an older release made."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lance
import pyarrow as pa

import conroi
from tests.support.arrow import column_values

Ours = Callable[[conroi.Table], Any]
Theirs = Callable[[Any], Any]


def new_rows(table: Any, *ids: int) -> pa.Table:
    """Rows with these ids; everything else is as in one of the rows that are there."""
    dataset = table.to_lance() if isinstance(table, conroi.Table) else table
    row = dataset.scanner(filter="id = 0", blob_handling="all_binary").to_table()
    columns: list[Any] = []
    for field in dataset.schema:
        value = row[field.name].to_pylist()[0]
        values = [number if field.name == "id" else value for number in ids]
        is_blob = isinstance(field.type, pa.BaseExtensionType)
        columns.append(lance.blob_array(values) if is_blob else pa.array(values, field.type))
    return pa.table(columns, names=dataset.schema.names)


def _pylance_merge(dataset: Any) -> None:
    rows = new_rows(dataset, 1, 1000)
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)


def _merge(table: conroi.Table) -> None:
    rows = table.merge(new_rows(table, 1, 1000), on="id")
    rows.when_matched_update_all().when_not_matched_insert_all().execute()


def _transaction(table: conroi.Table) -> None:
    with table.begin() as tx:
        tx.append(new_rows(table, 1000))
        tx.delete("id = 1 or id = 1000")
        tx.update({"s": "'tx'"}, where="id = 11")


def _pylance_transaction(dataset: Any) -> None:
    dataset.delete("id = 1")
    dataset.update({"s": "'tx'"}, where="id = 11")


def _restore(table: conroi.Table) -> None:
    table.restore(1)


def _pylance_restore(dataset: Any) -> None:
    lance.dataset(dataset.uri, version=1).restore()


def _drop_indices(table: conroi.Table) -> None:
    for name in table.indices:
        table = table.drop_index(name)


def _nothing(_: Any) -> None:
    pass


VERBS: Mapping[str, tuple[Ours, Theirs]] = {
    "read": (_nothing, _nothing),
    "append": (
        lambda t: t.append(new_rows(t, 1000, 1001)),
        lambda d: lance.write_dataset(new_rows(d, 1000, 1001), d.uri, mode="append"),
    ),
    "delete": (lambda t: t.delete("id in (1, 11)"), lambda d: d.delete("id in (1, 11)")),
    "update rows": (
        lambda t: t.update({"s": "'x'"}, where="id in (1, 12)", mode="rows"),
        lambda d: d.update({"s": "'x'"}, where="id in (1, 12)"),
    ),
    "update columns": (
        lambda t: t.update({"s": "'x'"}, where="id in (1, 12)", mode="columns"),
        lambda d: d.update({"s": "'x'"}, where="id in (1, 12)"),
    ),
    "merge": (_merge, _pylance_merge),
    "transaction": (_transaction, _pylance_transaction),
    "overwrite": (
        lambda t: t.overwrite(new_rows(t, 7)),
        lambda d: lance.write_dataset(new_rows(d, 7), d.uri, mode="overwrite"),
    ),
    "add column": (lambda t: t.add_columns({"k": "id + 1"}), lambda d: d.add_columns({"k": "id + 1"})),
    "add nulls": (
        lambda t: t.add_columns(pa.field("k", pa.int64())),
        lambda d: d.add_columns(pa.field("k", pa.int64())),
    ),
    "drop column": (lambda t: t.drop_columns(["s"]), lambda d: d.drop_columns(["s"])),
    "rename": (
        lambda t: t.rename_columns({"s": "z"}),
        lambda d: d.alter_columns({"path": "s", "name": "z"}),
    ),
    "retype": (
        lambda t: t.alter_columns({"id": {"type": pa.int32()}}),
        lambda d: d.alter_columns({"path": "id", "data_type": pa.int32()}),
    ),
    "compact": (lambda t: t.compact(), lambda d: d.optimize.compact_files()),
    "sort": (lambda t: t.compact("id"), _nothing),
    "create index": (
        lambda t: t.create_index("id", name="ours"),
        lambda d: d.create_scalar_index("id", "BTREE", name="ours"),
    ),
    "optimize indices": (lambda t: t.optimize_indices(), _nothing),
    "drop indices": (_drop_indices, _nothing),
    "restore": (_restore, _pylance_restore),
    "config": (lambda t: t.set_config({"a": "b"}), _nothing),
    "metadata": (lambda t: t.set_metadata(schema={"a": "b"}), _nothing),
    "reserve": (lambda t: t.reserve_fragments(2).append(new_rows(t, 1000)), lambda d: d.insert(new_rows(d, 1000))),
}


def seen(root: Path) -> list[dict[str, Any]]:
    """The rows that pylance sees, by id."""
    dataset = lance.dataset(str(root))
    rows = dataset.scanner(blob_handling="all_binary").to_table().to_pylist()
    by_filter = column_values(dataset.to_table(columns=["id"], filter="id >= 0")["id"])
    assert sorted(by_filter) == sorted(row["id"] for row in rows), "an index finds the rows that a scan finds"
    return sorted(rows, key=lambda row: row["id"])


def compared(old: Path, verb: str) -> str | None:
    """What came of the verb on this table: "same", or the type of the refusal; None if pylance cannot do it.

    An AssertionError if the rows are others than pylance's, or if a refusal changed something.
    """
    ours, theirs = VERBS[verb]
    with TemporaryDirectory() as folder:
        mine, other = Path(folder, "mine.lance"), Path(folder, "other.lance")
        shutil.copytree(old, mine)
        shutil.copytree(old, other)
        before = seen(mine)
        try:
            theirs(lance.dataset(str(other)))
        except (OSError, ValueError, RuntimeError, KeyError, NotImplementedError, pa.ArrowInvalid):
            return None
        try:
            ours(conroi.open_table(mine))
        except conroi.ConroiError as error:
            assert seen(mine) == before, f"{verb} was refused and changed the table"
            return type(error).__name__
        assert seen(mine) == seen(other), f"{verb} gives other rows than pylance"
        assert [row["id"] for row in _ids_by_us(mine)] == [row["id"] for row in seen(mine)]
        findings = conroi.open_table(mine).doctor(deep=True).findings
        assert not findings, f"{verb}: {findings}"
        return "same"


def _ids_by_us(root: Path) -> list[dict[str, Any]]:
    return sorted(conroi.open_table(root).to_arrow(columns=["id"]).to_pylist(), key=lambda row: row["id"])
