"""head, sample, take and search, outside and inside a transaction."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import conroi
from tests.support.arrow import column_values

SCHEMA = pa.schema({"id": pa.int64(), "text": pa.string(), "vec": pa.list_(pa.float32(), 4)})


def _row(number: int, text: str, first: float | None = None) -> dict[str, Any]:
    return {"id": number, "text": text, "vec": [float(number) if first is None else first, 0.0, 0.0, 0.0]}


@pytest.fixture
def lake() -> conroi.Lake:
    """300 rows with an index of each kind."""
    lake = conroi.connect(f"memory://{uuid.uuid4().hex}")
    lake.create_table("t", [_row(n, f"word{n} common") for n in range(300)], schema=SCHEMA, key="id")
    table = lake["t"].create_index("text", "INVERTED").create_index("id", "BTREE")
    table.create_index("vec", "IVF_FLAT", options={"num_partitions": 2})
    return lake


def _ids(found: pa.Table) -> list[int]:
    return column_values(found["id"])


@pytest.mark.contract("E9")
def test_head_take_and_sample(lake: conroi.Lake):
    table = lake["t"]
    assert _ids(table.head()) == [0, 1, 2, 3, 4]
    assert table.head(2, ["id"]).to_pylist() == [{"id": 0}, {"id": 1}]
    assert _ids(table.take([5, 0, 299, 5])) == [5, 0, 299, 5]
    assert table.take([], ["id"]).num_rows == 0
    assert table.take(np.array([7]), ["id"]).to_pylist() == [{"id": 7}]  # pyright: ignore
    some = _ids(table.sample(20, seed=1))
    assert len(set(some)) == 20
    assert some == _ids(table.sample(20, seed=1)) != _ids(table.sample(20, seed=2))
    assert len(set(_ids(table.sample(50)))) == 50
    assert table.sample(1000).num_rows == 300
    for bad in ([-1], [300], ["a"], [True], [1.5]):
        with pytest.raises(conroi.InvalidInputError, match="position"):
            table.take(bad)  # pyright: ignore
    for bad in (-1, 1.5, "a", True):
        for read in (table.head, table.sample):
            with pytest.raises(conroi.InvalidInputError, match=r"number of rows|whole number"):
                read(bad)  # pyright: ignore
    with pytest.raises(conroi.NotFoundError):
        table.take([1], ["nope"])


@pytest.mark.contract("E9")
def test_search_for_a_vector_and_a_text(lake: conroi.Lake):
    table = lake["t"]
    found = table.search([7.2, 0, 0, 0], limit=2)
    assert _ids(found) == [7, 8]
    assert found["_distance"].to_pylist() == pytest.approx([0.04, 0.64], abs=1e-4)
    for vector in (np.array([7.2, 0, 0, 0]), pa.array([7.2, 0.0, 0.0, 0.0]), table.take([7])["vec"][0]):
        assert _ids(table.search(vector, "vec", limit=1, columns=["id"])) == [7]
    assert _ids(table.search([7.2, 0, 0, 0], limit=2, filter="id > :low", params={"low": 100})) == [101, 102]
    assert _ids(table.search([0, 0, 0, 0], limit=1, options={"nprobes": 2, "refine_factor": 1})) == [0]
    found = table.search("word7")
    assert (_ids(found), found.column_names) == ([7], ["id", "text", "vec", "_score"])
    assert sorted(_ids(table.search("common", limit=300, filter="id < 5"))) == [0, 1, 2, 3, 4]
    assert table.search("word7", limit=0).num_rows == 0


@pytest.mark.contract("E9")
@pytest.mark.parametrize(
    ("query", "more", "said"),
    [
        ([1.0], {}, "has 1 numbers"),
        ([1, 2, 3, 4], {"column": "text"}, "no vector"),
        ([1, 2, 3, 4], {"column": "nope"}, "no column"),
        ("word", {"column": "vec"}, "no index for text"),
        ("word", {"column": "nope"}, "no column"),
        ("word", {"options": {"nprobes": 1}}, "for vectors"),
        (object(), {}, "cannot be searched for"),
        ([1, 2, 3, 4], {"filter": " "}, "not a condition"),
        ([1, 2, 3, 4], {"limit": -1}, "number of rows"),
    ],
)
def test_what_cannot_be_searched_says_why(lake: conroi.Lake, query: Any, more: dict[str, Any], said: str):
    with pytest.raises(conroi.ConroiError, match=said) as caught:
        lake["t"].search(query, **more)
    assert caught.value.hint


@pytest.mark.contract("E9")
def test_without_an_index_or_a_column_to_search():
    table = conroi.create_table(f"memory://{uuid.uuid4().hex}", [{"id": 1, "text": "a"}])
    with pytest.raises(conroi.InvalidInputError, match="no index for text") as caught:
        table.search("a")
    assert "INVERTED" in (caught.value.hint or "")
    with pytest.raises(conroi.InvalidInputError, match="no column of vectors"):
        table.search([1.0])


@pytest.mark.contract("E10")
def test_indices_are_kept_inside_a_transaction(lake: conroi.Lake):
    before = lake.version
    with lake.begin() as tx:
        table = tx["t"]
        table.append([_row(1000, "word7 new", 7.1)])
        table.delete("id = 7")
        table.update({"text": "'word7 changed'"}, "id = 8")
        assert sorted(index.name for index in table.to_lance().describe_indices()) == ["id_idx", "text_idx", "vec_idx"]
        assert sorted(_ids(table.search("word7"))) == [8, 1000]
        assert _ids(table.search("word8")) == []
        assert _ids(table.search([7.2, 0, 0, 0], limit=3)) == [1000, 8, 6]
        assert _ids(table.search("common", limit=300, filter="id IN (7, 8, 9)")) == [9]
        assert table.to_lance().count_rows(filter="id = 7") == 0
        assert table.to_lance().count_rows(filter="id = 1000") == 1
        assert _ids(lake.at(before)["t"].search("word7")) == [7]
    assert sorted(_ids(lake["t"].search("word7"))) == [8, 1000]
    assert sorted(_ids(lake["t"].optimize_indices().search("word7"))) == [8, 1000]


@pytest.mark.contract("E10")
def test_two_statements_of_a_transaction_do_not_see_each_others_rows_in_an_index(lake: conroi.Lake):
    with lake.begin() as tx:
        first = tx["t"].delete("id = 7").to_lance()
        second = tx["t"].delete("id = 8").to_lance()
        assert [each.count_rows(filter="id IN (7, 8)") for each in (first, second)] == [1, 0]


@pytest.mark.contract("E10")
@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.update({"vec": "vec"}, "id < 3", mode="columns"),
        lambda table: table.compact(),
        lambda table: table.overwrite([_row(n, f"word{n} common") for n in range(300)]),
        lambda table: table.drop_index("vec_idx"),
        lambda table: table.create_index("text", "INVERTED", name="again"),
        lambda table: table.restore(1),
        lambda table: table.rename_columns({"text": "words"}).rename_columns({"words": "text"}),
    ],
)
def test_searches_stay_right_where_the_transaction_changed_the_indices(lake: conroi.Lake, change: Any):
    with lake.begin() as tx:
        change(tx["t"])
        assert _ids(tx["t"].search([7.2, 0, 0, 0], limit=2)) == [7, 8]
        assert tx["t"].to_lance().count_rows(filter="id < 10") == 10
        with contextlib.suppress(conroi.InvalidInputError):  # where there is no index for text any more
            assert _ids(tx["t"].search("word7")) == [7]
    assert _ids(lake["t"].search([7.2, 0, 0, 0], limit=2)) == [7, 8]


@pytest.mark.contract("E9")
def test_optimize_indices_commits_through_our_own_loop(lake: conroi.Lake):
    lake["t"].append([_row(1000, "word7 new")])
    assert lake["t"].unindexed["text_idx"] == 1
    table = lake["t"].optimize_indices(message="catch up")
    assert set(table.unindexed.values()) == {0}
    assert table.history(1)[0].message == "catch up"
    assert lance.dataset(table.uri, version=table.version).count_rows() == 301
