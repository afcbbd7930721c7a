"""Files go from one table to another, whatever stores the two are in, and however large the files are."""

from __future__ import annotations

import pytest

from conroi.errors import NotFoundError, StoreUnavailable
from conroi.storage.objects import PIECE_BYTES, Objects, pieces
from conroi.testing import CountingObjects, FaultyObjects, fail
from tests.support.object_stores import new_objects

PAIRS = [
    ("local", "local"), ("memory", "durable"), ("local", "seaweedfs"), ("seaweedfs", "local"),
    ("seaweedfs", "seaweedfs"), ("moto", "seaweedfs"),
    ("azurite", "azurite"), ("local", "gcs"), ("gcs", "azurite"),
]  # fmt: skip
LARGE = bytes(range(251)) * (PIECE_BYTES // 251 + 100)


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest) -> tuple[Objects, Objects]:
    return new_objects(request.param[0], request), new_objects(request.param[1], request)


def test_a_copy_is_what_the_source_was(pair: tuple[Objects, Objects]) -> None:
    source, target = pair
    for path, data in {"data/small one#1": b"abc", "empty": b"", "large": LARGE}.items():
        source.put(path, data)
        target.put(path, b"replaced")
        target.copy_from(source, path)
        assert target.get(path) == data
        assert source.get(path) == data


def test_a_file_that_is_not_there_is_not_found(pair: tuple[Objects, Objects]) -> None:
    source, target = pair
    with pytest.raises(NotFoundError):
        target.copy_from(source, "data/none")
    assert list(target.list("")) == []


@pytest.mark.parametrize("store", ["local", "seaweedfs"])
def test_a_source_that_fails_half_way_leaves_nothing(store: str, request: pytest.FixtureRequest) -> None:
    source, target = new_objects("seaweedfs", request), new_objects(store, request)
    source.put("large", LARGE)
    with pytest.raises(StoreUnavailable):
        target.copy_from(FaultyObjects(source, [fail("get_range", skip=1)]), "large")
    assert list(target.list("")) == []


def test_a_small_file_is_one_request_and_a_large_one_a_few(request: pytest.FixtureRequest) -> None:
    source = CountingObjects(new_objects("local", request))
    source.put("small", b"abc")
    source.put("large", LARGE)
    with source.measure() as small:
        assert list(pieces(source, "small")) == [b"abc"]
    with source.measure() as large:
        assert [len(piece) for piece in pieces(source, "large")] == [PIECE_BYTES, len(LARGE) - PIECE_BYTES]
    assert (small.requests(), large.requests()) == (1, 2)
