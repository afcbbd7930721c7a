"""A column that is never null, and rows that were written without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import conroi
from conroi import format as formats
from conroi.format import lance_pb2 as pb
from conroi.format.manifest_file import decode_manifest_file, encode_manifest_file

pytestmark = pytest.mark.contract("T24")

NOT_NULL = pa.schema([pa.field("v", pa.int64(), nullable=False), pa.field("w", pa.int64())])


def new_table(tmp_path: Path) -> conroi.Table:
    return conroi.create_table(str(tmp_path / "t"), pa.table({"v": [1, 2], "w": [5, None]}))


def append(tx: Any) -> None:
    tx.append(pa.table({"v": [7], "w": [8]}))


def update(tx: Any) -> None:
    tx.update({"w": "9"}, where="v = 1", mode="rows")


def merge(tx: Any) -> None:
    tx.merge(pa.table({"v": [7], "w": [8]}), on="v").when_not_matched_insert_all().execute()


@pytest.mark.parametrize("mine", [append, update, merge])
def test_rows_without_a_new_column_that_is_never_null_are_not_committed(tmp_path: Path, mine: Any) -> None:
    """A3: a concurrent append landed, and the table could not be read."""
    table = new_table(tmp_path)
    tx = table.begin()
    mine(tx)
    table.add_columns({"one": "1"})
    with pytest.raises(conroi.RetryableConflict):
        tx.commit()
    assert table.latest().to_arrow()["one"].to_pylist() == [1, 1]


def test_such_a_column_is_not_added_beside_concurrent_rows(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    tx = table.begin()
    tx.add_columns({"one": "1"})
    table.append(pa.table({"v": [7], "w": [8]}))
    with pytest.raises(conroi.RetryableConflict):
        tx.commit()
    assert table.latest().to_arrow()["v"].to_pylist() == [1, 2, 7]


def test_a_writer_that_promises_too_much_about_nulls_is_not_believed(tmp_path: Path) -> None:
    """The last line of defence: whatever the other transaction says, rows without the column do not land."""
    table = new_table(tmp_path)
    tx = table.begin()
    append(tx)
    table.add_columns({"one": "1"})
    edit_transaction(Path(table.uri), 2)
    with pytest.raises(conroi.RetryableConflict) as refused:
        tx.commit()
    assert refused.value.reason is not None
    assert (refused.value.reason.rule, refused.value.reason.names) == ("columns/nulls", ("one",))


def edit_transaction(root: Path, version: int) -> None:
    """Let the Merge that made this version say that it preserves nullability."""
    path = root / f"_versions/{(1 << 64) - 1 - version:020d}.manifest"
    file = decode_manifest_file(path.read_bytes())
    assert file.transaction is not None
    wire = formats.decode_transaction(file.transaction).wire
    wire.merge.preserves_nullability = True
    changed = pb.Transaction()
    changed.CopyFrom(wire)
    path.write_bytes(encode_manifest_file(file.manifest, formats.encode_transaction(conroi.LanceTransaction(changed))))
    for each in (root / "_transactions").glob("1-*.txn"):
        if formats.decode_transaction(each.read_bytes()).uuid == wire.uuid:
            each.unlink()


def alone(root: str, schema: pa.Schema | None, verb: Any) -> bool:
    """What the verb, done by pylance or by us on a table of its own, says about nulls."""
    lance.write_dataset(pa.table({"v": [1, 2], "w": [5, 6]}, schema=schema), root)
    verb(root)
    transaction = conroi.open_table(root).history()[0]
    name = f"{transaction.read_version}-{transaction.transaction_uuid}.txn"
    wire = formats.decode_transaction(Path(root, "_transactions", name).read_bytes()).wire
    return getattr(wire, str(wire.WhichOneof("operation"))).preserves_nullability


@lance.batch_udf(output_schema=pa.schema([pa.field("z", pa.int64(), nullable=False)]))
def never_null(batch: pa.RecordBatch) -> pa.RecordBatch:
    schema = pa.schema([pa.field("z", pa.int64(), nullable=False)])
    return pa.record_batch([pa.array([1] * batch.num_rows)], schema=schema)


CASES: dict[str, tuple[pa.Schema | None, Any, Any]] = {
    "a constant": (None, lambda d: d.add_columns({"one": "1"}), lambda t: t.add_columns({"one": "1"})),
    "a copy": (None, lambda d: d.add_columns({"x": "v"}), lambda t: t.add_columns({"x": "v"})),
    "a copy of what is never null": (
        NOT_NULL,
        lambda d: d.add_columns({"x": "v"}),
        lambda t: t.add_columns({"x": "v"}),
    ),
    "nulls": (
        NOT_NULL,
        lambda d: d.add_columns(pa.field("x", pa.int64())),
        lambda t: t.add_columns(pa.field("x", pa.int64())),
    ),
    "a function": (None, lambda d: d.add_columns(never_null), lambda t: t.add_columns(lambda b: never_null(b))),
    "another type": (
        None,
        lambda d: d.alter_columns({"path": "v", "data_type": pa.int32()}),
        lambda t: t.alter_columns({"v": {"type": pa.int32()}}),
    ),
    "another type of what is never null": (
        NOT_NULL,
        lambda d: d.alter_columns({"path": "v", "data_type": pa.int32()}),
        lambda t: t.alter_columns({"v": {"type": pa.int32()}}),
    ),
    "nullable": (
        NOT_NULL,
        lambda d: d.alter_columns({"path": "v", "nullable": True}),
        lambda t: t.alter_columns({"v": {"nullable": True}}),
    ),
    "dropped": (NOT_NULL, lambda d: d.drop_columns(["v"]), lambda t: t.drop_columns(["v"])),
    "renamed": (
        NOT_NULL,
        lambda d: d.alter_columns({"path": "v", "name": "x"}),
        lambda t: t.rename_columns({"v": "x"}),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_change_of_columns_promises_about_nulls_what_pylance_promises(tmp_path: Path, case: str) -> None:
    schema, theirs, ours = CASES[case]
    expected = alone(str(tmp_path / "theirs"), schema, lambda root: theirs(lance.dataset(root)))
    assert alone(str(tmp_path / "ours"), schema, lambda root: ours(conroi.open_table(root))) is expected


def test_an_append_that_lacks_such_a_column_is_refused_by_its_wire_form_too(tmp_path: Path) -> None:
    table = conroi.create_table(str(tmp_path / "t"), pa.table({"v": [1], "w": [2]}, schema=NOT_NULL))
    file = pb.DataFile(path="w.lance", fields=[1], column_indices=[0], file_major_version=2, file_minor_version=2)
    operation = pb.Transaction.Append(fragments=[pb.DataFragment(files=[file], physical_rows=1)])
    wire = pb.Transaction(read_version=1, uuid="00000000-0000-4000-8000-0000000000aa", append=operation)
    with pytest.raises(conroi.InvalidInputError, match="may not be null: v"):
        conroi.commit(table.uri, conroi.LanceTransaction(wire))


@pytest.mark.contract("M4")
@pytest.mark.parametrize("deep", [False, True])
def test_doctor_names_a_table_in_which_a_fragment_lacks_such_a_column(tmp_path: Path, deep: bool) -> None:
    table = new_table(tmp_path)
    table = table.append(pa.table({"v": [7], "w": [8]})).add_columns({"one": "1"})
    assert not table.doctor(deep=deep).findings
    path = Path(table.uri) / f"_versions/{(1 << 64) - 1 - table.version:020d}.manifest"
    file = decode_manifest_file(path.read_bytes())
    fragments = [pb.DataFragment.FromString(f.SerializeToString()) for f in file.manifest.fragments]
    del fragments[1].files[1]
    path.write_bytes(encode_manifest_file(file.manifest.changed(fragments=fragments), file.transaction))
    with pytest.raises(pa.ArrowInvalid, match="null"):
        lance.dataset(table.uri).to_table()
    found = conroi.open_table(table.uri).doctor(deep=deep).findings
    assert [(finding.kind, finding.severity) for finding in found] == [("manifest-contradiction", "error")]
    assert "fragment 1 has no values for column 'one', which may not be null" in found[0].what
