from __future__ import annotations

from pathlib import Path

import lance
import pytest

from conroi.errors import InvalidInputError, UnsupportedError
from conroi.operations import Restore, Step
from tests.operations.tables import built, field, fragment, ids, index, manifest, pylance_append, pylance_table, rows
from tests.support.parity import assert_replayed, versions_of


@pytest.mark.contract("T10")
def test_everything_comes_from_the_old_version_but_ids_never_come_back() -> None:
    old = manifest(fragment(0), version=2, indices=[index("a", [0], [0])], stable_row_ids=True, next_row_id=10)
    now = manifest(
        fragment(5), version=7, fields=[field(9, "new")], stable_row_ids=True, next_row_id=60, max_fragment_id=8
    )
    after = built(now, Restore(2), Step(version=8, restored=old))
    assert after.version == 8
    assert ids(after) == [0]
    assert [each.name for each in after.fields] == ["id", "v"]
    assert [each.name for each in after.indices] == ["a"]
    assert (after.head.max_fragment_id, after.head.next_row_id) == (8, 60)


def test_stable_row_ids_cannot_be_restored_away() -> None:
    old = manifest(fragment(0), version=2)
    with pytest.raises(InvalidInputError, match="stable row ids"):
        built(manifest(version=7, stable_row_ids=True), Restore(2), Step(version=8, restored=old))


@pytest.mark.parametrize("restored", [None, manifest(version=3)])
def test_the_manifest_of_the_old_version_is_needed(restored: None) -> None:
    with pytest.raises(InvalidInputError, match="version 2 is needed"):
        built(manifest(version=7), Restore(2), Step(version=8, restored=restored))


def test_a_table_stays_on_its_branch() -> None:
    now = manifest(version=7)
    head = now.editable_head()
    head.branch = "work"
    after = built(now.changed(head=head), Restore(2), Step(version=8, restored=manifest(version=2)))
    assert after.head.branch == "work"


def test_the_flags_are_those_of_the_restored_version() -> None:
    old = manifest(fragment(0, deleted=1), version=2)
    now = manifest(fragment(1), version=3)
    head = now.editable_head()
    head.config["a"] = "b"
    head.writer_feature_flags |= 8
    after = built(now.changed(head=head), Restore(2), Step(version=4, restored=old))
    assert (after.head.reader_feature_flags, after.head.writer_feature_flags) == (1, 1)


def test_flags_that_stay_once_set_stay() -> None:
    now = manifest(fragment(1), version=3)
    head = now.editable_head()
    head.reader_feature_flags = head.writer_feature_flags = 256
    after = built(now.changed(head=head), Restore(2), Step(version=4, restored=manifest(version=2)))
    assert (after.head.reader_feature_flags, after.head.writer_feature_flags) == (256, 256)


@pytest.mark.contract("T13")
def test_a_version_that_asks_for_more_than_we_know_is_not_restored() -> None:
    old = manifest(version=2)
    head = old.editable_head()
    head.reader_feature_flags = head.writer_feature_flags = 64
    with pytest.raises(UnsupportedError):
        built(manifest(version=7), Restore(2), Step(version=8, restored=old.changed(head=head)))


@pytest.mark.contract("T5", "T10")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does(tmp_path: Path, stable: bool) -> None:
    table = pylance_table(tmp_path, stable_row_ids=stable)
    table.create_scalar_index("id", "BTREE")
    table.delete("id < 6")
    table.update_config({"a": "b"})
    lance.write_dataset(rows(0, 9), str(tmp_path), mode="overwrite").add_columns({"w": "v"})
    for version in (1, 2, 3, 4, 5):
        lance.dataset(str(tmp_path), version=version).restore()
        pylance_append(tmp_path, 0, 2)
    names = assert_replayed(tmp_path, stable_row_ids=stable)
    assert names.count("Restore") == 5
    highest = [version.manifest.head.max_fragment_id for version in versions_of(tmp_path).values()]
    assert highest == sorted(highest)
