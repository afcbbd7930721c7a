from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.dataset import LanceOperation
from lance.file import LanceFileWriter
from lance.fragment import DataFile

from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.row_ids import constant_versions, decode_versions, fresh_row_ids
from conroi.operations import DataReplacement
from tests.operations.tables import built, covered, data_file, field, fragment, index, manifest, pylance_table
from tests.support.parity import assert_replayed, versions_of


def replacing(fragment_id: int, file: pb.DataFile) -> pb.Transaction.DataReplacement.Group:
    return pb.Transaction.DataReplacement.Group(fragment_id=fragment_id, new_file=file)


def files(made: pb.DataFragment) -> list[tuple[str, list[int]]]:
    return [(file.path, list(file.fields)) for file in made.files]


def test_a_file_with_the_same_columns_is_swapped_where_it_is() -> None:
    base = manifest(fragment(0, 10, data_file("id", [0]), data_file("v", [1])), fragment(1))
    new = data_file("new", [0], size=77)
    new.base_id = 0
    after = built(base, DataReplacement((replacing(0, new),)))
    assert files(after.fragments[0]) == [("new", [0]), ("v", [1])]
    swapped = after.fragments[0].files[0]
    assert (swapped.file_size_bytes, swapped.HasField("base_id")) == (77, True)
    assert after.fragments[1] == base.fragments[1]


def test_a_file_that_keeps_its_columns_elsewhere_is_not_taken_for_the_same() -> None:
    new = data_file("new", [0, 1])
    new.column_indices[:] = [1, 0]
    after = built(manifest(fragment(0)), DataReplacement((replacing(0, new),)))
    assert [list(file.column_indices) for file in after.fragments[0].files] == [[1, 0]]


def test_a_swapped_file_is_in_the_own_folder_if_the_new_one_is() -> None:
    old = data_file("id", [0, 1])
    old.base_id = 4
    after = built(manifest(fragment(0, 10, old)), DataReplacement((replacing(0, data_file("new", [0, 1])),)))
    assert not after.fragments[0].files[0].HasField("base_id")


def test_columns_that_were_all_null_get_their_first_file() -> None:
    base = manifest(fragment(0), fields=[field(0, "id"), field(1, "v"), field(2, "w")])
    after = built(base, DataReplacement((replacing(0, data_file("w", [2])),)))
    assert files(after.fragments[0]) == [("0.lance", [0, 1]), ("w", [2])]


def test_columns_inside_wider_files_are_marked_as_gone_there() -> None:
    fields = [field(n, f"c{n}") for n in range(4)]
    base = manifest(fragment(0, 10, data_file("a", [0, 1]), data_file("b", [2, 3])), fields=fields)
    after = built(base, DataReplacement((replacing(0, data_file("new", [1, 2])),)))
    assert files(after.fragments[0]) == [("a", [0, -2]), ("b", [-2, 3]), ("new", [1, 2])]


def test_a_file_with_no_live_column_left_is_dropped() -> None:
    fields = [field(n, f"c{n}") for n in range(2)]
    base = manifest(fragment(0, 10, data_file("a", [0]), data_file("gone", [1, 9])), fields=fields)
    after = built(base, DataReplacement((replacing(0, data_file("new", [0, 1])),)))
    assert files(after.fragments[0]) == [("new", [0, 1])]


def test_rows_count_as_changed_and_the_index_forgets_the_fragment() -> None:
    old = [fragment(n, 2, row_ids=fresh_row_ids(2 * n, 2)) for n in range(2)]
    for each in old:
        each.inline_created_at_versions = each.inline_last_updated_at_versions = constant_versions(1, 2)
    indices = [index("id", [0], [0, 1]), index("v", [1], [0, 1], number=2)]
    base = manifest(*old, version=5, indices=indices, stable_row_ids=True, next_row_id=4)
    after = built(base, DataReplacement((replacing(1, data_file("v", [1])),)))
    assert [decode_versions(each.inline_last_updated_at_versions).tolist() for each in after.fragments] == [
        [1, 1],
        [6, 6],
    ]
    assert [covered(each) for each in after.indices] == [[0, 1], [0]]


