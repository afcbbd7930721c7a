"""Everything that inserts takes the lock, and nothing else does; a new way to insert must say on which side it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import conroi
from conroi import export
from conroi.inserts.insert_locks import Mode, locks_of
from tests.support.source import Module, conroi_modules

pytestmark = pytest.mark.contract("L7")
ROWS = [{"worker": 0, "insert": 0, "n": 0}]
Verb = Callable[[conroi.Lake], object]


def into_temporary(lake: conroi.Lake) -> None:
    with lake.temp_table(lake["shared"].schema) as name:
        assert lake.insert(name, ROWS * 3, chunk_rows=1).count_rows() == 3
    assert name not in lake


def in_transaction(lake: conroi.Lake) -> None:
    with lake.begin() as tx:
        tx["shared"].append(ROWS)


def into_job(lake: conroi.Lake) -> None:
    with lake.job("7") as job:
        assert job.write("parts", ROWS).count_rows() == 1
        assert job.tables() == ["j_7_parts"]
    assert "j_7_parts" not in lake


LOCKING: dict[str, Verb] = {
    "insert": lambda lake: lake.insert("shared", ROWS),
    "insert in pieces": lambda lake: lake.insert("shared", ROWS * 2, chunk_rows=1),
    "table.insert": lambda lake: lake["shared"].insert(ROWS),
    "concat": lambda lake: lake.concat("shared", [ROWS, ROWS]),
    "write": lambda lake: lake.write("shared", ROWS),
    "write to a new table": lambda lake: lake.write("new", ROWS),
    "write to a new table in pieces": lambda lake: lake.write("new", ROWS, chunk_rows=1),
    "insert_lock": lambda lake: lake.insert_lock("shared").__enter__().__exit__(None, None, None),
    "job": into_job,
}


def load(lake: conroi.Lake) -> None:
    """`conroi load`, as the command does it: one transaction of appends."""
    from conroi.cli.loads import Load, Loading
    from conroi.cli.sources import Source

    file = f"{lake.uri}/../rows.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS, schema=lake["shared"].schema), file)
    Loading([Load("shared", (Source(file, "parquet"),))], lambda _: None).run(
        lake, message=None, author=None, once=None
    )
    assert lake["shared"].count_rows() == 1


# Appends in one commit: an unbroken run by themselves, so they need no lock. tests/spark/test_insert_locks.py has
# those of Spark: INSERT in SQL, df.write, and the sink of a stream.
FREE: dict[str, Verb] = {
    "append in a transaction": in_transaction,
    "conroi load": load,
    "copy": lambda lake: lake.copy("shared", "copied"),
    "temp_table": into_temporary,
    "read": lambda lake: lake["shared"].to_arrow(complete=True),
    "schema change": lambda lake: lake["shared"].add_columns(pa.field("m", pa.int64())),
    "create_table": lambda lake: lake.create_table("made", ROWS),
}


@pytest.mark.parametrize("verb", LOCKING.values(), ids=LOCKING)
def test_what_inserts_takes_one_lock(lake: conroi.Lake, verb: Verb) -> None:
    verb(lake)
    assert locks_of(lake.catalog).taken == 1


@pytest.mark.parametrize("verb", FREE.values(), ids=FREE)
def test_what_does_not_insert_takes_none(lake: conroi.Lake, verb: Verb) -> None:
    verb(lake)
    assert locks_of(lake.catalog).taken == 0


SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


@pytest.mark.parametrize("mode", ["none", "file"])
@pytest.mark.parametrize("is_stream", [True, False])
def test_of_two_workers_that_write_a_new_table_both_have_all_their_rows(
    tmp_path: Path, mode: Mode, is_stream: bool
) -> None:
    """The second creates the table while the first reads its stream, which can be read only once."""
    mine, other = conroi.connect(tmp_path / "lake"), conroi.connect(tmp_path / "lake")
    mine.set_locks(mode)

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"id": 1, "text": "a"}, {"id": 2, "text": None}], schema=SCHEMA)
        if "new" not in other:
            other.write("new", pa.table({"id": [10, 11, 12], "text": ["x", "y", "z"]}, schema=SCHEMA))
        yield pa.RecordBatch.from_pylist([{"id": 3, "text": "c"}], schema=SCHEMA)

    class Stream:
        """Can be read again, as a pandas frame can."""

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pa.RecordBatchReader.from_batches(SCHEMA, rows()).__arrow_c_stream__(requested_schema)

        def __len__(self) -> int:
            return 3

    data = pa.RecordBatchReader.from_batches(SCHEMA, rows()) if is_stream else Stream()
    mine.write("new", data)  # pyright: ignore[reportArgumentType]
    if isinstance(data, pa.RecordBatchReader):  # the control: it was used up when the race was lost
        assert data.read_all().num_rows == 0
    found = other["new"].latest().to_arrow(with_row_id=True).sort_by("_rowid").to_pylist()
    assert [(row["id"], row["text"]) for row in found] == [
        (10, "x"), (11, "y"), (12, "z"), (1, "a"), (2, None), (3, "c")
    ]  # fmt: skip
    assert [row["_rowid"] for row in found] == list(range(6))


def test_a_new_table_and_its_rows_are_one_commit(tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "lake")
    version = lake.version
    table = lake.write("new", ROWS, key="n", message="nightly load")
    assert (lake.version, table.version, table.count_rows(), table.key) == (version + 1, 1, 1, ("n",))
    assert lake.history()[0].message == "nightly load"
    assert table.has_stable_row_ids


def test_a_new_table_is_not_written_without_the_locks_that_the_lake_requires(tmp_path: Path) -> None:
    conroi.connect(tmp_path / "lake").set_locks("postgresql")
    lake = conroi.connect(tmp_path / "lake")
    with pytest.raises(conroi.LocksRequired):
        lake.write("new", ROWS)
    assert "new" not in lake


SAYS_INSERT = ("insert", "concat", "write", "load", "ingest", "add_rows")
KNOWN = {"insert", "concat", "write", "insert_lock"}


def test_every_public_verb_that_sounds_like_an_insert_is_tried_above() -> None:
    for kind in (conroi.Lake, conroi.Table):
        verbs = {name for name in vars_of(kind) if not name.startswith("_") and name.startswith(SAYS_INSERT)}
        assert verbs <= KNOWN, kind


def test_every_public_name_of_exports_is_known() -> None:
    assert set(export.__all__) == {"Export", "clickhouse"}  # tests/export counts the locks that clickhouse takes


def vars_of(kind: type) -> set[str]:
    return {name for each in kind.__mro__ for name in vars(each)}


HOLDS = re.compile(r"\.held\(|_held_target\(")


def unlocked_inserts(module: Module) -> Iterator[str]:
    """Where an insert or export is begun outside a `with …held(…)`."""
    inside: set[int] = set()
    for node in module.nodes:
        if isinstance(node, ast.With) and any(HOLDS.search(ast.unparse(item.context_expr)) for item in node.items):
            inside |= {id(below) for below in ast.walk(node)}
    for node in module.nodes:
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith(("Inserting", "Fence", "Exporting"))
            and id(node) not in inside
        ):
            in_itself = module.name == "conroi.insertion" and ast.unparse(node.func) == "Fence"
            if not in_itself:
                yield f"{module.name}:{node.lineno}"


def test_no_insert_begins_without_its_lock() -> None:
    assert not [stray for module in conroi_modules() for stray in unlocked_inserts(module)]


@pytest.mark.parametrize("kind", ["Inserting", "Exporting"])
def test_an_insert_without_its_lock_is_caught(kind: str) -> None:
    bad = f"def quick(self):\n  return {kind}(catalog, holding, what).run()"
    good = f"def slow(self):\n  with locks.held(name) as holding:\n    return {kind}(catalog, holding, what).run()"
    assert list(unlocked_inserts(Module.parse("conroi.bad", bad)))
    assert not list(unlocked_inserts(Module.parse("conroi.good", good)))
