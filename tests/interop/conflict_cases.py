"""A small real table, one change of every kind that pylance's Python can commit, and winners of the other kinds.

The table has fragments 0 to 3 with ten rows each, of which one row of fragment 1 is deleted; columns a (the declared
key), b, c; and an index "old" on c over fragments 0 to 2. All files of all changes are written into the table's folder
first, so that a copy of the folder is enough to try any of them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

import lance
import pyarrow as pa
from lance import LanceOperation as Lance
from lance.dataset import Index
from lance.file import LanceFileWriter
from lance.fragment import DataFile, FragmentMetadata, write_fragments
from lance.lance import DatasetBasePath
from lance.schema import LanceSchema
from pyroaring import BitMap

from conroi import operations as ops
from conroi.format import lance_pb2 as pb
from conroi.format.manifest_file import encode_manifest_file
from conroi.format.transaction import encode_transaction
from tests.support.parity import Version, read_version

KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema(
    [pa.field("a", pa.int64(), nullable=False, metadata=KEY), pa.field("b", pa.int64()), pa.field("c", pa.int64())]
)
B, C = 1, 2
SHARD = UUID(int=7)

Commit = Callable[[lance.LanceDataset], object]
Rows = Mapping[int, Iterable[int]]


@dataclass(frozen=True)
class Case:
    """A change: a `LanceOperation` to commit on an old version, or a call on a handle that stands there."""

    operation: Lance.BaseOperation | None = None
    call: Commit | None = None
    rows: Rows | None = None
    """The rows that pylance compares in a call; an operation that is handed over has none."""


def table(first: int, count: int) -> pa.Table:
    rows = range(first, first + count)
    return pa.table({"a": list(rows), "b": [0] * count, "c": list(rows)}, schema=SCHEMA)


@dataclass
class Prepared:
    """The table's folder and the changes that can be tried on it."""

    root: Path
    cases: dict[str, Case] = field(default_factory=dict[str, Case])
    dataset: lance.LanceDataset = field(init=False)

    def __post_init__(self) -> None:
        self.dataset = lance.write_dataset(table(0, 40), str(self.root), max_rows_per_file=10)
        self.dataset.delete("a = 19")
        old = self.built("c", "old", [0, 1, 2])
        self.dataset = lance.LanceDataset.commit(
            str(self.root), Lance.CreateIndex([old], []), read_version=self.dataset.version
        )
        self.cases = {**self._row_changes(), **self._calls(), **self._table_changes(), **self._column_changes()}
        self.cases |= self._index_changes() | self._settings()

    @property
    def version(self) -> int:
        return self.dataset.version

    def copy(self, to: Path) -> str:
        shutil.copytree(self.root, to)
        return str(to)

    # ------------------------------------------------------------------------------- pieces
    def fragments(self, first: int, count: int = 1) -> list[FragmentMetadata]:
        return write_fragments(table(first, count), self.dataset, mode="append")

    def fragment(self, number: int) -> FragmentMetadata:
        return self.dataset.get_fragment(number).metadata

    def without(self, number: int, predicate: str) -> FragmentMetadata:
        return self.dataset.get_fragment(number).delete(predicate)

    def column_file(self, name: str, column: int, rows: int = 10) -> DataFile:
        schema = pa.schema([SCHEMA.field(column)])
        path = self.root / "data" / name
        with LanceFileWriter(str(path), schema, version="2.2") as writer:
            writer.write_batch(pa.record_batch([pa.array([7] * rows, pa.int64())], schema=schema))
        return DataFile(name, [column], [0], 2, 2, path.stat().st_size)

    def column_rewritten(self, number: int, column: int, name: str) -> FragmentMetadata:
        """The fragment with a new file for a column; the old file no longer answers for it."""
        facts = json.loads(json.dumps(self.fragment(number).to_json()))
        new = self.column_file(name, column)
        facts["files"][0]["fields"][column] = -2
        size = (self.root / "data" / name).stat().st_size
        facts["files"].append(
            facts["files"][0] | {"path": new.path, "fields": [column], "column_indices": [0], "file_size_bytes": size}
        )
        return FragmentMetadata.from_json(json.dumps(facts))

    def built(self, column: str, name: str, fragments: list[int]) -> Index:
        # Built under another name, because pylance refuses to build a second part of an index in this way.
        index = self.dataset.create_index_uncommitted(column, "BTREE", name=f"{name}-built", fragment_ids=fragments)
        return replace(index, name=name)

    # ------------------------------------------------------------------------------- changes
    def _row_changes(self) -> dict[str, Case]:
        offsets = {0: BitMap([3]).serialize()}
        changes = {
            "append": Lance.Append(self.fragments(100)),
            "delete row 1 of 0": Lance.Delete([self.without(0, "a = 1")], [], "a = 1"),
            "delete row 5 of 0": Lance.Delete([self.without(0, "a = 5")], [], "a = 5"),
            "delete row 1 of 2": Lance.Delete([self.without(2, "a = 21")], [], "a = 21"),
            "delete all of 0": Lance.Delete([], [0], "a < 10"),
            "move row 1 of 0": self._move(0, "a = 1"),
            "move row 5 of 0": self._move(0, "a = 5"),
            "move row 1 of 2": self._move(2, "a = 21"),
            "move all of 0": Lance.Update(removed_fragment_ids=[0], new_fragments=self.fragments(0, 10)),
            "rewrite b of 0": Lance.Update(
                updated_fragments=[self.column_rewritten(0, B, "rb0.lance")],
                fields_modified=[B],
                update_mode="rewrite_columns",
            ),
            "rewrite c of 0, rows known": Lance.Update(
                updated_fragments=[self.column_rewritten(0, C, "rc0.lance")],
                fields_modified=[C],
                update_mode="rewrite_columns",
                updated_fragment_offsets=offsets,
            ),
            "compact 0 and 1": self._compact([0, 1], 19),
            "compact 2 and 3": self._compact([2, 3], 20),
        }
        return {name: Case(operation) for name, operation in changes.items()}

    def _move(self, number: int, predicate: str) -> Lance.Update:
        return Lance.Update(
            updated_fragments=[self.without(number, predicate)],
            new_fragments=self.fragments(number * 10 + 1),
            fields_for_preserving_frag_bitmap=[0, B, C],
            update_mode="rewrite_rows",
        )

    def _compact(self, numbers: list[int], rows: int) -> Lance.Rewrite:
        group = Lance.RewriteGroup([self.fragment(n) for n in numbers], self.fragments(numbers[0] * 10, rows))
        return Lance.Rewrite([group], [])

    def _calls(self) -> dict[str, Case]:
        """Changes that pylance carries out itself, so that it knows their rows and keys."""
        return {
            "call delete row 1 of 0": Case(call=_deleting("a = 1"), rows={0: [1]}),
            "call delete row 5 of 0": Case(call=_deleting("a = 5"), rows={0: [5]}),
            "call delete first half of 0": Case(call=_deleting("a < 5"), rows={0: range(5)}),
            "call delete second half of 0": Case(call=_deleting("a >= 5 and a < 10"), rows={0: range(5, 10)}),
            "call delete all of 0": Case(call=_deleting("a < 10"), rows={0: range(10)}),
            "call update row 1 of 0": Case(call=_updating("a = 1"), rows={0: [1]}),
            "call update row 5 of 0": Case(call=_updating("a = 5"), rows={0: [5]}),
            "call insert key 501": Case(call=_inserting(501), rows={}),
            "call insert key 502": Case(call=_inserting(502), rows={}),
            "call merge row 1 of 0": Case(call=_inserting(1), rows={0: [1]}),
            "call add base one": Case(call=_adding_base("one")),
            "call add base two": Case(call=_adding_base("two")),
            "call start streaming": Case(call=lambda dataset: dataset.initialize_mem_wal()),
        }

    def _table_changes(self) -> dict[str, Case]:
        return {
            "overwrite": Case(Lance.Overwrite(SCHEMA, self.fragments(200))),
            "restore": Case(Lance.Restore(1)),
        }

    def _column_changes(self) -> dict[str, Case]:
        everything = [fragment.metadata for fragment in self.dataset.get_fragments()]
        whole, without_c = (
            self.dataset.lance_schema,
            LanceSchema.from_pyarrow(pa.schema([SCHEMA.field(0), SCHEMA.field(1)])),
        )
        overlay = Lance.DataOverlayFile(self.column_file("overlay.lance", B, 1), [1])
        changes = {
            "merge": Lance.Merge(everything, whole, preserves_nullability=True),
            "merge, no promise": Lance.Merge(everything, whole),
            "drop c": Lance.Project(without_c, preserves_nullability=True),
            "drop nothing, no promise": Lance.Project(whole),
            "replace b of 0": self._replacement(0, B),
            "replace c of 0": self._replacement(0, C),
            "replace b of 2": self._replacement(2, B),
            "overlay b over row 1 of 0": Lance.DataOverlay([Lance.DataOverlayGroup(0, [overlay])]),
            "overlay b over row 1 of 2": Lance.DataOverlay([Lance.DataOverlayGroup(2, [overlay])]),
        }
        return {name: Case(operation) for name, operation in changes.items()}

    def _replacement(self, number: int, column: int) -> Lance.DataReplacement:
        file = self.column_file(f"replaced-{number}-{column}.lance", column)
        return Lance.DataReplacement([Lance.DataReplacementGroup(number, file)])

    def _index_changes(self) -> dict[str, Case]:
        old = next(index for index in self._committed_indices() if index.name == "old")
        changes = {
            "index by_b over 0 and 1": ([self.built("b", "by_b", [0, 1])], []),
            "index by_b over 2": ([self.built("b", "by_b", [2])], []),
            "index by_c over 2 and 3": ([self.built("c", "by_c", [2, 3])], []),
            "drop old": ([], [old]),
            "extend old": ([self.built("c", "old", [3])], []),
            "replace old": ([self.built("c", "old", [0, 1, 2, 3])], [old]),
            "replace old by another name": ([self.built("c", "new", [0, 1])], [old]),
        }
        return {name: Case(Lance.CreateIndex(new, removed)) for name, (new, removed) in changes.items()}

    def _committed_indices(self) -> list[Index]:
        transactions = (self.dataset.read_transaction(version) for version in range(1, self.version + 1))
        made = (t.operation for t in transactions if t is not None)
        return [index for op in made if isinstance(op, Lance.CreateIndex) for index in op.new_indices]

    def _settings(self) -> dict[str, Case]:
        def to(updates: dict[str, str | None], *, replace: bool = False) -> Lance.UpdateMap:
            return Lance.UpdateMap(updates, replace)

        changes = {
            "set k": Lance.UpdateConfig(config_updates=to({"k": "1"})),
            "set j": Lance.UpdateConfig(config_updates=to({"j": "1"})),
            "delete k": Lance.UpdateConfig(config_updates=to({"k": None})),
            "replace config by j": Lance.UpdateConfig(config_updates=to({"j": "1"}, replace=True)),
            "table metadata t": Lance.UpdateConfig(table_metadata_updates=to({"t": "1"})),
            "table metadata s": Lance.UpdateConfig(table_metadata_updates=to({"s": "1"})),
            "replace table metadata": Lance.UpdateConfig(table_metadata_updates=to({"u": "1"}, replace=True)),
            "schema metadata": Lance.UpdateConfig(schema_metadata_updates=to({"s": "1"})),
            "schema metadata, no change": Lance.UpdateConfig(schema_metadata_updates=to({})),
            "column metadata of b": Lance.UpdateConfig(field_metadata_updates={B: to({"f": "1"})}),
            "column metadata of c": Lance.UpdateConfig(field_metadata_updates={C: to({"f": "1"})}),
            "column metadata, no change": Lance.UpdateConfig(field_metadata_updates={C: to({})}),
        }
        return {name: Case(operation) for name, operation in changes.items()}


