from __future__ import annotations

from pathlib import Path

import lance
import pytest
from lance import DatasetBasePath

from conroi.errors import AlreadyExistsError
from conroi.format import lance_pb2 as pb
from conroi.operations import UpdateBases
from tests.operations.tables import built, manifest, rows
from tests.support.parity import assert_replayed


def base_path(name: str | None, path: str, id: int = 0) -> pb.BasePath:
    return pb.BasePath(id=id, name=name, path=path)


def test_ids_are_given_from_one_filling_gaps() -> None:
    first = built(manifest(), UpdateBases((base_path("a", "/a"), base_path("b", "/b", 3), base_path("c", "/c"))))
    assert [(each.id, each.name) for each in first.head.base_paths] == [(1, "a"), (3, "b"), (2, "c")]
    second = built(first, UpdateBases((base_path("d", "/d"),)))
    assert [each.id for each in second.head.base_paths] == [1, 3, 2, 4]


def test_the_flag_says_that_there_are_bases() -> None:
    after = built(manifest(), UpdateBases((base_path("a", "/a"),)))
    assert (after.head.reader_feature_flags, after.head.writer_feature_flags) == (16, 16)


@pytest.mark.parametrize("clash", [base_path("a", "/other"), base_path("other", "/a"), base_path("other", "/other", 1)])
def test_what_is_there_is_not_taken_over(clash: pb.BasePath) -> None:
    base = built(manifest(), UpdateBases((base_path("a", "/a"),)))
    with pytest.raises(AlreadyExistsError):
        built(base, UpdateBases((clash,)))


def test_two_bases_of_one_commit_may_not_clash_either() -> None:
    with pytest.raises(AlreadyExistsError):
        built(manifest(), UpdateBases((base_path("a", "/a"), base_path("a", "/b"))))


@pytest.mark.contract("T5")
def test_as_pylance_does(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("one", "two", "three", "four")]
    for place in places:
        place.mkdir()
    one, two, three, four = (DatasetBasePath(str(place), name=place.name) for place in places)
    root = str(tmp_path / "table")
    table = lance.write_dataset(rows(0, 10), root, initial_bases=[one, two], target_bases=["one"])
    table.add_bases([three])
    table = lance.write_dataset(rows(0, 5), lance.dataset(root), mode="append", target_bases=["three"])
    table.add_bases([four])
    lance.write_dataset(rows(0, 5), lance.dataset(root), mode="overwrite")
    assert assert_replayed(root) == ["Overwrite", "UpdateBases", "Append", "UpdateBases", "Overwrite"]


@pytest.mark.contract("T5")
def test_pylance_refuses_two_bases_without_a_name_too(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    table = lance.write_dataset(rows(0, 10), str(tmp_path / "table"))
    table.add_bases([DatasetBasePath(str(tmp_path / "one"))])
    with pytest.raises(ValueError, match="already exists"):
        lance.dataset(str(tmp_path / "table")).add_bases([DatasetBasePath(str(tmp_path / "two"))])
    base = built(manifest(), UpdateBases((base_path(None, "/one"),)))
    with pytest.raises(AlreadyExistsError):
        built(base, UpdateBases((base_path(None, "/two"),)))
