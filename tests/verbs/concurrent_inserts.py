"""Every way in which a concurrent writer brings the key 5 into a table while we are about to do the same.

Each starts from a table that has the key 1 (in a row with n = 0) and leaves one row with the key 5 and n = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
from lance import LanceOperation
from lance.file import LanceFileWriter
from lance.fragment import DataFile

import conroi
from tests.verbs.keyed_tables import insert, numbers, pylance_upsert, schema_of, upsert

Other = Callable[[str], object]


def _opened(root: str) -> conroi.Table:
    return conroi.open_table(root)


def pylance_append(root: str) -> None:
    lance.write_dataset(numbers(5, n=1), root, mode="append")


def pylance_merge(root: str) -> None:
    pylance_upsert(lance.dataset(root), numbers(5, n=1))


def pylance_merge_by_index(root: str) -> None:
    """The join through the index leaves no filter in its transaction."""
    lance.dataset(root).create_scalar_index("id", "BTREE")
    pylance_upsert(lance.dataset(root), numbers(5, n=1))


def pylance_changes_a_key(root: str) -> None:
    pylance_append_of(root, 4)
    lance.dataset(root).update({"id": "5"}, where="id = 4")


def pylance_append_of(root: str, key: int) -> None:
    lance.write_dataset(numbers(key, n=1), root, mode="append")


def pylance_changes_a_key_in_place(root: str) -> None:
    """A new file for the key's column in the same fragment: no row moves, no fragment is new."""
    name, schema = "replaced.lance", pa.schema([schema_of(pa.int64()).field("id")])
    pylance_append_of(root, 4)
    with LanceFileWriter(str(Path(root) / "data" / name), schema, version="2.2") as writer:
        writer.write_batch(pa.record_batch([pa.array([5], pa.int64())], schema=schema))
    facts = DataFile(name, [0], [0], 2, 2, (Path(root) / "data" / name).stat().st_size)
    dataset = lance.dataset(root)
    last = dataset.get_fragments()[-1].fragment_id
    replacement = LanceOperation.DataReplacement([LanceOperation.DataReplacementGroup(last, facts)])
    lance.LanceDataset.commit(root, replacement, read_version=dataset.version)


def conroi_append(root: str) -> None:
    _opened(root).append(numbers(5, n=1))


def conroi_insert(root: str) -> None:
    insert(_opened(root), numbers(5, n=1))


def conroi_upsert_of_many(root: str) -> None:
    """More keys than the filter can tell apart."""
    upsert(_opened(root), pa.concat_tables([numbers(5, n=1), numbers(*range(10_000, 12_000))]))


def conroi_changes_a_key(root: str) -> None:
    _opened(root).append(numbers(4, n=1)).update({"id": "5"}, where="id = 4")


def conroi_overwrites_rows(root: str) -> None:
    _opened(root).append(numbers(4, n=1)).overwrite(numbers(5, n=1), where="n = 1")


def conroi_renames_the_key(root: str) -> None:
    _opened(root).rename_columns({"id": "key"}).append([{"key": 5, "n": 1}]).rename_columns({"key": "id"})


def then(first: Other, *more: Other) -> Other:
    def both(root: str) -> None:
        for other in (first, *more):
            other(root)

    return both


def conroi_compacts(root: str) -> None:
    assert len(_opened(root).compact().to_lance().get_fragments()) == 1


def pylance_compacts(root: str) -> None:
    lance.dataset(root).optimize.compact_files()
    assert len(lance.dataset(root).get_fragments()) == 1


def conroi_sorts(root: str) -> None:
    _opened(root).compact(sort_by="n")


def other_rows_change(root: str) -> None:
    """A commit after the one that brought the key: the loop must not look at the last one only."""
    table = _opened(root)
    table.append(numbers(1000 + table.version))


OTHERS: dict[str, Other] = {
    "conroi appends": conroi_append,
    "conroi inserts": conroi_insert,
    "conroi upserts many": conroi_upsert_of_many,
    "conroi changes a key": conroi_changes_a_key,
    "conroi overwrites rows": conroi_overwrites_rows,
    "conroi renames the key": conroi_renames_the_key,
    "pylance appends": pylance_append,
    "pylance merges": pylance_merge,
    "pylance merges through an index": pylance_merge_by_index,
    "pylance changes a key": pylance_changes_a_key,
    "pylance changes a key in place": pylance_changes_a_key_in_place,
    "pylance appends, then others commit": then(pylance_append, other_rows_change),
    "pylance appends, conroi compacts": then(pylance_append, conroi_compacts),
    "pylance appends, pylance compacts": then(pylance_append, pylance_compacts),
    "conroi inserts, pylance compacts": then(conroi_insert, pylance_compacts),
    "conroi appends, conroi sorts": then(conroi_append, conroi_sorts),
    "pylance compacts twice around an append": then(
        other_rows_change, pylance_compacts, pylance_append, conroi_compacts, other_rows_change
    ),
}
