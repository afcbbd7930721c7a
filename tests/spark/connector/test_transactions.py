"""Transactions over several SQL statements: one snapshot, own changes, all or nothing, typed conflicts."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import conroi
import conroi.spark
from conroi.transaction import Isolation
from tests.spark.connector.support import rows

pytestmark = pytest.mark.contract("S19")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> conroi.Lake:
    """A lake for these tests alone."""
    return conroi.connect(tmp_path_factory.mktemp("connector") / "lake")


@pytest.fixture
def accounts(sql: SparkSession, lake: conroi.Lake) -> conroi.Lake:
    """Two tables with the same rows at each beginning."""
    for name in ("a", "b", "made"):
        sql.sql(f"DROP TABLE IF EXISTS lake.{name}")
    for name in ("a", "b"):
        sql.sql(f"CREATE TABLE lake.{name} (id BIGINT NOT NULL, amount BIGINT) TBLPROPERTIES ('key' = 'id')")
        sql.sql(f"INSERT INTO lake.{name} VALUES (1, 10), (2, 20)")
    return lake


def amounts(lake: conroi.Lake, name: str) -> dict[int, int]:
    return {row["id"]: row["amount"] for row in lake[name].to_arrow().to_pylist()}


def test_statements_are_committed_together_and_see_their_own_changes(sql: SparkSession, accounts: conroi.Lake) -> None:
    before = accounts.version
    with conroi.spark.transaction(sql, "move") as tx:
        tx.sql("UPDATE lake.a SET amount = amount - 5 WHERE id = 1")
        sql.sql("MERGE INTO lake.b t USING (SELECT id, amount FROM lake.a WHERE id = 1) s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET amount = t.amount + s.amount")  # fmt: skip
        sql.sql("INSERT INTO lake.b SELECT 3, sum(amount) FROM lake.a")
        sql.sql("DELETE FROM lake.a WHERE id = 2")
        assert rows(sql, "SELECT id, amount FROM lake.b ORDER BY id") == [(1, 15), (2, 20), (3, 25)]
        assert rows(sql, "SELECT count(*) FROM lake.a") == [(1,)]
        assert accounts.version == before, "nothing is visible yet"
        assert amounts(accounts, "b") == {1: 10, 2: 20}
    assert (tx.version, accounts.version) == (before + 1, before + 1)
    assert (amounts(accounts, "a"), amounts(accounts, "b")) == ({1: 5}, {1: 15, 2: 20, 3: 25})
    assert accounts.history(1)[0].message == "move"
    sql.sql("INSERT INTO lake.a VALUES (9, 9)")
    assert amounts(accounts, "a") == {1: 5, 9: 9}, "the next statement is a transaction of its own"


def test_after_an_exception_nothing_happened(sql: SparkSession, accounts: conroi.Lake) -> None:
    before = accounts.version

    def broken() -> None:
        with conroi.spark.transaction(sql):
            sql.sql("DELETE FROM lake.a")
            sql.sql("CREATE TABLE lake.made AS SELECT 1 AS one")
            assert rows(sql, "SELECT * FROM lake.made") == [(1,)]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert accounts.version == before
    assert rows(sql, "SELECT count(*) FROM lake.a") == [(2,)]
    assert "made" not in accounts


def test_a_statement_that_fails_leaves_those_before_it(sql: SparkSession, accounts: conroi.Lake) -> None:
    with conroi.spark.transaction(sql) as tx:
        tx.sql("INSERT INTO lake.a VALUES (3, 30)")
        with pytest.raises(conroi.DuplicateKeyError):
            tx.sql("INSERT INTO lake.a VALUES (1, 0)")
        tx.sql("INSERT INTO lake.b VALUES (3, 30)")
    assert (amounts(accounts, "a"), amounts(accounts, "b")) == ({1: 10, 2: 20, 3: 30}, {1: 10, 2: 20, 3: 30})


def test_tables_are_created_filled_and_dropped_with_the_rest(sql: SparkSession, accounts: conroi.Lake) -> None:
    before = accounts.version
    with conroi.spark.transaction(sql):
        sql.sql("CREATE TABLE lake.made AS SELECT * FROM lake.a")
        sql.sql("INSERT INTO lake.made VALUES (7, 70)")
        sql.sql("DROP TABLE lake.b")
    assert accounts.version == before + 1
    assert sorted(accounts.tables()) == ["a", "made"]
    assert amounts(accounts, "made") == {1: 10, 2: 20, 7: 70}


def test_a_table_of_the_transaction_is_listed_and_altered_in_it(sql: SparkSession, accounts: conroi.Lake) -> None:
    with conroi.spark.transaction(sql) as tx:
        tx.sql("CREATE TABLE lake.made (id BIGINT)")
        assert ("", "made", False) in rows(sql, "SHOW TABLES IN lake")
        tx.sql("ALTER TABLE lake.made ADD COLUMN name STRING")
        tx.sql("INSERT INTO lake.made VALUES (1, 'x')")
        with pytest.raises(conroi.UnsupportedError, match="inside a transaction"):
            tx.sql("CREATE NAMESPACE lake.inside")
    assert accounts["made"].to_arrow().to_pylist() == [{"id": 1, "name": "x"}]
    assert accounts.namespaces() == []


def test_a_conflict_is_our_error_and_nothing_happened(sql: SparkSession, accounts: conroi.Lake) -> None:
    def conflicting() -> None:
        with conroi.spark.transaction(sql):
            sql.sql("UPDATE lake.a SET amount = 0 WHERE id = 1")
            sql.sql("UPDATE lake.b SET amount = 0 WHERE id = 1")
            accounts["a"].update({"amount": "11"}, "id = 1")

    with pytest.raises(conroi.ConflictError):
        conflicting()
    assert (amounts(accounts, "a"), amounts(accounts, "b")) == ({1: 11, 2: 20}, {1: 10, 2: 20})


def test_other_rows_of_a_concurrent_commit_are_no_conflict(sql: SparkSession, accounts: conroi.Lake) -> None:
    with conroi.spark.transaction(sql):
        sql.sql("UPDATE lake.a SET amount = 0 WHERE id = 1")
        accounts["a"].update({"amount": "21"}, "id = 2")
        assert rows(sql, "SELECT amount FROM lake.a ORDER BY id") == [(0,), (20,)], "one snapshot"
    assert amounts(accounts, "a") == {1: 0, 2: 21}


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_write_skew_is_refused_if_serializable(sql: SparkSession, accounts: conroi.Lake, isolation: Isolation) -> None:
    """With `snapshot` it is the negative control: both commit."""

    def skewed() -> None:
        with conroi.spark.transaction(sql, isolation=isolation):
            ((total,),) = rows(sql, "SELECT sum(amount) FROM lake.a")
            sql.sql(f"UPDATE lake.b SET amount = {total} WHERE id = 1")
            accounts["a"].update({"amount": "1000"}, "id = 2")  # concurrently, because of what it read in b

    if isolation == "snapshot":
        skewed()
        assert amounts(accounts, "b")[1] == 30
    else:
        with pytest.raises(conroi.ConflictError):
            skewed()
        assert amounts(accounts, "b")[1] == 10


def test_transactions_are_not_nested_and_belong_to_one_session(sql: SparkSession, accounts: conroi.Lake) -> None:
    other = sql.newSession()
    for key in ("", ".uri", ".pythonPath"):
        other.conf.set(f"spark.sql.catalog.lake{key}", sql.conf.get(f"spark.sql.catalog.lake{key}") or "")
    with conroi.spark.transaction(sql):
        sql.sql("DELETE FROM lake.a")
        assert rows(other, "SELECT count(*) FROM lake.a") == [(2,)]
        with pytest.raises(conroi.InvalidInputError, match="already"), conroi.spark.transaction(sql):
            pass
    assert rows(other, "SELECT count(*) FROM lake.a") == [(0,)]


def test_a_transaction_that_is_not_open_is_a_clear_error(sql: SparkSession, accounts: conroi.Lake) -> None:
    sql.conf.set("spark.conroi.transaction.lake", "no-such-transaction")
    try:
        with pytest.raises(Exception, match="not open"):
            rows(sql, "SELECT * FROM lake.a")
    finally:
        sql.conf.unset("spark.conroi.transaction.lake")
    assert rows(sql, "SELECT count(*) FROM lake.a") == [(2,)]


def test_in_sql_alone(sql: SparkSession, accounts: conroi.Lake) -> None:
    before = accounts.version
    sql.sql("CALL lake.system.begin('close', message => 'in SQL')")
    with pytest.raises(Exception, match="open already"):
        sql.sql("CALL lake.system.begin('close')")
    sql.sql("SET spark.conroi.transaction.lake = close")
    sql.sql("DELETE FROM lake.a WHERE id = 1")
    sql.sql("DELETE FROM lake.b WHERE id = 1")
    sql.sql("RESET spark.conroi.transaction.lake")
    assert accounts.version == before
    assert rows(sql, "CALL lake.system.commit('close')") == [(before + 1,)]
    assert (amounts(accounts, "a"), amounts(accounts, "b")) == ({2: 20}, {2: 20})
    assert accounts.history(1)[0].message == "in SQL"


def test_a_table_that_was_dropped_is_gone_and_can_be_made_again(sql: SparkSession, accounts: conroi.Lake) -> None:
    with conroi.spark.transaction(sql):
        sql.sql("DROP TABLE lake.a")
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            sql.sql("SELECT * FROM lake.a")
        sql.sql("DROP TABLE IF EXISTS lake.a")
        sql.sql("CREATE TABLE lake.a (id BIGINT, amount BIGINT)")
        sql.sql("INSERT INTO lake.a VALUES (7, 70)")
        assert rows(sql, "SELECT * FROM lake.a") == [(7, 70)]
    assert amounts(accounts, "a") == {7: 70}


def test_a_replaced_table_is_read_written_and_replaced_again(sql: SparkSession, accounts: conroi.Lake) -> None:
    with conroi.spark.transaction(sql):
        sql.sql("CREATE OR REPLACE TABLE lake.a AS SELECT id, amount + 1 AS amount FROM lake.a")
        assert rows(sql, "SELECT * FROM lake.a ORDER BY id") == [(1, 11), (2, 21)]
        sql.sql("UPDATE lake.a SET amount = amount * 2 WHERE id = 1")
        sql.sql("CREATE OR REPLACE TABLE lake.a AS SELECT id, amount + 1 AS amount FROM lake.a")
        assert rows(sql, "SELECT * FROM lake.a ORDER BY id") == [(1, 23), (2, 22)]
        sql.sql("CREATE OR REPLACE TABLE lake.b AS SELECT * FROM lake.b WHERE false")
        assert rows(sql, "SELECT * FROM lake.b") == []
    assert (amounts(accounts, "a"), amounts(accounts, "b")) == ({1: 23, 2: 22}, {})


def test_a_replacement_that_fails_leaves_the_table_and_what_was_done_to_it(
    sql: SparkSession, accounts: conroi.Lake
) -> None:
    with conroi.spark.transaction(sql):
        sql.sql("INSERT INTO lake.a VALUES (3, 30)")
        with pytest.raises(Exception, match="spoiled"):
            sql.sql("CREATE OR REPLACE TABLE lake.a AS SELECT raise_error('spoiled') AS v FROM lake.a")
        with pytest.raises(Exception, match="spoiled"):
            sql.sql("CREATE TABLE lake.made AS SELECT raise_error('spoiled') AS v FROM lake.a")
        assert rows(sql, "SELECT * FROM lake.a ORDER BY id") == [(1, 10), (2, 20), (3, 30)]
        sql.sql("INSERT INTO lake.a VALUES (4, 40)")
    assert amounts(accounts, "a") == {1: 10, 2: 20, 3: 30, 4: 40}
    assert "made" not in accounts
