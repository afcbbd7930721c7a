"""Vector and full-text search in SQL, as a table with options."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import conroi
from tests.spark.connector.support import rows
from tests.spark.support import SPARK

pytestmark = pytest.mark.contract("S16")


@pytest.fixture(scope="module")
def docs(lake: conroi.Lake) -> conroi.Table:
    """Four documents at the corners of a square."""
    schema = pa.schema({"id": pa.int64(), "text": pa.string(), "vec": pa.list_(pa.float32(), 2)})
    words = ["red apple", "green apple", "red car", "blue sky"]
    corners = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    made = [{"id": i, "text": words[i], "vec": corners[i]} for i in range(4)]
    return lake.create_table("docs", made, schema=schema).create_index("text", "INVERTED")


NEAR = "WITH (search = '[0.9, 0.8]', search_limit = 2)"


def test_the_nearest_rows_with_their_distance(sql: SparkSession, docs: conroi.Table):
    found = rows(sql, f"SELECT id, _distance FROM lake.docs {NEAR} ORDER BY _distance")
    expected = docs.search([0.9, 0.8], limit=2, columns=["id"]).to_pylist()
    assert found == [(row["id"], pytest.approx(row["_distance"])) for row in expected]
    assert [row[0] for row in found] == [3, 2]
    assert rows(sql, f"SELECT count(*) FROM lake.docs {NEAR}") == [(2,)]
    assert len(rows(sql, f"SELECT _distance FROM lake.docs {NEAR}")) == 2
    assert sql.sql(f"SELECT * FROM lake.docs {NEAR}").columns == ["id", "text", "vec"]


def test_conditions_apply_to_the_best_rows_and_search_filter_before(sql: SparkSession, docs: conroi.Table):
    assert rows(sql, f"SELECT id FROM lake.docs {NEAR} WHERE id < 2") == []
    before = "WITH (search = '[0.9, 0.8]', search_limit = 2, search_filter = 'id < 2')"
    assert rows(sql, f"SELECT id FROM lake.docs {before} ORDER BY _distance") == [(1,), (0,)]


def test_words_with_their_score(sql: SparkSession, docs: conroi.Table):
    found = rows(sql, "SELECT id, _score > 0, _distance FROM lake.docs WITH (search = 'apple') ORDER BY id")
    assert found == [(0, True, None), (1, True, None)]


def test_a_search_is_joined_and_pinned_at_a_version(sql: SparkSession, lake: conroi.Lake, docs: conroi.Table):
    query = f"SELECT d.id, s.text FROM lake.docs {NEAR} s JOIN {{}} d ON d.id = s.id - 2 ORDER BY 1"
    assert rows(sql, query.format(f"lake.docs VERSION AS OF {docs.version}")) == [(0, "red car"), (1, "blue sky")]
    if SPARK >= (4, 3):  # older ones take two relations of one table for one, with the options of the first
        assert rows(sql, query.format("lake.docs")) == [(0, "red car"), (1, "blue sky")]
    lake["docs"].delete("id = 3")
    assert rows(sql, f"SELECT id FROM lake.docs {NEAR} ORDER BY _distance") == [(2,), (1,)]
    past = sql.read.option("search", "[0.9, 0.8]").option("search_limit", 1).option("versionAsOf", docs.version)
    assert [row["id"] for row in past.table("lake.docs").collect()] == [3]


def test_without_a_search_there_is_no_rank(sql: SparkSession, docs: conroi.Table):
    assert rows(sql, "SELECT id, _distance, _score FROM lake.docs WHERE id = 0") == [(0, None, None)]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("search = '[1.0, 2.0]', search_top = '3'", "Unknown option search_top"),
        ("search = '[1.0, 2.0]', search_limit = 'x'", "is no number of rows"),
        ("search = '[1.0]'", "conroi."),
        ("search = 'apple', search_column = 'absent'", "conroi."),
    ],
)
def test_a_wrong_search_is_refused(sql: SparkSession, docs: conroi.Table, options: str, error: str):
    with pytest.raises(PySparkException, match=error):
        sql.sql(f"SELECT id FROM lake.docs WITH ({options})").collect()
