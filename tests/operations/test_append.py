from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pytest
from lance.dataset import LanceOperation

from conroi.errors import CorruptionError, InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.format.row_ids import decode_row_ids, decode_versions, encode_row_ids, fresh_row_ids
from conroi.operations import Append, Step
from tests.operations.tables import (
    built,
    data_file,
    fragment,
    ids,
    manifest,
    pylance_append,
    pylance_table,
    rows,
)
from tests.support.parity import assert_replayed


def test_new_fragments_get_the_next_ids() -> None:
    after = built(manifest(fragment(0), fragment(3)), Append((fragment(rows=2), fragment(rows=3))))
    assert [(each.id, each.physical_rows) for each in after.fragments] == [(0, 10), (3, 10), (4, 2), (5, 3)]
    assert after.head.max_fragment_id == 5


def test_the_first_fragment_of_a_table_gets_id_zero() -> None:
    after = built(manifest(), Append((fragment(),)))
    assert ids(after) == [0]
    assert after.head.HasField("max_fragment_id")
    assert after.head.max_fragment_id == 0


def test_ids_go_on_after_the_highest_ever_given() -> None:
    after = built(manifest(fragment(0), max_fragment_id=8), Append((fragment(),)))
    assert ids(after) == [0, 9]


def test_a_reserved_id_is_kept_and_sorted_in() -> None:
    after = built(manifest(fragment(0), fragment(7)), Append((fragment(4), fragment())))
    assert ids(after) == [0, 4, 7, 8]


def test_an_id_that_is_taken_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="ids 7, which are or were in use"):
        built(manifest(fragment(0), fragment(7)), Append((fragment(7),)))


def test_two_new_fragments_with_one_id_are_refused() -> None:
    with pytest.raises(CorruptionError, match="two fragments with id 9"):
        built(manifest(fragment(0)), Append((fragment(9), fragment(9))))


@pytest.mark.contract("T10")
def test_rows_get_the_next_row_ids_and_the_version_of_the_commit() -> None:
    base = manifest(fragment(0, 5, row_ids=fresh_row_ids(0, 5)), version=4, stable_row_ids=True, next_row_id=12)
    after = built(base, Append((fragment(rows=2), fragment(rows=3))))
    assert [decode_row_ids(each.inline_row_ids).tolist() for each in after.fragments[1:]] == [[12, 13], [14, 15, 16]]
    assert after.head.next_row_id == 17
    for each in after.fragments[1:]:
        assert set(decode_versions(each.inline_created_at_versions).tolist()) == {5}
        assert set(decode_versions(each.inline_last_updated_at_versions).tolist()) == {5}


def test_a_fragment_with_fewer_ids_than_rows_gets_the_rest() -> None:
    partial = fragment(rows=4, row_ids=encode_row_ids(np.array([3, 1], np.uint64)))
    after = built(manifest(stable_row_ids=True, next_row_id=10), Append((partial,)))
    assert decode_row_ids(after.fragments[0].inline_row_ids).tolist() == [3, 1, 10, 11]
    assert after.head.next_row_id == 12


def test_a_fragment_with_more_ids_than_rows_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="2 rows but 3 row ids"):
        built(manifest(stable_row_ids=True), Append((fragment(rows=2, row_ids=fresh_row_ids(0, 3)),)))


def test_without_stable_row_ids_there_are_none() -> None:
    after = built(manifest(), Append((fragment(),)))
    assert after.fragments[0].WhichOneof("row_id_sequence") is None
    assert after.head.next_row_id == 0


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (fragment(rows=0), "how many rows"),
        (fragment(rows=10, deleted=1), "deletion file"),
        (fragment(0, 1, data_file(version=(2, 1))), "file version 2\\.1"),
        (fragment(0, 1, data_file(fields=())), "holds no columns"),
        (fragment(1 << 32), "32 bits"),
    ],
)
def test_fragments_that_readers_would_drop_or_misread_are_refused(bad: pb.DataFragment, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        built(manifest(), Append((bad,)))


def test_the_fragments_handed_in_are_not_changed() -> None:
    given = fragment(rows=2)
    before = given.SerializeToString()
    built(manifest(stable_row_ids=True), Append((given,)))
    assert given.SerializeToString() == before


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does(tmp_path: Path, stable: bool) -> None:
    pylance_table(tmp_path, stable_row_ids=stable)
    pylance_append(tmp_path, 20, 33)
    pylance_append(tmp_path, 0, 0)
    pylance_append(tmp_path, 33, 35).delete("id = 21")
    pylance_append(tmp_path, 35, 36)
    names = assert_replayed(tmp_path, stable_row_ids=stable)
    assert names == ["Overwrite", "Append", "Append", "Append", "Delete", "Append"]


@pytest.mark.contract("T5")
@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_does_with_ids_given_by_hand(tmp_path: Path, stable: bool) -> None:
    pylance_table(tmp_path, stable_row_ids=stable)
    for fragment_id in (50, 0, 30, 60):
        dataset = lance.dataset(str(tmp_path))
        (written,) = lance.fragment.write_fragments(rows(0, 3), dataset)
        facts = json.dumps(written.to_json() | {"id": fragment_id})
        operation = LanceOperation.Append([lance.fragment.FragmentMetadata.from_json(facts)])
        lance.LanceDataset.commit(str(tmp_path), operation, read_version=dataset.version)
    assert assert_replayed(tmp_path, stable_row_ids=stable) == ["Overwrite"] + ["Append"] * 4


def test_replay_sees_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of all tests named as_pylance_does: an append that goes wrong is noticed."""
    pylance_table(tmp_path)
    pylance_append(tmp_path, 20, 25)
    right = Append.apply

    def forgetful(self: Append, base: Manifest, step: Step) -> Manifest:
        return right(replace(self, fragments=self.fragments[1:]), base, step)

    monkeypatch.setattr(Append, "apply", forgetful)
    with pytest.raises(AssertionError, match="version 2, Append differs"):
        assert_replayed(tmp_path)
