"""Schemas: the fields we write are the fields pylance writes, for every type it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import lance
import lance.arrow
import polars as pl
import pyarrow as pa
import pytest

from conroi.errors import CorruptionError, InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.fields import key_fields
from conroi.format.schema import (
    fields_from_schema,
    key_columns,
    leaf_field_ids,
    match_fields,
    max_field_id,
    schema_from_fields,
)
from tests.format.pylance_tables import KEY, manifest_files
from tests.support.pylance import RELEASE

POSITION = f"{KEY}:position"
JSON = {"ARROW:extension:name": "arrow.json", "ARROW:extension:metadata": ""}
POINT = pa.struct([("x", pa.int32()), ("y", pa.int64())])

TYPES = [
    pa.null(), pa.bool_(), pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(),
    pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.string_view(),
    pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(16), pa.date32(), pa.date64(), pa.time32("s"),
    pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("ns", "UTC"),
    pa.timestamp("ms", "America/New_York"), pa.timestamp("us", "+02:00"), pa.duration("s"), pa.duration("ms"),
    pa.duration("us"), pa.duration("ns"), pa.decimal128(10, 2), pa.decimal128(10, -2), pa.decimal256(40, 3),
    pa.list_(pa.int32()), pa.list_(pa.field("x", pa.int32(), nullable=False)), pa.large_list(pa.string()),
    pa.list_(POINT), pa.large_list(POINT), pa.struct([("a", pa.int32()), ("b", pa.list_(POINT))]), pa.struct([]),
    pa.list_(pa.list_(pa.int8())), pa.list_(pa.large_list(pa.int32())), pa.list_(pa.string_view()),
    pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), POINT), pa.list_(pa.map_(pa.string(), pa.int32())),
    pa.map_(cast("Any", pa.field("k", pa.string(), nullable=False)), cast("Any", pa.field("v", pa.int32()))),
    pa.list_(pa.float32(), 4), pa.list_(pa.field("e", pa.float32(), nullable=False), 4),
    pa.list_(pa.list_(pa.float32(), 2), 3), pa.list_(POINT, 2), pa.list_(pa.string(), 2), pa.list_(pa.bool_(), 2),
    pa.list_(pa.timestamp("us", "UTC"), 2), pa.list_(pa.binary(16), 2), pa.list_(pa.decimal128(5, 2), 2),
    pa.list_(pa.dictionary(pa.int8(), pa.string()), 2), pa.list_(pa.uuid(), 2), pa.list_(pa.json_(), 2),
    pa.list_(lance.arrow.BFloat16Type(), 4), lance.arrow.BFloat16Type(),
    pa.dictionary(pa.int16(), pa.string()), pa.dictionary(pa.int8(), pa.large_string()),
    pa.dictionary(pa.int32(), pa.int64()), pa.dictionary(pa.int32(), pa.string(), ordered=True),
    pa.dictionary(pa.uint8(), pa.binary()), pa.dictionary(pa.int8(), pa.bool_()),
    pa.list_(pa.dictionary(pa.int16(), pa.string())),
    pa.json_(), pa.json_(pa.large_string()), pa.uuid(), pa.bool8(), pa.fixed_shape_tensor(pa.float32(), [2, 2]),
    pa.opaque(pa.int32(), "t", "v"), pa.list_(pa.json_()), pa.struct([("j", pa.json_())]), pa.list_(pa.uuid()),
]  # fmt: skip

ODD_DICTIONARIES: list[Any] = [
    pa.dictionary(pa.int16(), pa.timestamp("us", "UTC")), pa.dictionary(pa.int8(), pa.binary(3)),
    pa.dictionary(pa.int8(), pa.decimal128(5, 2)), pa.dictionary(pa.int8(), pa.date32()),
    pa.dictionary(pa.int8(), cast("Any", pa.dictionary(pa.int8(), pa.string()))),
]  # fmt: skip

REFUSED_TYPES = [
    pa.decimal32(5, 2), pa.decimal64(10, 2), pa.month_day_nano_interval(), pa.list_view(pa.int32()),
    pa.run_end_encoded(pa.int32(), pa.string()), pa.map_(pa.string(), pa.int32(), True),
    pa.list_(pa.list_(pa.int32()), 2), pa.list_(pa.map_(pa.string(), pa.int32()), 2), pa.list_(pa.list_(POINT, 2), 3),
    pa.list_(pa.int32(), 0), *ODD_DICTIONARIES,
]  # fmt: skip


OTHERWISE_IN_12 = pytest.mark.xfail(RELEASE == 12, strict=True, reason="the answer of pylance 13 and newer")


def unlike_12(cases: list[Any], different: list[Any]) -> list[Any]:
    """The cases, of which some must have another answer where the installed pylance is the oldest that we support."""
    assert all(case in cases for case in different)
    return [pytest.param(case, marks=OTHERWISE_IN_12) if case in different else case for case in cases]


OFFSET, JSON_VECTOR = pa.timestamp("us", "+02:00"), pa.list_(pa.json_(), 2)


def column(type_: pa.DataType, *, nullable: bool = True, **metadata: str) -> pa.Field[Any]:
    return pa.field("c", type_, nullable=nullable, metadata=metadata or None)


JSON_VIEW: pa.Field[Any] = pa.field("c", pa.string_view(), metadata=JSON)
BLOBS: list[pa.Field[Any]] = [
    pa.field("c", pa.large_binary(), nullable=False, metadata={"lance-encoding:blob": "true", "z": "1"}),
    pa.field("c", pa.struct([pa.field("b", pa.binary(), metadata={"lance-encoding:blob": "True"})])),
]

FIELDS = [
    column(pa.int32(), nullable=False),
    column(pa.int32(), note="x", other=""),
    pa.field("c", pa.string(), metadata=JSON),
    JSON_VIEW,
    pa.field("c", pa.large_binary(), metadata={"ARROW:extension:name": "lance.json"}),
    pa.field("c", pa.int32(), metadata={"ARROW:extension:name": "foo", "ARROW:extension:metadata": "bar"}),
    *BLOBS,
    pa.field("c", pa.int32(), metadata={"lance-schema:unenforced-clustering-key:position": "3"}),
    *(
        pa.field("c", pa.int32(), nullable=False, metadata={KEY: text})
        for text in ("true", "YES", "1", "on", "no", "t")
    ),
    *(
        pa.field("c", pa.int32(), nullable=False, metadata={POSITION: text})
        for text in ("0", "2", "+1", "-1", "x", " 1")
    ),
    pa.field("c", pa.int32(), nullable=False, metadata={POSITION: "1", KEY: "false"}),
    pa.field("c", pa.struct([pa.field("x", pa.int32(), nullable=False, metadata={KEY: "true"})]), nullable=False),
]


def written_by_pylance(schema: pa.Schema, root: Path) -> list[pb.Field]:
    lance.write_dataset(pa.RecordBatchReader.from_batches(schema, []), root)
    return list(manifest_files(root)[-1].manifest.fields)


@pytest.mark.parametrize("type_", unlike_12(TYPES, [OFFSET, JSON_VECTOR]), ids=str)
def test_every_type_has_the_fields_that_pylance_gives_it(type_: pa.DataType, tmp_path: Path):
    schema = pa.schema([pa.field("first", pa.int8()), pa.field("c", type_), pa.field("last", pa.int8())])
    assert fields_from_schema(schema) == written_by_pylance(schema, tmp_path / "t")


@pytest.mark.parametrize(
    "field", unlike_12(FIELDS, [JSON_VIEW, *BLOBS]), ids=lambda field: f"{field.type} {field.metadata}"
)
def test_metadata_keys_and_extensions_have_the_fields_that_pylance_gives_them(field: pa.Field[Any], tmp_path: Path):
    schema = pa.schema([field])
    assert fields_from_schema(schema) == written_by_pylance(schema, tmp_path / "t")


@pytest.mark.parametrize("type_", unlike_12(TYPES, [OFFSET]), ids=str)
def test_the_schema_of_every_type_is_the_one_that_pylance_shows(type_: pa.DataType, tmp_path: Path):
    metadata: dict[bytes | str, bytes | str] = {"k": "v"}
    schema = pa.schema([pa.field("c", type_, metadata={"note": "x"})], metadata=metadata)
    lance.write_dataset(pa.RecordBatchReader.from_batches(schema, []), tmp_path / "t")
    manifest = manifest_files(tmp_path / "t")[-1].manifest
    shown = lance.dataset(tmp_path / "t").schema
    found = schema_from_fields(manifest.fields, manifest.head.schema_metadata)
    assert found.equals(shown, check_metadata=True)
    assert str(found.field("c").type) == str(shown.field("c").type)


@pytest.mark.parametrize("type_", unlike_12(REFUSED_TYPES, ODD_DICTIONARIES), ids=str)
def test_a_type_that_pylance_refuses_is_refused_with_the_columns_name(type_: pa.DataType, tmp_path: Path):
    schema = pa.schema([pa.field("outer", pa.struct([("inner", type_)]))])
    with pytest.raises(Exception, match=r"(?i)unsupported|cannot|dimension"):
        written_by_pylance(schema, tmp_path / "t")
    with pytest.raises(InvalidInputError, match=r"'outer\.inner'"):
        fields_from_schema(schema)


@pytest.mark.parametrize("name", ["a.b", "_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version"])
def test_a_name_that_pylance_refuses_is_refused(name: str, tmp_path: Path):
    schema = pa.schema([(name, pa.int32())])
    with pytest.raises(OSError, match="cannot"):
        written_by_pylance(schema, tmp_path / "t")
    with pytest.raises(InvalidInputError, match=name):
        fields_from_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("a", pa.int32()), ("a", pa.int64())]),
        pa.schema([("c", pa.struct([("a", pa.int8()), ("a", pa.int8())]))]),
    ],
)
def test_a_name_that_is_there_twice_is_refused(schema: pa.Schema):
    with pytest.raises(InvalidInputError, match="'a' twice"):
        fields_from_schema(schema)


@pytest.mark.parametrize(
    "field",
    [
        pa.field("c", pa.int32(), metadata={KEY: "true"}),
        pa.field("c", pa.list_(pa.int32()), nullable=False, metadata={KEY: "true"}),
        pa.field("c", pa.struct([pa.field("x", pa.int32(), nullable=False, metadata={KEY: "true"})])),
    ],
    ids=str,
)
def test_a_key_that_pylance_refuses_is_refused(field: pa.Field[Any], tmp_path: Path):
    with pytest.raises(OSError, match="Primary key"):
        written_by_pylance(pa.schema([field]), tmp_path / "t")
    with pytest.raises(InvalidInputError, match="cannot be a key"):
        fields_from_schema(pa.schema([field]))


def test_new_columns_are_numbered_from_where_we_say():
    fields = fields_from_schema(pa.schema([("a", POINT), ("b", pa.int32())]), first_id=10)
    assert [(field.id, field.parent_id) for field in fields] == [(10, -1), (11, 10), (12, 10), (13, -1)]
    assert max_field_id(fields) == 13
    assert max_field_id([]) == -1
    dropped = pb.DataFragment(files=[pb.DataFile(fields=[3, 20, -2])])
    assert max_field_id(fields, [dropped]) == 20


def test_a_schema_of_another_library_is_taken():
    fields = fields_from_schema(pl.DataFrame({"a": [1], "b": ["x"], "c": [[1.5]]}).schema)
    assert [field.logical_type for field in fields] == ["int64", "string", "large_list", "double"]


LEAF_CASES = [
    (pa.schema([("a", pa.int8()), ("c", pa.list_(POINT, 2)), ("d", pa.int8())]), {"a": 1, "c": [{"x": 1}, {"x": 2}]}),
    (pa.schema([("c", pa.map_(pa.string(), pa.int32()))]), {"c": [("a", 1)]}),
    (pa.schema([pa.field("c", POINT, metadata={"packed": "true"}), pa.field("d", pa.int8())]), {"c": {"x": 1, "y": 2}}),
    (pa.schema([pa.field("c", POINT, metadata={"lance-encoding:packed": "1"})]), {"c": {"x": 1, "y": 2}}),
    (pa.schema([("c", pa.struct([])), ("d", pa.int8())]), {"c": {}}),
    (pa.schema([("c", pa.list_(pa.list_(pa.int8()))), ("n", pa.null())]), {"c": [[1]]}),
    (pa.schema([("c", pa.struct([("a", pa.int8()), ("b", pa.list_(POINT))])), ("d", pa.int8())]), {"d": 1}),
    (pa.schema([("c", pa.dictionary(pa.int8(), pa.string())), ("j", pa.json_())]), {"c": "x", "j": "{}"}),
    pytest.param(
        pa.schema([pa.field("c", pa.binary(), metadata={"lance-encoding:blob": "true"}), pa.field("d", pa.int8())]),
        {"c": b"x"},
        marks=OTHERWISE_IN_12,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "row"), LEAF_CASES, ids=lambda case: str(case)[:40])
def test_a_data_file_lists_the_fields_that_pylance_lists(schema: pa.Schema, row: dict[str, object], tmp_path: Path):
    lance.write_dataset(pa.Table.from_pylist([row], schema=schema), tmp_path / "t")
    manifest = manifest_files(tmp_path / "t")[-1].manifest
    (file,) = manifest.fragments[0].files
    assert leaf_field_ids(manifest.fields) == list(file.fields)
    assert list(file.column_indices) == list(range(len(file.fields)))


def test_the_leaves_of_some_columns_come_in_their_order():
    fields = fields_from_schema(pa.schema([("a", pa.int8()), ("p", POINT), ("z", pa.list_(pa.int8()))]))
    assert leaf_field_ids(fields, ["z", "p"]) == [5, 2, 3]
    with pytest.raises(InvalidInputError, match="no column 'q'"):
        leaf_field_ids(fields, ["q"])


@pytest.mark.parametrize(
    ("marks", "order"),
    [
        ([{POSITION: "2"}, {POSITION: "1"}, {KEY: "true"}], ("d", "c", "e")),
        ([{KEY: "true"}, {POSITION: "0"}, {POSITION: "1"}], ("e", "c", "d")),
        ([{KEY: "true"}, {KEY: "true"}, {}], ("c", "d")),
        ([{POSITION: "1"}, {POSITION: "1"}, {}], ("c", "d")),
    ],
)
def test_the_key_has_the_order_that_pylance_gives_it(
    marks: list[dict[str, str]], order: tuple[str, ...], tmp_path: Path
):
    schema = pa.schema([
        pa.field(name, pa.int32(), nullable=False, metadata=mark) for name, mark in zip("cde", marks, strict=True)
    ])  # fmt: skip
    fields = fields_from_schema(schema)
    assert key_columns(fields) == order
    ds = lance.write_dataset(pa.Table.from_pylist([{"c": 1, "d": 1, "e": 1}], schema=schema), tmp_path / "t")
    rows = pa.Table.from_pylist([{"c": 2, "d": 2, "e": 2}], schema=schema)
    ds.merge_insert(list(order)).when_not_matched_insert_all().execute(rows)  # only this order leaves a filter
    wire = pb.Transaction.FromString(manifest_files(tmp_path / "t")[-1].transaction or b"")
    assert list(wire.update.inserted_rows.field_ids) == [field.id for field in key_fields(fields)]


def test_a_nested_key_is_named_by_its_path():
    inner = pa.field("x", pa.int32(), nullable=False, metadata={KEY: "true"})
    assert key_columns(fields_from_schema(pa.schema([pa.field("c", pa.struct([inner]), nullable=False)]))) == ("c.x",)


def test_incoming_columns_get_the_ids_of_the_table():
    table = fields_from_schema(pa.schema([("a", pa.int8()), ("p", POINT), ("z", pa.string())]), first_id=5)
    found = match_fields(table, pa.schema([("z", pa.string()), ("p", POINT)]))
    assert [field.id for field in found] == [9, 6, 7, 8]
    with pytest.raises(InvalidInputError, match="no column 'q'"):
        match_fields(table, pa.schema([("q", pa.int8())]))
    with pytest.raises(InvalidInputError, match="'z' is string in the table and int8 in the data"):
        match_fields(table, pa.schema([("z", pa.int8())]))


@pytest.mark.contract("T14")
@pytest.mark.parametrize(
    "logical_type",
    ["", "int65", "timestamp", "timestamp:us", "timestamp:xx:-", "decimal:128:99:2", "decimal:64:5:2", "dict:a:b:false",
     "fixed_size_list:int8", "fixed_size_list:int8:x", "fixed_size_binary:-x", "list", "map", "large_list.struct"],
)  # fmt: skip
def test_a_type_that_does_not_exist_is_damage(logical_type: str):
    with pytest.raises(CorruptionError):
        schema_from_fields([pb.Field(name="a", parent_id=-1, logical_type=logical_type)])