def test_an_index_on_what_is_around_a_replaced_column_forgets_the_fragment_too() -> None:
    fields = [field(0, "st", type="struct"), field(1, "x", parent=0), field(2, "y", parent=0)]
    base = manifest(fragment(0, 10, data_file("st", [1, 2])), fields=fields, indices=[index("st", [0], [0])])
    after = built(base, DataReplacement((replacing(0, data_file("new", [1])),)))
    assert covered(after.indices[0]) == []


LEGACY = (0, 2)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ((replacing(7, data_file("new", [0, 1])),), "does not have: 7"),
        ((replacing(0, data_file("0.lance", [0, 1])),), "replaces nothing"),
        ((replacing(0, data_file("new", [1, 2])),), "replaces nothing"),
        ((replacing(0, data_file("new", [0])), replacing(1, data_file("new", [1]))), "same columns"),
        ((replacing(0, data_file("new", [0])), replacing(0, data_file("new", [0]))), "one fragment"),
        ((replacing(0, data_file("new", [0], version=(2, 1))),), "file version"),
    ],
)
def test_bad_replacements_are_refused(bad: tuple[pb.Transaction.DataReplacement.Group, ...], why: str) -> None:
    base = manifest(fragment(0), fragment(1), fields=[field(0, "id"), field(1, "v"), field(2, "w")])
    with pytest.raises(InvalidInputError, match=why):
        built(base, DataReplacement(bad))


def test_a_column_inside_a_file_of_the_first_format_is_not_replaced() -> None:
    base = manifest(fragment(0, 10, data_file("old", [0, 1], version=LEGACY)))
    head = base.editable_head()
    head.data_format.version = "0.1"
    with pytest.raises(InvalidInputError, match="replaces nothing"):
        built(base.changed(head=head), DataReplacement((replacing(0, data_file("new", [0], version=LEGACY)),)))


def written(table: lance.LanceDataset, name: str, column: str, field_id: int) -> DataFile:
    """A data file of five rows with one column."""
    path = Path(table.uri) / "data" / name
    data = pa.table({column: pa.array([100, 101, 102, 103, 104], pa.int64())})
    with LanceFileWriter(str(path), data.schema, version="2.2") as writer:
        writer.write_batch(data)
    return DataFile(name, [field_id], [0], 2, 2, file_size_bytes=path.stat().st_size)


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does(tmp_path: Path, stable: bool) -> None:
    table = pylance_table(tmp_path, stable_row_ids=stable)
    table.create_scalar_index("id", "BTREE", name="id")
    table.create_scalar_index("v", "BTREE", name="v")
    table.add_columns(pa.field("w", pa.int64()))
    for version, name, column, field_id in [(4, "w1", "w", 3), (5, "w2", "w", 3), (6, "v1", "v", 1), (7, "v2", "v", 1)]:
        group = LanceOperation.DataReplacementGroup(1, written(table, f"{name}.lance", column, field_id))
        lance.LanceDataset.commit(str(tmp_path), LanceOperation.DataReplacement([group]), read_version=version)
    names = assert_replayed(tmp_path, stable_row_ids=stable)
    assert names == ["Overwrite", "CreateIndex", "CreateIndex", "Merge"] + ["DataReplacement"] * 4
    last = versions_of(tmp_path)[8].manifest
    assert [path for path, _ in files(last.fragments[1])][1:] == ["w2.lance", "v2.lance"]
    assert [covered(each) for each in last.indices] == [[0, 1, 2, 3], [0, 2, 3]]
    assert lance.dataset(str(tmp_path)).to_table(filter="id = 6").to_pylist()[0]["v"] == 101
