from __future__ import annotations

from pathlib import Path

import pytest

from conroi.errors import InvalidInputError
from conroi.operations import Append, ReserveFragments
from tests.operations.tables import built, fragment, ids, manifest, pylance_table
from tests.support.parity import assert_replayed


def test_the_reserved_ids_are_not_given_to_others() -> None:
    after = built(manifest(fragment(0), fragment(4)), ReserveFragments(3))
    assert after.head.max_fragment_id == 7
    assert list(ReserveFragments(3).reserved(after)) == [5, 6, 7]
    assert ids(built(after, Append((fragment(),)))) == [0, 4, 8]


def test_on_a_table_that_never_had_a_fragment_id_zero_is_wasted() -> None:
    after = built(manifest(), ReserveFragments(2))
    assert after.head.max_fragment_id == 2
    assert list(ReserveFragments(2).reserved(after)) == [1, 2]


def test_more_ids_than_there_are_cannot_be_reserved() -> None:
    with pytest.raises(InvalidInputError, match="32 bits"):
        built(manifest(max_fragment_id=(1 << 32) - 2), ReserveFragments(2))


@pytest.mark.contract("T5")
def test_as_pylance_does(tmp_path: Path) -> None:
    pylance_table(tmp_path).optimize.compact_files(target_rows_per_fragment=10)
    assert "ReserveFragments" in assert_replayed(tmp_path)