def _deleting(predicate: str) -> Commit:
    return lambda dataset: dataset.delete(predicate, conflict_retries=0)


def _updating(predicate: str) -> Commit:
    return lambda dataset: dataset.update({"b": "b + 1"}, where=predicate, conflict_retries=0)


def _inserting(key: int) -> Commit:
    def commit(dataset: lance.LanceDataset) -> object:
        merge = dataset.merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
        return merge.conflict_retries(0).execute(table(key, 1))

    return commit


def _adding_base(name: str) -> Commit:
    return lambda dataset: dataset.add_bases([DatasetBasePath(path=f"/conroi-base-{name}", name=name)])


# ------------------------------------------------------------------------ winners that only we can make
def planted() -> dict[str, ops.Operation]:
    """Operations that pylance's Python cannot commit, but that may have come first."""
    mark = pb.CompactedSsTable(shard_id=pb.UUID(uuid=SHARD.bytes), generation=1)
    return {
        "planted reservation": ops.ReserveFragments(num_fragments=2),
        "planted streaming progress": ops.UpdateMemWalState(compacted_sstables=(mark,)),
        "planted clone": ops.Clone(is_shallow=True, ref_version=1, ref_path="/elsewhere"),
        "planted unknown": ops.Unknown(),
        "planted overwrite that sets k": ops.Overwrite(config_upsert_values={"k": "9"}),
    }


