"""Random histories of one table that pylance and conroi write in turn, with a plain model beside it.

A history is made from a seed and nothing else, so that one that fails can be run again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import lance
import pyarrow as pa

import conroi
from conroi import ManifestNaming
from conroi.verbs.update import Mode
from tests.interop.history_facts import Effect, Lineage, Past, small_columns
from tests.interop.model import EVERY_ROW, Column, Model, Row, Where
from tests.interop.readers import assert_found, assert_seen, lineage


class History:
    """One table on its way. `step` does something to it at random, and checks that all readers see the same."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.seed = seed
        self.random = random.Random(seed)
        self.model = Model(small_columns())
        self.done: list[str] = []
        self.next_id = 0
        self.names = 0
        self.lines: dict[int, Lineage] = {}
        self.used_row_ids: set[int] = set()
        self.past: dict[int, Past] = {}
        self.has_row_ids = self.random.random() < 0.5
        self.is_index_late = False
        self._create()

    def __repr__(self) -> str:
        return f"History(seed={self.seed}): " + " → ".join(self.done)

    # ------------------------------------------------------------------------------------------ what is there

    @property
    def table(self) -> conroi.Table:
        return conroi.open_table(self.root)

    @property
    def dataset(self) -> lance.LanceDataset:
        return lance.dataset(str(self.root))

    def _create(self) -> None:
        naming = self.random.choice(list(ManifestNaming))
        data_format = self.random.choice(["2.2", "2.2", "2.1", "2.0"])
        rows = self.new_rows(self.random.choice([0, 1, 12, 40]))
        by_us = self.random.random() < 0.5
        self.log("create", by_us, f"{len(rows)} rows, {naming.name}, {data_format}, row ids {self.has_row_ids}")
        if by_us:
            conroi.create_table(
                self.root,
                self.model.arrow(rows),
                stable_row_ids=self.has_row_ids,
                naming=naming,
                data_format=data_format,
            )
        else:
            lance.write_dataset(
                self.model.arrow(rows),
                str(self.root),
                enable_stable_row_ids=self.has_row_ids,
                enable_v2_manifest_paths=naming is ManifestNaming.V2,
                data_storage_version=cast("Any", data_format),
            )
        self.model.append(rows)
        self.check(Effect(new={row["id"] for row in rows}))

    def new_rows(self, number: int) -> list[Row]:
        ids = range(self.next_id, self.next_id + number)
        self.next_id += number
        return self.model.make(ids)

    def log(self, what: str, by_us: bool, detail: str = "") -> None:
        self.done.append(f"{'conroi' if by_us else 'pylance'} {what}" + (f" ({detail})" if detail else ""))

    # ------------------------------------------------------------------------------------------------ one step

    def step(self) -> None:
        steps: list[tuple[int, Callable[[bool], Effect]]] = [
            (5, self.append),
            (4, self.delete),
            (5, self.update),
            (4, self.merge),
            (1, self.overwrite),
            (2, self.overwrite_where),
            (2, self.add_column),
            (2, self.drop_column),
            (1, self.rename_column),
            (2, self.replace_column),
            (3, self.compact),
            (1, self.sort),
            (4, self.build_index),
            (1, self.drop_index),
            (1, self.optimize_indices),
            (2, self.restore),
            (1, self.tag),
            (1, self.set_config),
            (1, self.reserve),
        ]
        weights, doers = zip(*steps, strict=True)
        (doer,) = self.random.choices(doers, weights)
        effect = doer(self.random.random() < 0.6)
        self.check(effect)

    def where(self) -> Where:
        a, b = self.random.randrange(2, 7), self.random.randrange(20)
        some = set(self.random.sample(sorted(self.model.rows), min(len(self.model.rows), self.random.randrange(1, 5))))
        conditions = [
            Where(f"id % {a} = {b % a}", lambda row: row["id"] % a == b % a),
            Where(f"v < {b}", lambda row: row["v"] is not None and row["v"] < b),
            Where(f"v = {b}", lambda row: row["v"] == b),
            Where("v IS NULL", lambda row: row["v"] is None),
            Where(f"name = 'name {a}'", lambda row: row["name"] == f"name {a}"),
            Where(f"id IN ({', '.join(map(str, some or {0}))})", lambda row: row["id"] in some),
            Where(f"id >= {b} AND id < {b * 3}", lambda row: b <= row["id"] < b * 3),
        ]
        if "tags" in self.model.columns:
            has_tag = Where(f"array_has(tags, 't{a}')", lambda row: row["tags"] is not None and f"t{a}" in row["tags"])
            conditions.append(has_tag)
        return self.random.choice(conditions)

    # ---------------------------------------------------------------------------------------------------- rows

    def append(self, by_us: bool) -> Effect:
        rows = self.new_rows(self.random.choice([1, 2, 15, 30]))
        self.log("append", by_us, f"{len(rows)} rows")
        data = self.model.arrow(rows)
        self.table.append(data) if by_us else self.dataset.insert(data)
        self.model.append(rows)
        return Effect(new={row["id"] for row in rows})

    def delete(self, by_us: bool) -> Effect:
        where = self.where()
        self.log("delete", by_us, where.sql)
        self.table.delete(where.sql) if by_us else self.dataset.delete(where.sql)
        self.model.delete(where)
        return Effect()

    def update(self, by_us: bool) -> Effect:
        where = self.random.choice([self.where(), self.where(), EVERY_ROW])
        number = self.random.randrange(20)
        values: dict[str, tuple[str, Callable[[Row], Any]]] = {
            "v": self.random.choice(
                [
                    (str(number), lambda row: number),
                    ("NULL", lambda row: None),
                    ("v + 1", lambda row: None if row["v"] is None else row["v"] + 1),
                ]
            ),
            "name": (f"'name {number}'", lambda row: f"name {number}"),
        }
        if "tags" in self.model.columns:
            values["tags"] = (f"make_array('t{number}')", lambda row: [f"t{number}"])
        chosen = self.random.sample(sorted(values), self.random.randrange(1, len(values) + 1))
        sql = {column: values[column][0] for column in chosen}
        modes: list[Mode] = ["auto", "rows", "columns"]
        mode = self.random.choice(modes)
        self.log("update", by_us, f"{sql} where {where.sql}" + (f", {mode}" if by_us else ""))
        changed = self.model.matching(where)
        if by_us:
            self.table.update(sql, where.sql, mode=mode)
        else:
            self.dataset.update(sql, where.sql)
        self.model.update({column: values[column][1] for column in chosen}, where)
        return Effect(changed=changed)

    def merge(self, by_us: bool) -> Effect:
        known = self.random.sample(sorted(self.model.rows), min(len(self.model.rows), self.random.randrange(6)))
        new = self.new_rows(self.random.randrange(4))
        changed = [self.model.rows[i] | {"v": i % 13, "name": "merged"} for i in known]
        if not changed and not new:
            return Effect()
        updates = self.random.random() < 0.8
        self.log("merge", by_us, f"{known} known, {len(new)} new, {'update' if updates else 'keep'}")
        data = self.model.arrow(self.random.sample([*changed, *new], len(changed) + len(new)))
        builder: Any = self.table.merge(data, on="id") if by_us else self.dataset.merge_insert("id")
        if updates:
            builder = builder.when_matched_update_all()
        builder = builder.when_not_matched_insert_all()
        builder.execute() if by_us else builder.execute(data)
        self.model.upsert([*changed, *new] if updates else new)
        return Effect(new={row["id"] for row in new}, changed=set(known) if updates else set())

    def overwrite(self, by_us: bool) -> Effect:
        rows = self.new_rows(self.random.choice([0, 10, 25]))
        self.log("overwrite", by_us, f"{len(rows)} rows")
        data = self.model.arrow(rows)
        self.table.overwrite(data) if by_us else self.dataset.insert(data, mode="overwrite")
        self.model.rows.clear()
        self.model.append(rows)
        return Effect(new={row["id"] for row in rows})

    def overwrite_where(self, by_us: bool) -> Effect:
        border = self.random.randrange(self.next_id + 1)
        rows = self.new_rows(self.random.randrange(6))
        self.log("overwrite where", True, f"id >= {border}, {len(rows)} rows")
        self.table.overwrite(self.model.arrow(rows), f"id >= {border}")
        self.model.delete(Where("", lambda row: row["id"] >= border))
        self.model.append(rows)
        return Effect(new={row["id"] for row in rows})

    # ------------------------------------------------------------------------------------------------- columns

    def add_column(self, by_us: bool) -> Effect:
        name = self.random.choice(["extra", "other"])  # names come back: their old values must not
        if name in self.model.columns:
            return Effect()
        target: Any = self.table if by_us else self.dataset
        if self.random.random() < 0.4 or not self.model.rows:
            self.log("add column of nulls", by_us, name)
            target.add_columns(pa.field(name, pa.int64()))
            self.model.add_column(name, Column(pa.int64(), lambda i: i))
            return Effect()
        factor = self.random.randrange(2, 9)
        self.log("add column", by_us, f"{name} = id * {factor}")
        target.add_columns({name: f"id * {factor}"})
        column = Column(pa.int64(), lambda i: i * factor, nullable=False)
        self.model.add_column(name, column, lambda row: row["id"] * factor)
        return Effect(changed=set(self.model.rows))

    def drop_column(self, by_us: bool) -> Effect:
        free = [name for name in self.model.columns if name not in ("id", "v", "name")]
        if not free:
            return Effect()
        name = self.random.choice(free)
        self.log("drop column", by_us, name)
        self.table.drop_columns([name]) if by_us else self.dataset.drop_columns([name])
        self.model.drop_column(name)
        return Effect()

    def rename_column(self, by_us: bool) -> Effect:
        if "extra" not in self.model.columns:
            return Effect()
        self.names += 1
        name = f"renamed{self.names}"
        self.log("rename column", by_us, f"extra to {name}")
        if by_us:
            self.table.rename_columns({"extra": name})
        else:
            self.dataset.alter_columns(cast("Any", {"path": "extra", "name": name}))
        self.model.rename_column("extra", name)
        return Effect()

    def replace_column(self, by_us: bool) -> Effect:
        if not self.model.rows:
            return Effect()
        self.log("replace column data", True, "v = id % 19")
        self.table.replace_column_data({"v": "id % 19"})
        self.model.update({"v": lambda row: row["id"] % 19})
        return Effect(changed=set(self.model.rows))

    # -------------------------------------------------------------------------------------- table and indices

    def compact(self, by_us: bool) -> Effect:
        # After one compaction that left the indices for later, pylance 14 loses rows of a B-tree in one that does not.
        later = not by_us and not self.has_row_ids and (self.is_index_late or self.random.random() < 0.4)
        self.is_index_late |= later
        self.log("compact", by_us, "indices later" if later else "")
        if by_us:
            self.table.compact()
        else:
            self.dataset.optimize.compact_files(defer_index_remap=later)
        return Effect()

    def sort(self, by_us: bool) -> Effect:
        column = self.random.choice(["id", "v", "name"])
        self.log("sort", True, column)
        self.table.compact(column)
        return Effect()

    def build_index(self, by_us: bool) -> Effect:
        if not self.model.rows:
            return Effect()
        kinds = [("v", kind) for kind in ("BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER")]
        kinds += [("id", "BTREE"), ("name", "BITMAP"), ("name", "BTREE")]
        kinds += [("tags", "LABEL_LIST")] if "tags" in self.model.columns else []
        column, kind = self.random.choice(kinds)
        self.log("index", by_us, f"{kind} on {column}")
        if by_us:
            self.table.create_index(column, kind, name=f"by_{column}", replace=True)
        else:
            self.dataset.create_scalar_index(column, cast("Any", kind), name=f"by_{column}", replace=True)
        return Effect()

    def drop_index(self, by_us: bool) -> Effect:
        names = sorted(self.table.indices)
        if not names:
            return Effect()
        name = self.random.choice(names)
        self.log("drop index", by_us, name)
        self.table.drop_index(name) if by_us else self.dataset.drop_index(name)
        return Effect()

    def optimize_indices(self, by_us: bool) -> Effect:
        if not self.table.indices or not self.model.rows:
            return Effect()
        self.log("optimize indices", False)
        self.dataset.optimize.optimize_indices()
        return Effect()

    def restore(self, by_us: bool) -> Effect:
        version = self.random.choice(sorted(self.past))
        self.log("restore", by_us, f"version {version}")
        if by_us:
            self.table.restore(version)
        else:
            lance.dataset(str(self.root), version=version).restore()
        self.model = self.past[version].model.copy()
        return Effect(restored=version)

    def tag(self, by_us: bool) -> Effect:
        version = self.random.choice(sorted(self.past))
        self.names += 1
        name = f"tag{self.names}"
        self.log("tag", by_us, f"version {version}")
        self.table.tags.create(name, version) if by_us else self.dataset.tags.create(name, version)
        assert self.table.at(tag=name).version == version == lance.dataset(str(self.root), version=name).version
        return Effect()

    def set_config(self, by_us: bool) -> Effect:
        self.log("set config", by_us)
        values: dict[str, str | None] = {"k": str(self.random.randrange(9))}
        self.table.set_config(values) if by_us else self.dataset.update_config(values)
        assert self.table.config["k"] == self.dataset.config()["k"] == values["k"]
        return Effect()

    def reserve(self, by_us: bool) -> Effect:
        self.log("reserve fragments", True)
        self.table.reserve_fragments(2)
        return Effect()

    # ----------------------------------------------------------------------------------------------- checking

    def check(self, effect: Effect) -> None:
        """Both readers see the model's rows, with and without an index, and every row still is who it was."""
        try:
            assert_seen(self.root, self.model)
            for _ in range(3):
                assert_found(self.dataset, self.table, self.model, self.where())
            if self.has_row_ids:
                self.check_lineage(effect)
            self.past[self.table.version] = Past(self.model.copy(), dict(self.lines))
        except AssertionError as error:
            raise AssertionError(f"{self!r}\n{error}") from error

    def check_lineage(self, effect: Effect) -> None:
        version = self.table.version
        found = {
            i: Lineage(row["_rowid"], row["_row_created_at_version"], row["_row_last_updated_at_version"])
            for i, row in lineage(self.root).items()
        }
        before = self.lines if effect.restored is None else self.past[effect.restored].lines
        for i, line in found.items():
            if i in effect.new:
                assert line.row_id not in self.used_row_ids, f"the id of row {i} is not new"
                assert (line.created, line.updated) == (version, version), f"new row {i}: {line}"
                self.used_row_ids.add(line.row_id)
                continue
            expected = before[i]
            if i in effect.changed:
                expected = Lineage(expected.row_id, expected.created, version)
            assert line == expected, f"row {i}"
        self.lines = found


def run_history(root: Path, seed: int, steps: int) -> History:
    """Make a table and change it so many times; every error says how to see it again."""
    history = History(root, seed)
    for _ in range(steps):
        try:
            history.step()
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"{history!r}\nraised {type(error).__name__}: {error}") from error
    return history
