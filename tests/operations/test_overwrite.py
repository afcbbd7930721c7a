from __future__ import annotations

from pathlib import Path
from typing import Literal

import lance
import pyarrow as pa
import pytest
from lance.dataset import AutoCleanupConfig

from conroi.errors import InvalidInputError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.format.row_ids import decode_row_ids, decode_versions, fresh_row_ids
from conroi.operations import Overwrite
from tests.operations.tables import (
    built,
    data_file,
    field,
    fragment,
    ids,
    index,
    manifest,
    pylance_append,
    pylance_table,
    rows,
)
from tests.support.parity import assert_replayed

SCHEMA = (field(0, "x"),)


def new_fragment(id: int = 0, rows: int = 10) -> pb.DataFragment:
    return fragment(id, rows, data_file(fields=[0]))


def test_creating_a_table() -> None:
    made = built(
        None,
        Overwrite(
            (new_fragment(),), SCHEMA, schema_metadata={"a": b"b"}, config_upsert_values={"c": "d"}, stable_row_ids=True
        ),
    )
    assert made.version == 1
    assert [each.name for each in made.fields] == ["x"]
    assert dict(made.head.schema_metadata) == {"a": b"b"}
    assert dict(made.head.config) == {"c": "d"}
    assert made.head.data_format == pb.DataFormat(file_format="lance", version="2.2")
    assert (made.head.reader_feature_flags, made.head.writer_feature_flags) == (2, 2 | 8)
    assert decode_row_ids(made.fragments[0].inline_row_ids).tolist() == list(range(10))
    assert decode_versions(made.fragments[0].inline_created_at_versions).tolist() == [1] * 10
    assert made.head.next_row_id == 10


def test_a_table_without_rows_has_no_highest_fragment_id() -> None:
    made = built(None, Overwrite((), SCHEMA))
    assert not made.head.HasField("max_fragment_id")
    assert made.head.data_format.version == "2.2"


@pytest.mark.parametrize(
    ("file_version", "data_format"), [((2, 1), "2.1"), ((2, 0), "2.0"), ((0, 3), "2.0"), ((0, 2), "0.1")]
)
def test_a_new_table_has_the_format_of_its_files(file_version: tuple[int, int], data_format: str) -> None:
    made = built(None, Overwrite((fragment(0, 1, data_file(fields=[0], version=file_version)),), SCHEMA))
    assert made.head.data_format.version == data_format


def test_a_wished_format_that_the_files_do_not_have_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"file version 2\.2"):
        built(None, Overwrite((new_fragment(),), SCHEMA, data_format="2.1"))


@pytest.mark.contract("T10")
def test_ids_go_on_and_everything_but_the_data_stays() -> None:
    base = manifest(
        fragment(0, 5, row_ids=fresh_row_ids(0, 5)),
        version=3,
        indices=[index("a", [0], [0])],
        stable_row_ids=True,
        next_row_id=5,
        max_fragment_id=6,
    )
    head = base.editable_head()
    head.config["kept"] = "1"
    head.table_metadata["kept"] = "2"
    head.schema_metadata["gone"] = b"3"
    after = built(base.changed(head=head), Overwrite((new_fragment(40), new_fragment()), SCHEMA))
    assert ids(after) == [7, 8]
    assert [decode_row_ids(each.inline_row_ids).tolist()[0] for each in after.fragments] == [5, 15]
    assert after.indices == ()
    assert dict(after.head.config) == {"kept": "1"}
    assert dict(after.head.table_metadata) == {"kept": "2"}
    assert dict(after.head.schema_metadata) == {}


def test_another_data_format_can_be_wished() -> None:
    other = fragment(0, 1, data_file(fields=[0], version=(2, 1)))
    assert (
        built(manifest(fragment(0)), Overwrite((other,), SCHEMA, data_format="2.1")).head.data_format.version == "2.1"
    )
    with pytest.raises(InvalidInputError, match=r"file version 2\.1"):
        built(manifest(fragment(0)), Overwrite((other,), SCHEMA))


