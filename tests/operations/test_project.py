from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import lance
import pyarrow as pa
import pytest

from conroi.errors import InvalidInputError
from conroi.operations import Project
from tests.operations.tables import built, data_file, field, fragment, index, manifest
from tests.support.parity import assert_replayed


def test_a_dropped_column_takes_its_index_and_its_own_files_along() -> None:
    base = manifest(
        fragment(0, 10, data_file("both.lance", [0, 1])),
        fragment(1, 10, data_file("id.lance", [0]), data_file("v.lance", [1])),
        indices=[index("id", [0], [0, 1]), index("v", [1], [0, 1], number=2), index("both", [0, 1], [0], number=3)],
    )
    after = built(base, Project((field(0, "id"),)))
    assert [each.name for each in after.fields] == ["id"]
    assert [[file.path for file in each.files] for each in after.fragments] == [["both.lance"], ["id.lance"]]
    assert list(after.fragments[0].files[0].fields) == [0, 1]
    assert [each.name for each in after.indices] == ["id"]


def test_a_rename_keeps_the_data_and_the_index() -> None:
    base = manifest(fragment(0), indices=[index("v", [1], [0])])
    after = built(base, Project((field(1, "renamed"), field(0, "id"))))
    assert [(each.id, each.name) for each in after.fields] == [(1, "renamed"), (0, "id")]
    assert after.fragments == base.fragments
    assert [each.name for each in after.indices] == ["v"]


def test_the_metadata_of_the_schema_stays() -> None:
    base = manifest(fragment(0))
    head = base.editable_head()
    head.schema_metadata["a"] = b"b"
    after = built(base.changed(head=head), Project((field(0, "id"),)))
    assert dict(after.head.schema_metadata) == {"a": b"b"}


def test_columns_cannot_trade_their_ids() -> None:
    with pytest.raises(InvalidInputError, match="gives id"):
        built(manifest(fragment(0)), Project((field(1, "id"), field(0, "v"))))


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does(tmp_path: Path, stable: bool) -> None:
    nested = [{"a": n, "b": {"c": n, "d": str(n)}} for n in range(10)]
    data = pa.table({"id": range(10), "st": nested, "l": [[{"x": n}] for n in range(10)]})
    table = lance.write_dataset(data, str(tmp_path), max_rows_per_file=4, enable_stable_row_ids=stable)
    table.create_scalar_index("id", "BTREE")
    table.create_scalar_index("st.a", "BTREE")
    table.add_columns({"w": "id * 2"})
    table.create_scalar_index("w", "BTREE")
    table.drop_columns(["st.b.c"])
    table.drop_columns(["w"])
    table.alter_columns(cast("Any", {"path": "id", "name": "key"}))
    table.alter_columns(cast("Any", {"path": "st.a", "name": "aa"}), cast("Any", {"path": "key", "nullable": True}))
    table.drop_columns(["st"])
    names = assert_replayed(tmp_path, stable_row_ids=stable)
    assert names == ["Overwrite", "CreateIndex", "CreateIndex", "Merge", "CreateIndex"] + ["Project"] * 5
