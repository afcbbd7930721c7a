"""The verbs, each three times: as conroi does it, as pylance does it, and what it does to the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import lance
import pyarrow as pa
import pyarrow.compute as pc

from conroi import Table
from tests.interop.model import EVERY_ROW, Column, Model, Where

Ours = Callable[[Table, Model], Table]
Theirs = Callable[[lance.LanceDataset, Model], Any]
Change = Callable[[Model], None]


@dataclass(frozen=True)
class Verb:
    """One way to change a table. `ours` and `theirs` are handed the model from before; `change` changes it."""

    name: str
    ours: Ours | None = None
    theirs: Theirs | None = None
    change: Change = lambda model: None
    applies: Callable[[Model], bool] = lambda model: True
    """Whether it makes sense on such a table."""

    def __str__(self) -> str:
        return self.name


def fresh(model: Model, number: int) -> range:
    """Ids that the table never had; every verb counts on from the largest there is."""
    first = max(model.rows, default=-1) + 1
    return range(max(first, 100), max(first, 100) + number)


def appended(number: int) -> Change:
    return lambda model: model.append(model.make(fresh(model, number)))


def has(column: str) -> Callable[[Model], bool]:
    return lambda model: column in model.columns


def lacks(column: str) -> Callable[[Model], bool]:
    return lambda model: column not in model.columns


def has_rows(model: Model) -> bool:
    return len(model.rows) > 0


def null_field(name: str = "later") -> pa.Field[Any]:
    return pa.field(name, pa.date32())


# ---------------------------------------------------------------------------------------------- rows
HIGH = Where("id >= 40", lambda row: row["id"] >= 40)
FIFTHS = Where("id % 5 = 1", lambda row: row["id"] % 5 == 1)
BIG = Where("v > 200", lambda row: row["v"] is not None and row["v"] > 200)
NAMED = Where("name IS NOT NULL AND id < 30", lambda row: row["name"] is not None and row["id"] < 30)
ODD_ONE = Where("id = 21", lambda row: row["id"] == 21)
NOWHERE = Where("id = -1", lambda row: row["id"] == -1)


def overwritten(model: Model) -> None:
    rows = model.make(range(10, 35))
    model.rows.clear()
    model.append(rows)


def overwritten_where(model: Model) -> None:
    rows = model.make(fresh(model, 12))
    model.delete(HIGH)
    model.append(rows)


def plus_one(row: dict[str, Any]) -> int | None:
    return None if row["v"] is None else row["v"] + 1


def merged(model: Model) -> None:
    model.upsert(model.make([*range(20, 24), *fresh(model, 3)]))


def merge(table: Table, model: Model) -> Table:
    rows = model.new([*range(20, 24), *fresh(model, 3)])
    return table.merge(rows, on="id").when_matched_update_all().when_not_matched_insert_all().execute().table


def merge_by_pylance(dataset: lance.LanceDataset, model: Model) -> None:
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(model.new([*range(20, 24), *fresh(model, 3)]))


ROW_VERBS = (
    Verb(
        "append",
        lambda table, model: table.append(model.new(fresh(model, 7))),
        lambda dataset, model: dataset.insert(model.new(fresh(model, 7))),
        appended(7),
    ),
    Verb(
        "append one row",
        lambda table, model: table.append(model.make(fresh(model, 1))),
        lambda dataset, model: dataset.insert(model.new(fresh(model, 1))),
        appended(1),
    ),
    Verb("append no rows", lambda table, model: table.append(model.new([]))),
    Verb(
        "delete",
        lambda table, model: table.delete(FIFTHS.sql),
        lambda dataset, model: dataset.delete(FIFTHS.sql),
        lambda model: model.delete(FIFTHS),
    ),
    Verb(
        "delete whole fragments",
        lambda table, model: table.delete("id < 30"),
        lambda dataset, model: dataset.delete("id < 30"),
        lambda model: model.delete(Where("", lambda row: row["id"] < 30)),
    ),
    Verb(
        "delete by typed expression",
        lambda table, model: table.delete(pc.field("v") > 200),
        lambda dataset, model: dataset.delete("v > 200"),
        lambda model: model.delete(BIG),
    ),
    Verb("delete nothing", lambda table, model: table.delete(NOWHERE.sql), lambda d, m: d.delete(NOWHERE.sql)),
    Verb(
        "update rows",
        lambda table, model: table.update({"v": "v + 1"}, BIG.sql, mode="rows"),
        lambda dataset, model: dataset.update({"v": "v + 1"}, BIG.sql),
        lambda model: model.update({"v": plus_one}, BIG),
    ),
    Verb(
        "update columns",
        lambda table, model: table.update({"v": "v + 1"}, BIG.sql, mode="columns"),
        None,
        lambda model: model.update({"v": plus_one}, BIG),
    ),
    Verb(
        "update every row",
        lambda table, model: table.update({"v": "id", "name": "'same'"}),
        lambda dataset, model: dataset.update({"v": "id", "name": "'same'"}),
        lambda model: model.update({"v": lambda row: row["id"], "name": lambda row: "same"}),
    ),
    Verb(
        "update to null",
        lambda table, model: table.update({"name": None}, NAMED.sql),
        lambda dataset, model: dataset.update({"name": "NULL"}, NAMED.sql),
        lambda model: model.update({"name": lambda row: None}, NAMED),
    ),
    Verb(
        "delete everything",
        lambda table, model: table.delete("true"),
        lambda dataset, model: dataset.delete("true"),
        lambda model: model.delete(EVERY_ROW),
    ),
    Verb(
        "overwrite",
        lambda table, model: table.overwrite(model.new(range(10, 35))),
        lambda dataset, model: dataset.insert(model.new(range(10, 35)), mode="overwrite"),
        overwritten,
    ),
    Verb(
        "overwrite where",
        lambda table, model: table.overwrite(model.new(fresh(model, 12)), HIGH.sql),
        None,
        overwritten_where,
    ),
    Verb("merge", merge, merge_by_pylance, merged),
)


# ------------------------------------------------------------------------------------------- columns
def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"twice": pc.multiply(batch.column("id"), 2)})


def add_twice(*, nullable: bool) -> Change:
    column = Column(pa.int64(), lambda i: i * 2, nullable)
    return lambda model: model.add_column("twice", column, lambda row: row["id"] * 2)


def add_later(model: Model) -> None:
    model.add_column("later", Column(pa.date32(), lambda i: None))


def evolved(model: Model) -> None:
    rows = [row | {"extra": f"e{row['id']}"} for row in model.make(fresh(model, 4))]
    model.add_column("extra", Column(pa.string(), lambda i: f"e{i}"))
    model.append(rows)


def append_evolved(table: Table, model: Model) -> Table:
    ids = fresh(model, 4)
    rows = model.new(ids).append_column("extra", pa.array([f"e{i}" for i in ids]))
    return table.append(rows, evolve_schema=True)


def retyped(model: Model) -> None:
    model.columns["v"] = Column(pa.int32(), model.columns["v"].make)


def name_required(model: Model) -> None:
    model.columns["note"] = Column(model.columns["note"].type, model.columns["note"].make, nullable=False)


def replace_v_by_pylance(dataset: lance.LanceDataset, model: Model) -> None:
    """Every fragment gets a new file for column v."""
    from lance.fragment import DataFile

    groups: list[Any] = []
    data = Path(dataset.uri.removeprefix("file://")) / "data"
    schema = pa.schema([dataset.schema.field("v")])
    v = next(field for field in dataset.lance_schema.fields() if field.name() == "v")
    for fragment in dataset.get_fragments():
        scanner = fragment.scanner(columns={"v": "id * 3"}, include_deleted_rows=True, with_row_id=True)
        name = f"replaced-{dataset.version}-{fragment.fragment_id}.lance"
        version = dataset.data_storage_version
        with lance.file.LanceFileWriter(str(data / name), schema, version=version) as writer:
            for batch in scanner.to_batches():
                writer.write_batch(batch.select(["v"]).cast(schema))
        size = (data / name).stat().st_size
        file = DataFile(name, [v.id()], [0], 2, int(version.partition(".")[2]), size)
        groups.append(lance.LanceOperation.DataReplacementGroup(fragment.fragment_id, file))
    operation = lance.LanceOperation.DataReplacement(groups)
    lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)


COLUMN_VERBS = (
    Verb(
        "add a column by SQL",
        lambda table, model: table.add_columns({"twice": "id * 2"}),
        lambda dataset, model: dataset.add_columns({"twice": "id * 2"}),
        add_twice(nullable=False),  # as the expression is
        lacks("twice"),
    ),
    Verb(
        "add a column by function",
        lambda table, model: table.add_columns(doubled, read_columns=["id"]),
        lambda dataset, model: dataset.add_columns(doubled, read_columns=["id"]),
        add_twice(nullable=True),
        lacks("twice"),
    ),
    Verb(
        "add a column of nulls",
        lambda table, model: table.add_columns(null_field()),
        lambda dataset, model: dataset.add_columns(null_field()),
        add_later,
        lacks("later"),
    ),
    Verb("append with a new column", append_evolved, None, evolved, lacks("extra")),
    Verb(
        "drop a column",
        lambda table, model: table.drop_columns(["tags"]),
        lambda dataset, model: dataset.drop_columns(["tags"]),
        lambda model: model.drop_column("tags"),
        has("tags"),
    ),
    Verb(
        "rename a column",
        lambda table, model: table.rename_columns({"at": "place"}),
        lambda dataset, model: dataset.alter_columns(cast("Any", {"path": "at", "name": "place"})),
        lambda model: model.rename_column("at", "place"),
        has("at"),
    ),
    Verb(
        "change a column's type",
        lambda table, model: table.alter_columns({"v": {"type": pa.int32()}}),
        lambda dataset, model: dataset.alter_columns(cast("Any", {"path": "v", "data_type": pa.int32()})),
        retyped,
    ),
    Verb(
        "forbid nulls",
        lambda table, model: table.alter_columns({"note": {"nullable": False}}),
        lambda dataset, model: dataset.alter_columns(cast("Any", {"path": "note", "nullable": False})),
        name_required,
    ),
    Verb(
        "replace column data",
        lambda table, model: table.replace_column_data({"v": "id * 3"}),
        replace_v_by_pylance,
        lambda model: model.update({"v": lambda row: row["id"] * 3}),
    ),
)


# ------------------------------------------------------------------------- settings, whole table, indices
def build(column: str, kind: str, **options: Any) -> Ours:
    return lambda table, model: table.create_index(column, kind, name=f"by_{column}", replace=True, options=options)


def build_by_pylance(column: str, kind: str, **options: Any) -> Theirs:
    if kind.startswith("IVF"):
        return lambda dataset, model: dataset.create_index(column, kind, name=f"by_{column}", replace=True, **options)
    scalar = cast("Any", kind)
    return lambda d, model: d.create_scalar_index(column, scalar, name=f"by_{column}", replace=True, **options)


def index_and_drop(table: Table, model: Model) -> Table:
    return table.create_index("id", name="short_lived").drop_index("short_lived")


def index_and_drop_by_pylance(dataset: lance.LanceDataset, model: Model) -> None:
    dataset.create_scalar_index("id", "BTREE", name="short_lived")
    dataset.drop_index("short_lived")


def add_base_by_pylance(dataset: lance.LanceDataset, model: Model) -> None:
    from lance.lance import DatasetBasePath

    name = f"base{dataset.version}"
    dataset.add_bases([DatasetBasePath(f"/elsewhere/{name}", name=name)])


def tag_by_pylance(dataset: lance.LanceDataset, model: Model) -> None:
    dataset.tags.create(f"tag-{dataset.version}", dataset.version)


def tag(table: Table, model: Model) -> Table:
    table.tags.create(f"our-tag-{table.version}")
    return table


def restore(table: Table, model: Model) -> Table:
    """Back to the oldest version and forth again: what the newest was, it is again."""
    oldest, *_, newest = table.versions()
    return table.restore(oldest).restore(newest)


def restore_by_pylance(dataset: lance.LanceDataset, model: Model) -> None:
    oldest, *_, newest = sorted(version["version"] for version in dataset.versions())
    dataset.checkout_version(oldest).restore()
    dataset.checkout_version(newest).restore()


TABLE_VERBS = (
    Verb(
        "set config",
        lambda table, model: table.set_config({"team": "blue", "gone": None}),
        lambda dataset, model: dataset.update_config({"team": "blue"}),
    ),
    Verb(
        "set table metadata",
        lambda table, model: table.set_metadata({"owner": "us"}),
        lambda dataset, model: dataset.update_metadata({"owner": "them"}),
    ),
    Verb(
        "set schema metadata",
        lambda table, model: table.set_metadata(schema={"unit": "mm"}),
        lambda dataset, model: dataset.update_schema_metadata({"unit": "mm"}),
    ),
    Verb(
        "set field metadata",
        lambda table, model: table.set_metadata(fields={"v": {"unit": "mm"}}),
        lambda dataset, model: dataset.update_field_metadata({"v": {"unit": "mm"}}),
    ),
    Verb(
        "add a base",
        lambda table, model: table.add_base(f"/elsewhere/ours{table.version}", name=f"ours{table.version}"),
        add_base_by_pylance,
    ),
    Verb("reserve fragments", lambda table, model: table.reserve_fragments(3)),
    Verb("scalar index", build("id", "BTREE"), build_by_pylance("id", "BTREE"), applies=has_rows),
    Verb("bitmap index", build("v", "BITMAP"), build_by_pylance("v", "BITMAP"), applies=has_rows),
    Verb("text index", build("name", "INVERTED"), build_by_pylance("name", "INVERTED"), applies=has_rows),
    Verb(
        "vector index",
        build("vec", "IVF_FLAT", num_partitions=2, metric="L2"),
        build_by_pylance("vec", "IVF_FLAT", num_partitions=2),
        applies=has_rows,
    ),
    Verb("index and drop it", index_and_drop, index_and_drop_by_pylance, applies=has_rows),
    Verb("compact", lambda table, model: table.compact(), lambda dataset, model: dataset.optimize.compact_files()),
    Verb("sort", lambda table, model: table.compact("v")),
    Verb("restore", restore, restore_by_pylance),
    Verb("tag", tag, tag_by_pylance),
)

VERBS = (*ROW_VERBS, *COLUMN_VERBS, *TABLE_VERBS)


def named(name: str) -> Verb:
    return next(verb for verb in VERBS if verb.name == name)