@pytest.mark.parametrize(("is_stable", "wish"), [(False, True), (True, False)])
def test_stable_row_ids_cannot_be_switched(is_stable: bool, wish: bool) -> None:
    with pytest.raises(UnsupportedError, match="stable row ids"):
        built(manifest(stable_row_ids=is_stable), Overwrite((), SCHEMA, stable_row_ids=wish))


BASES = (pb.BasePath(id=1, path="/one"), pb.BasePath(id=1, path="/two"))


@pytest.mark.parametrize(
    ("base", "operation", "why"),
    [
        (manifest(), Overwrite((), SCHEMA, initial_bases=BASES[:1]), "only when a table is created"),
        (None, Overwrite((), SCHEMA, initial_bases=BASES), "same id"),
        (None, Overwrite((fragment(3, deleted=1),), SCHEMA), "deletion file"),
        (None, Overwrite((), (field(0, "a"), field(0, "b"))), "distinct"),
        (None, Overwrite((), (field(-1, "a"),)), "distinct"),
        (None, Overwrite((), (field(0, "a", parent=5),)), "inside a field with id 5"),
    ],
)
def test_bad_overwrites_are_refused(base: Manifest | None, operation: Overwrite, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        built(base, operation)


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does(tmp_path: Path, stable: bool) -> None:
    table = pylance_table(tmp_path, stable_row_ids=stable)
    table.create_scalar_index("id", "BTREE")
    table.update_config({"a": "b"})
    lance.write_dataset(rows(0, 12), str(tmp_path), mode="overwrite", max_rows_per_file=5)
    lance.write_dataset(pa.table({"other": [1.5]}), str(tmp_path), mode="overwrite")
    lance.dataset(str(tmp_path)).truncate_table()
    names = assert_replayed(tmp_path, stable_row_ids=stable)
    assert names[:5] == ["Overwrite", "CreateIndex", "UpdateConfig", "Overwrite", "Overwrite"]
    assert len(names) == 6


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does_for_a_table_that_starts_without_rows(tmp_path: Path, stable: bool) -> None:
    lance.write_dataset(rows(0, 0), str(tmp_path), enable_stable_row_ids=stable)
    pylance_append(tmp_path, 0, 7)
    assert assert_replayed(tmp_path, stable_row_ids=stable) == ["Overwrite", "Append"]


@pytest.mark.contract("T5")
@pytest.mark.parametrize("data_format", ["legacy", "2.0", "2.1", "2.2"])
def test_as_pylance_does_in_every_data_format(
    tmp_path: Path, data_format: Literal["legacy", "2.0", "2.1", "2.2"]
) -> None:
    lance.write_dataset(rows(0, 7), str(tmp_path), data_storage_version=data_format)
    pylance_append(tmp_path, 7, 9).delete("id = 2")
    lance.dataset(str(tmp_path)).update({"v": "v + 1"}, where="id = 3")
    assert assert_replayed(tmp_path) == ["Overwrite", "Append", "Delete", "Update"]


@pytest.mark.contract("T5")
def test_as_pylance_does_when_the_data_format_changes(tmp_path: Path) -> None:
    lance.write_dataset(rows(0, 7), str(tmp_path), data_storage_version="2.1")
    lance.write_dataset(rows(0, 7), str(tmp_path), data_storage_version="2.2", mode="overwrite")
    assert assert_replayed(tmp_path, data_formats={2: "2.2"}) == ["Overwrite", "Overwrite"]


@pytest.mark.contract("T5")
def test_as_pylance_does_with_settings_given_at_creation(tmp_path: Path) -> None:
    options = AutoCleanupConfig(interval=3, older_than_seconds=100_000)
    lance.write_dataset(rows(0, 7), str(tmp_path), auto_cleanup_options=options, commit_message="hello")
    lance.write_dataset(rows(0, 7), str(tmp_path), mode="overwrite")
    assert assert_replayed(tmp_path) == ["Overwrite", "Overwrite"]
