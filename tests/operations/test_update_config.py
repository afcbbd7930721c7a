from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.operations import UpdateConfig, update_map
from tests.operations.tables import built, field, manifest
from tests.support.parity import assert_replayed

KEY = "lance-schema:unenforced-primary-key"
POSITION = "lance-schema:unenforced-primary-key:position"
CLUSTERING = "lance-schema:unenforced-clustering-key:position"


def test_keys_are_set_and_deleted_one_by_one() -> None:
    first = built(manifest(), UpdateConfig(config=update_map({"a": "1", "b": "2"})))
    second = built(first, UpdateConfig(config=update_map({"a": None, "b": "3", "c": "4", "never": None})))
    assert dict(second.head.config) == {"b": "3", "c": "4"}


def test_replacing_empties_the_map_first() -> None:
    first = built(manifest(), UpdateConfig(config=update_map({"a": "1", "b": "2"})))
    second = built(first, UpdateConfig(config=update_map({"c": "3"}, replace=True)))
    assert dict(second.head.config) == {"c": "3"}


def test_the_flag_says_that_there_is_a_config() -> None:
    first = built(manifest(), UpdateConfig(config=update_map({"a": "1"})))
    assert (first.head.reader_feature_flags, first.head.writer_feature_flags) == (0, 8)
    second = built(first, UpdateConfig(config=update_map({}, replace=True)))
    assert (second.head.reader_feature_flags, second.head.writer_feature_flags) == (0, 0)


def test_the_four_maps_are_apart() -> None:
    change = UpdateConfig(
        config=update_map({"where": "config"}),
        table_metadata=update_map({"where": "table"}),
        schema_metadata=update_map({"where": "schema"}),
        field_metadata={1: update_map({"where": "field"})},
    )
    head = built(manifest(), change).head
    assert dict(head.config) == {"where": "config"}
    assert dict(head.table_metadata) == {"where": "table"}
    assert dict(head.schema_metadata) == {"where": b"schema"}
    assert [dict(each.metadata) for each in head.fields] == [{}, {"where": b"field"}]


def test_the_old_form_sets_config_keys_but_replaces_metadata() -> None:
    base = built(
        manifest(),
        UpdateConfig(
            config=update_map({"a": "1", "b": "2"}),
            schema_metadata=update_map({"a": "1"}),
            field_metadata={0: update_map({"a": "1"}), 1: update_map({"a": "1"})},
        ),
    )
    message = pb.Transaction.UpdateConfig(upsert_values={"c": "3"}, delete_keys=["a"], schema_metadata={"z": "9"})
    message.field_metadata[1].metadata["z"] = "9"
    head = built(base, UpdateConfig.from_wire(message)).head
    assert dict(head.config) == {"b": "2", "c": "3"}
    assert dict(head.schema_metadata) == {"z": b"9"}
    assert [dict(each.metadata) for each in head.fields] == [{"a": b"1"}, {"z": b"9"}]


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="no field with id 7"):
        built(manifest(), UpdateConfig(field_metadata={7: update_map({"a": "b"})}))


def change(field_id: int, values: Mapping[str, str | None], *, replace: bool = False) -> UpdateConfig:
    return UpdateConfig(field_metadata={field_id: update_map(values, replace=replace)})


@pytest.mark.contract("K5")
def test_a_key_can_be_declared_later() -> None:
    after = built(manifest(), change(0, {KEY: "true"}))
    assert [each.unenforced_primary_key for each in after.fields] == [True, False]
    after = built(manifest(), change(0, {POSITION: "3"}))
    assert after.fields[0].unenforced_primary_key
    assert after.fields[0].unenforced_primary_key_position == 3


@pytest.mark.contract("K5")
@pytest.mark.parametrize(
    "second",
    [
        change(0, {KEY: None}),
        change(0, {KEY: "true"}),
        change(0, {"other": "1"}, replace=True),
        change(2, {POSITION: "2"}),
    ],
)
def test_a_declared_key_cannot_be_changed(second: UpdateConfig) -> None:
    fields = [field(0, "id", nullable=False), field(1, "v"), field(2, "w", nullable=False)]
    base = built(manifest(fields=fields), change(0, {KEY: "true"}))
    with pytest.raises(InvalidInputError, match="cannot be changed"):
        built(base, second)


def test_other_metadata_of_a_key_column_can_be_changed() -> None:
    base = built(manifest(), change(0, {KEY: "true"}))
    after = built(base, change(0, {"comment": "the key"}))
    assert after.fields[0].unenforced_primary_key


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (change(1, {KEY: "true"}), "may be null"),
        (change(0, {KEY: "maybe"}), "valid primary key"),
        (change(0, {POSITION: "first"}), "valid primary key"),
        (change(0, {CLUSTERING: "-1"}), "valid clustering key"),
    ],
)
def test_what_cannot_be_a_key_is_refused(bad: UpdateConfig, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        built(manifest(), bad)


def test_a_column_inside_one_that_may_be_null_cannot_be_a_key() -> None:
    fields = [field(0, "st", type="struct"), field(1, "x", parent=0, nullable=False)]
    with pytest.raises(InvalidInputError, match="may be null"):
        built(manifest(fields=fields), change(1, {KEY: "true"}))


@pytest.mark.parametrize("position", ["0", "2"])
def test_a_clustering_key_cannot_be_changed(position: str) -> None:
    base = built(manifest(), change(1, {CLUSTERING: position}))
    assert base.fields[1].unenforced_clustering_key_position == int(position)
    with pytest.raises(InvalidInputError, match="cannot be changed"):
        built(base, change(1, {CLUSTERING: None}))


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does(tmp_path: Path, stable: bool) -> None:
    inner = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("st", inner, nullable=False), pa.field("v", pa.int64())]
    )
    data = pa.table({"id": [1], "st": [{"x": 1}], "v": [1]}, schema=schema)
    table = lance.write_dataset(data, str(tmp_path), enable_stable_row_ids=stable)
    for update in (table.update_config, table.update_metadata, table.update_schema_metadata):
        update({"a": "b", "c": "d"})
        update({"a": None, "e": "f"})
        update({"z": "1"}, replace=True)
    table.delete_config_keys(["z"])
    table.update_field_metadata({"id": {"q": "r"}, "st.x": {POSITION: "3"}, "v": {"u": "w"}})
    table.update_field_metadata({"v": {"u": None}})
    table.update_field_metadata({"id": {CLUSTERING: "0"}, "v": {CLUSTERING: "2"}})
    table.update_field_metadata({"id": {"comment": "c"}})
    table.update_field_metadata({"st": {"only": "this"}}, replace=True)
    names = assert_replayed(tmp_path, stable_row_ids=stable)
    assert names == ["Overwrite"] + ["UpdateConfig"] * 15


@pytest.mark.contract("T5")
@pytest.mark.parametrize(
    ("values", "column", "field_id"),
    [
        ({KEY: "true"}, "v", 1),
        ({KEY: "maybe"}, "id", 0),
        ({POSITION: "first"}, "id", 0),
        ({CLUSTERING: "-1"}, "v", 1),
    ],
)
def test_pylance_refuses_the_same_keys(tmp_path: Path, values: dict[str, str], column: str, field_id: int) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
    table = lance.write_dataset(pa.table({"id": [1], "v": [1]}, schema=schema), str(tmp_path))
    with pytest.raises(OSError, match=r"[Kk]ey"):
        table.update_field_metadata({column: {**values}})
    with pytest.raises(InvalidInputError):
        built(manifest(), change(field_id, dict(values)))
