"""What goes wrong without us: two pylance writers insert the same new key."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from tests.verbs.keyed_tables import pylance_upsert, rows, written_by

pytestmark = pytest.mark.contract("K1")


@pytest.mark.parametrize("new", [[5], [5, 6, 7]])
def test_two_pylance_writers_without_a_declared_key_insert_it_twice(new: list[int], root: str) -> None:
    lance.write_dataset(rows(pa.int64(), 1, is_marked=False), root)
    ann, bob = lance.dataset(root), lance.dataset(root)
    for number, writer in enumerate((ann, bob), start=1):
        done = pylance_upsert(writer, rows(pa.int64(), *new, n=number, is_marked=False))
        assert (done["num_inserted_rows"], done["num_updated_rows"]) == (len(new), 0)
    assert [written_by(root, key) for key in new] == [[1, 2]] * len(new), "the anomaly: two rows of each key"


def test_an_existing_row_in_both_hides_it(root: str) -> None:
    """Why the test above takes only new keys: here the two conflict on the row, and so by luck on the key too."""
    lance.write_dataset(rows(pa.int64(), 1, is_marked=False), root)
    ann, bob = lance.dataset(root), lance.dataset(root)
    pylance_upsert(ann, rows(pa.int64(), 1, 5, n=1, is_marked=False))
    with pytest.raises(OSError, match="concurrent writers"):
        pylance_upsert(bob, rows(pa.int64(), 1, 5, n=2, is_marked=False))
    assert written_by(root, 5) == [1]


def test_with_the_mark_the_second_is_refused(root: str) -> None:
    lance.write_dataset(rows(pa.int64(), 1), root)
    ann, bob = lance.dataset(root), lance.dataset(root)
    pylance_upsert(ann, rows(pa.int64(), 5, n=1))
    with pytest.raises(OSError, match="concurrent writers"):
        pylance_upsert(bob, rows(pa.int64(), 5, n=2))
    assert written_by(root, 5) == [1]


def test_the_mark_that_conroi_sets_is_the_one_that_pylance_heeds(root: str) -> None:
    import conroi

    conroi.create_table(root, rows(pa.int64(), 1, is_marked=False), key="id")
    ann, bob = lance.dataset(root), lance.dataset(root)
    pylance_upsert(ann, rows(pa.int64(), 5, n=1))
    with pytest.raises(OSError, match="concurrent writers"):
        pylance_upsert(bob, rows(pa.int64(), 5, n=2))
    assert written_by(root, 5) == [1]
