"""Data files, deletion files and indices are made by pylance; what others see of them is decided by conroi alone."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.fragment import write_fragments
from lance.optimize import Compaction

from tests.static.committing_calls import find_commits, modules_near_pylance
from tests.static.pylance_api import SURFACES, Surface, absent
from tests.support.pylance import RELEASE
from tests.support.source import Module, conroi_modules

PACKAGES_THAT_IMPORT_PYLANCE = {"data", "verbs"}

# (module, code): why this is not a commit by pylance. An entry that nothing needs any more fails the test.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("conroi", "vars(module).update"): "a dictionary",
    ("conroi", "getattr(moved, name)"): "a public name of a module that moved",
    ("conroi.spark", "getattr(module, name)"): "a public name of this package",
    ("conroi.testing.instruments", "self.inner.delete"): "a file of the storage",
    ("conroi.cli.graph", "columns.insert"): "a list",
    ("conroi.spark.connector.definitions", "table.add_columns"): "a statement of our own transaction",
    ("conroi.spark.connector.definitions", "table.alter_columns"): "a statement of our own transaction",
    ("conroi.spark.connector.definitions", "table.drop_columns"): "a statement of our own transaction",
    ("conroi.spark.connector.lake_session", "transaction.commit"): "our own transaction",
    ("conroi.spark.connector.lake_session", "self._taken(identity).commit"): "our own transaction",
    ("conroi.spark.connector.procedures", "session.commit"): "our own transaction",
    ("conroi.spark.connector.procedures", "table.restore"): "our own table",
    ("conroi.spark.connector.procedures", "table.create_index"): "our own table",
    ("conroi.spark.connector.procedures", "table.drop_index"): "our own table",
    ("conroi.spark.connector.procedures", "owner.tags.create"): "our own tags",
    ("conroi.spark.connector.procedures", "owner.tags.delete"): "our own tags",
    ("conroi.spark.connector.procedures", "session.lake.branches.create"): "our own branches",
    ("conroi.spark.connector.procedures", "session.lake.branches.delete"): "our own branches",
    ("conroi.spark.connector.procedures", "session.lake.merge"): "our own branches",
    ("conroi.spark.connector.writes", "session.commit"): "our own transaction",
    ("conroi.spark.transactions", "open_transaction.commit"): "our own transaction",
    ("conroi.spark.connector.writes", "_target(session, request).delete"): "a statement of our own transaction",
    ("conroi.maintenance.collection", "own.update"): "a set",
    ("conroi.maintenance.collection", "place.objects.delete"): "files of our own storage",
    ("conroi.maintenance.collection", "self._needed.update"): "a set",
    ("conroi.maintenance.reachability", "self._numbers.update"): "a set",
    ("conroi.maintenance.expiry", "objects.delete"): "files of our own storage",
    ("conroi", "getattr(front, name)"): "the public names of conroi",
    ("conroi.branches.branches", "self._branched.create"): "our own branches",
    ("conroi.branches.branches", "self._lake.tags.delete"): "our own tags",
    ("conroi.catalog.lance_tags", "super().create"): "our own tags",
    ("conroi.catalog.lance_tags", "super().delete"): "our own tags",
    ("conroi.cli.commands.branches", "session.lake(address).branches.create"): "our own branches",
    ("conroi.cli.commands.branches", "branches.delete"): "our own branches",
    ("conroi.cli.commands.branches", "lake.merge"): "our own lake",
    ("conroi.cli.commands.history", "table.restore"): "our own table",
    ("conroi.cli.commands.row_changes", "tx[name].delete"): "a statement of our own transaction",
    ("conroi.cli.commands.row_changes", "tx[name].update"): "a statement of our own transaction",
    ("conroi.inserts.fence", "row.insert"): "a note in a row of our own catalog",
    ("conroi.cli.commands.branches", "tags.create"): "our own tags",
    ("conroi.cli.commands.branches", "tags.delete"): "our own tags",
    ("conroi.query", "connection.execute"): "DuckDB, which has no way to write",
    ("conroi.cli.loads", "table.merge"): "a statement of our own transaction",
    (
        "conroi.cli.loads",
        "merge.when_matched_update_all().when_not_matched_insert_all().execute",
    ): "a statement of our own transaction",
    (
        "conroi.data.incoming",
        "pa.Table.from_pandas(cast('Any', data), preserve_index=False).replace_schema_metadata",
    ): "an Arrow table",
    ("conroi.merge.matching", "found.take(order).drop_columns"): "an Arrow table",
    ("conroi.merge.outcome", "scanner.to_table().drop_columns"): "an Arrow table",
    ("conroi.verbs.key_declaration", "scan_keys(pinned, columns).drop_columns"): "an Arrow table",
    ("conroi.staged_table", "super().update"): "Writer.update, which stages",
    ("conroi.insertion", "tx.commit"): "our own transaction",
    ("conroi.insertion", "tx[self._name].delete"): "a statement of our own transaction",
    ("conroi.doctor.versions", "self._counts.update"): "a Counter",
    ("conroi.spark.sql.changes", "target.table.update"): "a statement of our own transaction",
    ("conroi.spark.sql.changes", "target.table.merge"): "a statement of our own transaction",
    ("conroi.spark.sql.changes", "target.table.delete"): "a statement of our own transaction",
    (
        "conroi.spark.sql.changes",
        "target.table.merge(rows, on=key).when_matched_update(assigned).execute",
    ): "a statement of our own transaction",
    (
        "conroi.spark.sql.changes",
        "target.table.merge(rows, on=key).when_matched_delete().execute",
    ): "a statement of our own transaction",
    ("conroi.spark.sql.merge_into", "target.table.merge"): "a statement of our own transaction",
    ("conroi.spark.sql.merge_into", "builder.execute"): "a statement of our own transaction",
    (
        "conroi.data.pylance",
        "cast('Any', CompactionTask).from_json(task).execute",
    ): "a CompactionTask writes the new files and returns their metadata",
    ("conroi.table", "self.optimize_indices"): "a verb of our own table",
}


SIMULATION = "conroi.testing.simulation"
"""Its clients call verbs of our own tables and transactions. pylance is behind conroi.data: data files have a stand-in,
and `test_only_the_data_side_imports_pylance` sees that no module of it imports pylance."""


@pytest.mark.contract("W11")
def test_no_module_makes_pylance_commit():
    near = [module for module in modules_near_pylance(conroi_modules()) if not module.name.startswith(SIMULATION)]
    found = [finding for module in near for finding in find_commits(module)]
    unexplained = [str(finding) for finding in found if (finding.module, finding.code) not in EXCEPTIONS]
    assert not unexplained, "pylance could commit here; if it cannot, say why in EXCEPTIONS:\n" + "\n".join(unexplained)
    unneeded = EXCEPTIONS.keys() - {(finding.module, finding.code) for finding in found}
    assert not unneeded


def test_only_the_data_side_imports_pylance():
    strays = [
        f"{module.name}:{imported.line}"
        for module in conroi_modules()
        for imported in module.imports()
        if imported.module.partition(".")[0] == "lance"
        and not imported.is_for_types_only
        and module.layer not in PACKAGES_THAT_IMPORT_PYLANCE
    ]
    assert not strays


@pytest.mark.parametrize("known", SURFACES, ids=lambda known: known.path)
def test_every_name_of_pylance_is_known_to_commit_or_to_be_harmless(known: Surface):
    assert known.commits.isdisjoint(known.harmless)
    names = known.public_names()
    assert names - known.commits - known.harmless == set(), "new in pylance: does it commit?"
    assert (known.commits | known.harmless) - names == absent(known.path, RELEASE), "gone from pylance"


COMMITTING_SOURCES = [
    "import lance\nlance.write_dataset([], 'x')",
    "from lance import write_dataset",
    "from lance.dataset import write_dataset as quietly",
    "from lance import *",
    "import lance.mem_wal",
    "from lance import namespace",
    "import lance\nlance.mem_wal.ShardWriter()",
    "import lance\nlance.LanceDataset.commit('x', None, 1)",
    "import lance\ndef f(ds: lance.LanceDataset): ds.delete('true')",
    "import lance\ndef f(ds: lance.LanceDataset): ds._ds.commit_transaction(None)",
    "import lance\nremove = lance.dataset('x').delete",
    "import lance\nlance.dataset('x').merge_insert('id').when_not_matched_insert_all().execute([])",
    "from lance.optimize import Compaction\nCompaction.execute(None, {})",
    "import lance\nlance.dataset('x').optimize.compact_files()",
    "import lance\nlance.dataset('x').tags.create('v1', 1)",
    "import lance\ngetattr(lance.dataset('x'), 'delete')('true')",
    "import lance\ndef f(ds, verb): getattr(ds, verb)()",
    "import lance\nfrom operator import methodcaller\nmethodcaller('restore')(lance.dataset('x'))",
    "import lance\nclass Mine(lance.LanceDataset):\n  def delete(self): ...\n  def f(self): self.delete()",
]


@pytest.mark.parametrize("source", COMMITTING_SOURCES)
def test_a_module_that_makes_pylance_commit_is_caught(source: str):
    assert list(find_commits(Module.parse("conroi.data.bad", source)))


HARMLESS_SOURCES = [
    "import lance\nlance.dataset('x').scanner(filter='a > 1').to_table()",
    "from lance.optimize import Compaction\nCompaction.plan(None, {})",
    "import lance\nlance.dataset('x').create_index_uncommitted('a', 'BTREE', fragment_ids=[0])",
    "import lance\nimport numpy as np\nnp.delete([1], 0)",
    "import lance\nclass Mine:\n  def delete(self): ...\n  def f(self): self.delete()",
    "import lance\ngetattr(lance.dataset('x'), 'schema')",
]


@pytest.mark.parametrize("source", HARMLESS_SOURCES)
def test_a_module_that_only_reads_and_stages_is_not_accused(source: str):
    assert not list(find_commits(Module.parse("conroi.data.good", source)))


def test_modules_that_get_pylance_through_others_are_searched_too():
    modules = [
        Module.parse("conroi.data.door", "def f():\n  import lance"),
        Module.parse("conroi.verbs.first", "from conroi.data import door"),
        Module.parse("conroi.table", "from conroi.verbs.first import f"),
        Module.parse("conroi.format.pure", "import struct"),
    ]
    near = [module.name for module in modules_near_pylance(modules)]
    assert near == ["conroi.data.door", "conroi.verbs.first", "conroi.table"]


def test_what_we_call_harmless_really_makes_no_version(tmp_path: Path):
    table = pa.table({"id": [1, 2, 3, 4], "value": [1.0, 2.0, 3.0, 4.0]})
    dataset = lance.write_dataset(table, str(tmp_path), max_rows_per_file=2)
    before = visible_files(tmp_path)

    dataset.get_fragments()[0].delete("id = 1")
    dataset.get_fragments()[0].delete_rows([1])
    dataset.get_fragments()[0].merge_columns(lambda batch: batch.select(["id"]).rename_columns(["copy"]), ["id"])
    dataset.create_index_uncommitted("id", "BTREE", fragment_ids=[0, 1])
    dataset.merge_insert("id").when_not_matched_insert_all().execute_uncommitted(table)
    write_fragments(table, dataset)
    for task in Compaction.plan(dataset, {}).tasks:
        task.execute(dataset)

    assert visible_files(tmp_path) == before
    dataset.delete("id = 1")  # and the comparison can tell
    assert visible_files(tmp_path) != before


def visible_files(root: Path) -> set[str]:
    """What makes a version or a name visible: manifests, tags and branches."""
    return {str(file) for folder in ("_versions", "_refs", "tree") for file in (root / folder).rglob("*")}
