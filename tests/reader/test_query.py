"""lake.query: SELECTs of DuckDB over one snapshot of all tables, without files, network or writes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import conroi


@pytest.mark.contract("E3")
def test_tables_and_namespaces_are_joined(lake: conroi.Lake):
    text = "SELECT c.who, o.amount FROM sales.customers c JOIN orders o ON o.id = c.n ORDER BY 1"
    expected = [{"who": "Ada", "amount": 0.5}, {"who": "Bob", "amount": 1.0}]
    assert lake.query(text).to_pylist() == expected
    assert list(lake.query(text)) == expected
    assert lake.query(text).to_polars().rows() == [("Ada", 0.5), ("Bob", 1.0)]
    assert lake.query(text).to_pandas()["who"].tolist() == ["Ada", "Bob"]
    assert pl.DataFrame(lake.query(text)).height == 2
    assert lake.query('SELECT count(*) AS n FROM "sales.customers"').to_pylist() == [{"n": 2}]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) AS n FROM ORDERS",
        "FROM orders SELECT count(*) AS n",
        "WITH x AS (SELECT * FROM orders) SELECT count(*) AS n FROM x",
        "SELECT (SELECT count(*) FROM orders) AS n",
        "SELECT count(*) AS n FROM orders JOIN orders AS again USING (id)",
    ],
)
@pytest.mark.contract("E3")
def test_ways_to_name_a_table(lake: conroi.Lake, text: str):
    assert lake.query(text).to_pylist() == [{"n": 10}]


@pytest.mark.contract("E3")
def test_values_are_parameters(lake: conroi.Lake):
    assert lake.query("SELECT name FROM orders WHERE id = $id", {"id": 3}).to_pylist() == [{"name": "n3"}]
    assert lake.query("SELECT name FROM orders WHERE id = ?", [4]).to_pylist() == [{"name": "n4"}]
    found = lake.query("SELECT count(*) AS n FROM orders WHERE name = $n", {"n": "x' OR 1=1 --"})
    assert found.to_pylist() == [{"n": 0}]
    with pytest.raises(conroi.InvalidInputError):
        lake.query("SELECT name FROM orders WHERE id = $id", {"other": 3})


@pytest.mark.contract("E3")
def test_all_tables_are_read_at_one_version(lake: conroi.Lake):
    before = lake.version
    answer = lake.query("SELECT count(*) AS n FROM orders")
    with lake.begin() as tx:
        tx["orders"].delete("id > 1")
        tx.create_table("later", [{"a": 1}])
    assert answer.to_pylist() == [{"n": 10}]
    assert lake.query("SELECT count(*) AS n FROM orders").to_pylist() == [{"n": 2}]
    assert lake.at(before).query("SELECT count(*) AS n FROM orders").to_pylist() == [{"n": 10}]
    with pytest.raises(conroi.InvalidInputError, match="later") as caught:
        lake.at(before).query("SELECT * FROM later")
    assert "The lake has orders, sales.customers." in (caught.value.hint or "")


@pytest.mark.contract("E3")
def test_a_transaction_sees_what_it_staged(lake: conroi.Lake):
    with lake.begin() as tx:
        tx["orders"].append([{"id": 10, "name": "x", "amount": 9.0}])
        tx.create_table("new", [{"a": 1}])
        tx.drop_table("sales.customers")
        assert tx.query("SELECT max(id) AS m FROM orders").to_pylist() == [{"m": 10}]
        assert tx.query("SELECT a FROM new").to_pylist() == [{"a": 1}]
        with pytest.raises(conroi.InvalidInputError, match="customers"):
            tx.query("SELECT * FROM sales.customers")
        tx["orders"].append(tx.query("SELECT id + 100 AS id, name, amount FROM orders"))
    assert lake["orders"].count_rows() == 22
    with pytest.raises(conroi.ClosedError):
        tx.query("SELECT 1")


@pytest.mark.contract("E3")
def test_a_query_counts_as_reading_under_serializable(lake: conroi.Lake):
    tx = lake.begin(isolation="serializable")
    assert tx.query("SELECT count(*) AS n FROM orders").to_pylist() == [{"n": 10}]
    tx["sales.customers"].append([{"n": 3, "who": "Eve"}])
    lake["orders"].append([{"id": 11, "name": "x", "amount": 1.0}])
    with pytest.raises(conroi.ConflictError):
        tx.commit()


@pytest.mark.contract("E3")
def test_a_query_does_not_count_as_listing(lake: conroi.Lake):
    """Under serializable a new table of another writer is no conflict with a query of other tables."""
    tx = lake.begin(isolation="serializable")
    assert tx.query("SELECT count(*) AS n FROM orders").to_pylist() == [{"n": 10}]
    tx["sales.customers"].append([{"n": 3, "who": "Eve"}])
    lake.create_table("unrelated", [{"a": 1}])
    tx.commit()


@pytest.mark.contract("E4")
@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM orders",
        "INSERT INTO orders VALUES (1)",
        "CREATE TABLE x (a INT)",
        "COPY orders TO '{folder}/stolen.csv'",
        "COPY (SELECT 1) TO '{folder}/stolen.csv'",
        "ATTACH '{folder}/other.db'",
        "EXPORT DATABASE '{folder}/stolen.csv'",
        "SELECT 1; SELECT 2",
        "SELECT * FROM read_csv('{folder}/secret.csv')",
        "SELECT * FROM '{folder}/secret.csv'",
        "SELECT * FROM read_text('{folder}/secret.csv')",
        "SELECT * FROM read_blob('{folder}/*')",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM sniff_csv('{folder}/secret.csv')",
        "SELECT * FROM parquet_metadata('{folder}/secret.csv')",
        "SELECT * FROM query('COPY (SELECT 1) TO ''{folder}/stolen.csv''')",
        "SELECT * FROM query_table('{folder}/secret.csv')",
        "SELECT * FROM read_parquet('http://127.0.0.1:9/x.parquet')",
        "SELECT getenv('HOME')",
        "SELECT * FROM secret",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "PRAGMA enable_profiling",
        "CALL pragma_version()",
        "SELECT FROM WHERE",
        "selec * from orders",
        "",
    ],
)
def test_anything_but_one_select_of_the_lake_is_refused(lake: conroi.Lake, tmp_path: Path, text: str):
    secret = pa.table({"word": ["geheim"]})
    (tmp_path / "secret.csv").write_text("word\ngeheim\n")
    before = lake.version
    with pytest.raises(conroi.InvalidInputError) as caught:
        lake.query(text.format(folder=tmp_path)).to_pylist()
    assert caught.value.hint
    assert "geheim" not in str(caught.value)
    assert os.listdir(tmp_path) == ["secret.csv"]
    assert lake.version == before
    assert secret.num_rows == 1


@pytest.mark.contract("E4")
def test_the_settings_cannot_be_changed(lake: conroi.Lake):
    answer = lake.query(
        "SELECT current_setting('enable_external_access') AS e, current_setting('lock_configuration') AS l"
    )
    assert answer.to_pylist() == [{"e": False, "l": True}]


@pytest.mark.contract("E3")
def test_an_answer_is_a_stream_that_is_read_once(lake: conroi.Lake):
    answer = lake.query("SELECT * FROM range(100000) AS t(n)")
    assert next(answer.to_batches()).num_rows <= 10_000
    with pytest.raises(conroi.ClosedError, match="read already"):
        answer.to_arrow()
    kept = lake.query("SELECT id FROM orders")
    assert kept.to_arrow().num_rows == kept.to_reader().read_all().num_rows == kept.to_arrow().num_rows == 10
    assert "id: int64" in repr(kept)
    assert lake.query("SELECT 1 AS a, 2 AS a").to_pylist() == [{"a": 1, "a_1": 2}]


@pytest.mark.contract("E3")
def test_a_staged_query_feeds_a_merge_without_waiting_for_itself(lake: conroi.Lake):
    """DuckDB reads in threads of its own while a statement holds the table."""

    def work() -> None:
        with lake.begin() as tx:
            tx["orders"].append([{"id": 10, "name": "x", "amount": 9.0}])
            rows = tx.query("SELECT id, upper(name) AS name, amount FROM orders")
            tx["orders"].merge(rows, on="id").when_matched_update_all().execute()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert lake["orders"].to_arrow(filter="id = 10")["name"].to_pylist() == ["X"]


@pytest.mark.contract("E3")
def test_upper_and_lower_case_must_not_be_ambiguous(lake: conroi.Lake):
    lake.create_table("Orders", [{"a": 1}])
    assert lake.query('SELECT * FROM "Orders"').to_pylist() == [{"a": 1}]
    with pytest.raises(conroi.InvalidInputError, match="Orders"):
        lake.query("SELECT * FROM ORDERS")
