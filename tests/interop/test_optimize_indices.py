"""Rows that an index does not have: after appends and compactions, and how they get in."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, cast

import lance
import numpy as np
import pyarrow as pa
import pytest

import conroi
from conroi.storage import open_objects
from tests.support.arrow import column_values
from tests.support.instruments import CloudLike, table_on
from tests.support.pylance import has_empty_vector_indices
from tests.support.sampling import sampled

pytestmark = pytest.mark.contract("T26")

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "BTREE": ("id", {}),
    "BITMAP": ("id", {}),
    "ZONEMAP": ("id", {}),
    "BLOOMFILTER": ("id", {}),
    "LABEL_LIST": ("l", {}),
    "NGRAM": ("t", {}),
    "INVERTED": ("t", {"with_position": True, "base_tokenizer": "whitespace", "stem": False}),
    "IVF_FLAT": ("v", {"num_partitions": 1, "metric": "cosine"}),
    "IVF_PQ": ("v", {"num_partitions": 1, "num_sub_vectors": 2}),
    "IVF_HNSW_SQ": ("v", {"num_partitions": 1, "m": 10}),
}


def rows(start: int, stop: int) -> pa.Table:
    angles = np.linspace(0.01, 1.5, 1000, dtype=np.float32)[start:stop]
    vectors = np.stack([np.cos(angles), np.sin(angles), angles, np.ones_like(angles)], axis=1)
    return pa.table(
        {
            "id": pa.array(range(start, stop), pa.int64()),
            "t": pa.array([f"word{i} common" for i in range(start, stop)], pa.string()),
            "l": pa.array([[i % 3] for i in range(start, stop)], pa.list_(pa.int64())),
            "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 4),
        }
    )


def found(root: str, kind: str, number: int) -> tuple[list[int], bool]:
    """The ids that a question for this row finds, and whether the index answered it alone."""
    dataset = lance.dataset(root)
    how: dict[str, Any] = {"filter": f"id = {number}"}
    if kind == "NGRAM":
        how = {"filter": f"contains(t, 'word{number} ')"}
    elif kind == "LABEL_LIST":
        how = {"filter": f"array_has_any(l, [{number % 3}]) and id = {number}"}
    elif kind == "INVERTED":
        how = {"full_text_query": f"word{number}"}
    elif kind.startswith("IVF"):
        query = cast("Any", rows(number, number + 1)["v"].combine_chunks()).values.to_numpy()
        how = {"nearest": {"column": "v", "q": query, "k": 1, "nprobes": 4, "refine_factor": 10}}
    lacking = dataset.stats.index_stats("i")["num_unindexed_fragments"]
    return column_values(dataset.to_table(columns=["id"], **how)["id"]), lacking == 0


def indexed(tmp_path: Path, kind: str, *, stable: bool) -> conroi.Table:
    """A table of two fragments of 300 rows with an index, and one more of which the index knows nothing."""
    column, options = KINDS[kind]
    table = conroi.create_table(str(tmp_path / "t"), rows(0, 300), stable_row_ids=stable).append(rows(300, 600))
    return table.create_index(column, kind, name="i", options=options).append(rows(600, 640))


@pytest.mark.parametrize(("kind", "stable"), sampled("optimized indices", list(product(KINDS, (False, True)))))
def test_appended_rows_get_into_the_index(tmp_path: Path, kind: str, stable: bool) -> None:
    table = indexed(tmp_path, kind, stable=stable)
    assert table.unindexed == {"i": 40}
    before = lance.dataset(table.uri).stats.index_stats("i")
    table = table.optimize_indices()
    assert table.unindexed == {"i": 0}
    for number in (5, 305, 605):
        assert found(table.uri, kind, number) == ([number], True)
    after = lance.dataset(table.uri).stats.index_stats("i")
    assert after["index_type"] == before["index_type"]
    if kind == "INVERTED":
        assert after["indices"][0]["params"] == before["indices"][0]["params"]
    if kind.startswith("IVF"):
        assert after["indices"][-1]["metric_type"] == before["indices"][0]["metric_type"]
    else:
        assert after["num_segments"] == 1, "clients before pylance 14 know one segment only"
    assert not conroi.open_table(table.uri).doctor(deep=True).findings
    assert table.optimize_indices().version == table.version, "nothing is left to do"


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("kind", ["BTREE", "INVERTED", "IVF_HNSW_SQ", "IVF_PQ", "BITMAP"])
def test_a_compaction_does_not_empty_an_index(tmp_path: Path, kind: str, stable: bool) -> None:
    """B2: answers stayed right, but every one of them was a scan."""
    table = indexed(tmp_path, kind, stable=stable).optimize_indices().compact()
    assert table.unindexed == {"i": 0}
    for number in (5, 305, 605):
        assert found(table.uri, kind, number) == ([number], True)


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "IVF_PQ"])
def test_a_compaction_reserves_ids_on_an_object_store_too(tmp_path: Path, kind: str) -> None:
    """The reservation is a commit of its own, so the version that the work began on is no longer the newest."""
    table = indexed(tmp_path, kind, stable=False)
    far = table_on(CloudLike(open_objects(table.uri))).compact()
    assert far.unindexed == {"i": 0}
    assert len(lance.dataset(table.uri).get_fragments()) < 3
    for number in (5, 305, 605):
        assert found(table.uri, kind, number) == ([number], True)


def test_sorting_does_not_either(tmp_path: Path) -> None:
    table = indexed(tmp_path, "BTREE", stable=False).compact("t")
    assert table.unindexed == {"i": 0}
    assert found(table.uri, "BTREE", 305) == ([305], True)


def test_one_may_ask_for_the_compaction_alone(tmp_path: Path) -> None:
    table = indexed(tmp_path, "BTREE", stable=False).compact(optimize_indices=False)
    assert table.unindexed == {"i": 640}
    assert found(table.uri, "BTREE", 305) == ([305], False)
    assert table.optimize_indices(["i"]).unindexed == {"i": 0}


def test_in_a_transaction_the_table_says_what_is_missing(tmp_path: Path) -> None:
    lake = conroi.connect(str(tmp_path / "lake"))
    lake.create_table("t", rows(0, 10)).append(rows(10, 20)).create_index("id", name="i")
    with lake.begin() as tx:
        tx["t"].compact()
    assert lake["t"].latest().unindexed == {"i": 20}
    assert lake["t"].optimize_indices().unindexed == {"i": 0}
    assert lake["t"].latest().to_arrow(filter="id = 15")["id"].to_pylist() == [15]


def test_compaction_by_itself_leaves_alone_what_an_index_would_lose(tmp_path: Path) -> None:
    table = conroi.create_table(str(tmp_path / "t"), rows(0, 1), config={"conroi.auto_compact": "4"})
    table = table.append(rows(1, 2)).create_index("id", name="i")
    for number in range(2, 14):
        table = table.append(rows(number, number + 1))
    assert table.unindexed["i"] == 12, "the first two rows are still in the index"
    assert len(lance.dataset(table.uri).get_fragments()) < 10, "the others were merged"
    assert sorted(column_values(table.to_arrow()["id"])) == list(range(14))


def test_an_index_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(conroi.NotFoundError, match="no index 'j'"):
        indexed(tmp_path, "BTREE", stable=False).optimize_indices(["j"])


# ------------------------------------------------------------------------- making an index


@pytest.mark.parametrize("kind", ["BTREE", "ZONEMAP", "INVERTED", "IVF_FLAT"])
def test_a_table_without_rows_can_have_an_index(tmp_path: Path, kind: str) -> None:
    """B8."""
    column, options = KINDS[kind]
    table = conroi.create_table(str(tmp_path / "t"), rows(0, 0).schema)
    if kind.startswith("IVF") and not has_empty_vector_indices():
        with pytest.raises(conroi.InvalidInputError):
            table.create_index(column, kind, name="i", options=options)
        assert table.latest().version == table.version
        return
    table = table.create_index(column, kind, name="i", options=options).append(rows(0, 300))
    assert table.unindexed == {"i": 300}
    assert found(table.uri, kind, 5)[0] == [5]
    if not kind.startswith("IVF"):
        assert table.optimize_indices().unindexed == {"i": 0}
        assert found(table.uri, kind, 5) == ([5], True)


def test_a_second_index_on_a_column_is_told_to_take_another_name(tmp_path: Path) -> None:
    table = conroi.create_table(str(tmp_path / "t"), rows(0, 10)).create_index("id")
    with pytest.raises(conroi.AlreadyExistsError, match="BTree on id") as refused:
        table.create_index("id", "BITMAP")
    assert refused.value.hint is not None
    assert "name=" in refused.value.hint
    assert "drops the existing one" in refused.value.hint
    table = table.create_index("id", "BITMAP", name="second")
    assert set(table.indices) == {"id_idx", "second"}


@pytest.mark.parametrize(
    ("column", "name"),
    [("ID", "id_idx"), ("`id`", "id_idx"), ("S.X", "s.x_idx"), ("s.`y.z`", "s.y.z_idx"), ("`a b`", "a b_idx")],
)
def test_columns_are_named_as_pylance_takes_them(tmp_path: Path, column: str, name: str) -> None:
    fields = [("id", pa.int64()), ("a b", pa.int64()), ("s", pa.struct([("x", pa.int64()), ("y.z", pa.int64())]))]
    values = [{"id": 1, "a b": 2, "s": {"x": 3, "y.z": 4}}]
    table = conroi.create_table(str(tmp_path / "t"), pa.Table.from_pylist(values, pa.schema(fields)))
    table = table.create_index(column)
    assert list(table.indices) == [name]
    assert lance.dataset(table.uri).stats.index_stats(name)["num_indexed_rows"] == 1


def test_a_name_in_two_cases_must_be_written_as_it_is(tmp_path: Path) -> None:
    table = conroi.create_table(str(tmp_path / "t"), pa.table({"id": [1], "Id": [2]}))
    with pytest.raises(conroi.InvalidInputError, match="may be any of id, Id"):
        table.create_index("ID")
    assert table.create_index("Id").indices == {"Id_idx": ("Id",)}
