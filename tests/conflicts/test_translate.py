"""Deletions follow their rows through a compaction, shown against a model that really moves rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from conroi.conflicts.rebase import Source, translate_deletions
from conroi.errors import InvalidInputError


@st.composite
def compactions(draw: st.DrawFn) -> tuple[list[Source], list[int]]:
    """Old fragments with rows deleted before and since, and any cut of the copied rows into new fragments."""
    sources: list[Source] = []
    for rows in draw(st.lists(st.integers(1, 12), min_size=1, max_size=4)):
        offsets = st.sets(st.integers(0, rows - 1))
        before = draw(offsets)
        # The newest list of deleted rows has the older ones in it.
        sources.append(Source(rows, BitMap(before), BitMap(before | draw(offsets))))
    left = sum(source.copied_rows for source in sources)
    new_rows: list[int] = []
    while left:
        new_rows.append(draw(st.integers(1, left)))
        left -= new_rows[-1]
    return sources, new_rows


def by_moving_rows(sources: list[Source], new_rows: list[int]) -> list[set[int]]:
    """The model: copy row after row, remember which old row each new one is, and look each of them up."""
    copied = [
        (number, offset)
        for number, source in enumerate(sources)
        for offset in range(source.physical_rows)
        if offset not in source.deleted_before
    ]
    deleted: list[set[int]] = []
    for rows in new_rows:
        fragment, copied = copied[:rows], copied[rows:]
        deleted.append({at for at, (number, offset) in enumerate(fragment) if offset in sources[number].deleted_since})
    return deleted


@pytest.mark.contract("M1")
@given(compactions())
def test_deleted_rows_are_found_where_the_compaction_put_them(compaction: tuple[list[Source], list[int]]) -> None:
    sources, new_rows = compaction
    assert [set(rows) for rows in translate_deletions(sources, new_rows)] == by_moving_rows(sources, new_rows)


@given(compactions())
def test_as_many_rows_are_marked_as_were_deleted_concurrently(compaction: tuple[list[Source], list[int]]) -> None:
    sources, new_rows = compaction
    marked = sum(len(rows) for rows in translate_deletions(sources, new_rows))
    assert marked == sum(len(source.deleted_since - source.deleted_before) for source in sources)


def test_a_row_moves_up_by_the_rows_that_were_not_copied() -> None:
    source = Source(6, BitMap([0, 2]), BitMap([0, 2, 3]))
    assert translate_deletions([source], [4]) == (BitMap([1]),)


def test_rows_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="read 6 and wrote 5"):
        translate_deletions([Source(6, BitMap(), BitMap())], [5])


def test_a_million_rows_take_no_time() -> None:
    rows = 1_000_000
    every_third, every_fourth = BitMap(range(0, rows, 3)), BitMap(range(0, rows, 4))
    source = Source(rows, every_third, every_third | every_fourth)
    (marked,) = translate_deletions([source], [source.copied_rows])
    assert len(marked) == len(every_fourth - every_third)