def plant(root: str, base: Version, operation: ops.Operation) -> None:
    """Write the next version as if a writer had committed this: only its number and its transaction are new."""
    version = base.manifest.version + 1
    made = ops.transaction(operation, read_version=base.manifest.version, uuid=str(UUID(int=version)))
    head = base.manifest.editable_head()
    head.version = version
    encoded = encode_transaction(made)
    head.transaction_file = f"{base.manifest.version}-{made.uuid}.txn"  # pylance up to 13 looks only there
    (Path(root) / "_transactions" / head.transaction_file).write_bytes(encoded)
    file = encode_manifest_file(base.manifest.changed(head=head), encoded)
    manifest_path(root, version).write_bytes(file)


def manifest_path(root: str, version: int) -> Path:
    return Path(root) / "_versions" / f"{2**64 - 1 - version:020d}.manifest"


def committed(root: str, version: int) -> Version:
    """What is on disk for a version."""
    return read_version(manifest_path(root, version))


CASE_NAMES = (
    "append",
    "delete row 1 of 0",
    "delete row 5 of 0",
    "delete row 1 of 2",
    "delete all of 0",
    "move row 1 of 0",
    "move row 5 of 0",
    "move row 1 of 2",
    "move all of 0",
    "rewrite b of 0",
    "rewrite c of 0, rows known",
    "compact 0 and 1",
    "compact 2 and 3",
    "call delete row 1 of 0",
    "call delete row 5 of 0",
    "call delete first half of 0",
    "call delete second half of 0",
    "call delete all of 0",
    "call update row 1 of 0",
    "call update row 5 of 0",
    "call insert key 501",
    "call insert key 502",
    "call merge row 1 of 0",
    "call add base one",
    "call add base two",
    "call start streaming",
    "overwrite",
    "restore",
    "merge",
    "merge, no promise",
    "drop c",
    "drop nothing, no promise",
    "replace b of 0",
    "replace c of 0",
    "replace b of 2",
    "overlay b over row 1 of 0",
    "overlay b over row 1 of 2",
    "index by_b over 0 and 1",
    "index by_b over 2",
    "index by_c over 2 and 3",
    "drop old",
    "extend old",
    "replace old",
    "replace old by another name",
    "set k",
    "set j",
    "delete k",
    "replace config by j",
    "table metadata t",
    "table metadata s",
    "replace table metadata",
    "schema metadata",
    "schema metadata, no change",
    "column metadata of b",
    "column metadata of c",
    "column metadata, no change",
)
"""The names of all cases, for a test for each; they are made only when the table is there."""
