"""Refusals at commit time that stem from concurrent commits: the verb, or the command, does its work again.

Finding J8, and the compaction that was refused beside lancedb's optimize().
"""

from __future__ import annotations

from pathlib import Path

import lancedb
import pytest

import conroi
from conroi.cli.loads import Load, Loading
from conroi.cli.sources import Source
from conroi.data.pylance import has_sections
from tests.support.arrow import column_values


@pytest.mark.contract("N7")
def test_of_two_loads_that_create_a_table_the_second_appends(tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "lake")
    file = tmp_path / "rows.csv"
    file.write_text("id\n1\n2\n")
    rivals = [lambda: conroi.connect(lake.uri).create_table("t", [{"id": 7}])]

    def progress(_: int) -> None:
        if rivals:  # another load commits between our staging and our commit
            rivals.pop()()

    loading = Loading([Load("t", (Source(str(file), "csv"),), creates=True)], progress)
    loading.run(lake, message=None, author=None, once=None)
    assert sorted(column_values(lake["t"].to_arrow()["id"])) == [1, 2, 7]
    assert loading.rows == {"t": 2}


@pytest.mark.contract("N7")
def test_a_compaction_of_a_version_whose_indices_pylance_does_not_see(tmp_path: Path) -> None:
    """The plan joins fragments that an index covers and others; the index then covers none of them."""
    uri = str(tmp_path / "k.lance")
    table = conroi.create_table(uri, [{"id": 1, "v": "a"}, {"id": 2, "v": "a"}], stable_row_ids=True)
    table.create_index("id")
    conroi.open_table(uri).create_index("v", "BITMAP")
    conroi.open_table(uri).append([{"id": 3, "v": "b"}])
    lancedb.connect(tmp_path).open_table("k").update(where="id = 1", values={"v": "c"})
    pinned = conroi.open_table(uri).pinned
    assert not has_sections(pinned.files.objects, pinned.snapshot)
    compacted = conroi.open_table(uri).compact()
    assert len(compacted.to_lance().get_fragments()) == 1
    for where, found in (("v = 'a'", [2]), ("v = 'b'", [3]), ("v = 'c'", [1]), ("id < 4", [1, 2, 3])):
        assert sorted(column_values(compacted.to_arrow(filter=where)["id"])) == found
    assert compacted.doctor(deep=True).findings == ()
