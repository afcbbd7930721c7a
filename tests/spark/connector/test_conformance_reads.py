"""Queries: joins, subqueries, windows, sets, views that mix tables of the lake with Spark's, time travel."""

from __future__ import annotations

import pytest

from tests.spark.connector.conformance import Case, Conformance, changes, reads, refused, sample

pytestmark = pytest.mark.contract("S17")

JOINS = [
    reads(f"{kind} join", f"SELECT * FROM {{t}} t {kind} JOIN {{s}} s ON t.id = s.id")
    for kind in ("INNER", "LEFT OUTER", "RIGHT OUTER", "FULL OUTER", "LEFT SEMI", "LEFT ANTI")
] + [
    reads("cross join", "SELECT t.id, s.id FROM {t} t CROSS JOIN {s} s"),
    reads("natural join", "SELECT * FROM {t} NATURAL JOIN {s}"),
    reads("join USING", "SELECT id, t.v, s.v FROM {t} t JOIN {s} s USING (id)"),
    reads("join on an inequality", "SELECT t.id, s.id FROM {t} t JOIN {s} s ON t.v < s.v AND t.id > s.id"),
    reads("join with nulls", "SELECT t.id, s.id FROM {t} t JOIN {s} s ON t.grp = s.grp"),
    reads("join with nulls by <=>", "SELECT t.id, s.id FROM {t} t JOIN {s} s ON t.grp <=> s.grp"),
    reads("self join", "SELECT a.id, b.id FROM {t} a JOIN {t} b ON a.id = b.id + 1 WHERE b.v > 10"),
    reads("lateral join", "SELECT t.id, x.n FROM {t} t, LATERAL (SELECT count(*) AS n FROM {s} s WHERE s.id > t.id) x"),
    reads("three tables", "SELECT * FROM {t} t JOIN {s} s USING (id) LEFT JOIN {dup} d USING (id)"),
    reads("a sort merge join", "SELECT /*+ MERGE(s) */ t.id, s.v FROM {t} t JOIN {s} s ON t.id = s.id"),
]

QUERIES = [
    reads("scalar subquery", "SELECT id, (SELECT max(v) FROM {s} s WHERE s.id = t.id) FROM {t} t"),
    reads(
        "IN and EXISTS",
        "SELECT id FROM {t} t WHERE id IN (SELECT id FROM {s}) OR EXISTS (SELECT 1 FROM {dup} d WHERE d.id = t.id)",
    ),
    reads("NOT IN with a null", "SELECT id FROM {t} WHERE v NOT IN (SELECT v FROM {s})"),
    reads("union", "SELECT id, grp FROM {t} UNION SELECT id, grp FROM {s}"),
    reads(
        "intersect and except",
        "(SELECT id FROM {t} INTERSECT SELECT id FROM {s}) UNION ALL (SELECT id FROM {t} "
        "EXCEPT ALL SELECT id FROM {s})",
    ),
    reads("groups", "SELECT grp, count(*), count(v), sum(v), avg(v), min(v), max(v) FROM {t} GROUP BY grp"),
    reads("HAVING", "SELECT grp, sum(v) FROM {t} GROUP BY grp HAVING sum(v) > 30"),
    reads("rollup", "SELECT grp, v, count(*) FROM {t} GROUP BY ROLLUP (grp, v)"),
    reads("filter of an aggregate", "SELECT count(*) FILTER (WHERE v > 20), sum(v) FILTER (WHERE grp = 'a') FROM {t}"),
    reads("count distinct", "SELECT count(DISTINCT grp), count(DISTINCT grp, v) FROM {t}"),
    reads("windows", "SELECT id, sum(v) OVER (PARTITION BY grp ORDER BY id), lag(v) OVER (ORDER BY id) FROM {t}"),
    reads("a limit", "SELECT count(*) FROM (SELECT * FROM {t} LIMIT 4)"),
    reads("order, limit and offset", "SELECT id FROM {t} ORDER BY v DESC NULLS LAST, id LIMIT 2 OFFSET 1"),
    reads("order with nulls", "SELECT row_number() OVER (ORDER BY v NULLS FIRST, id), id FROM {t}"),
    reads("distinct", "SELECT DISTINCT grp FROM {t}"),
    reads("pivot", "SELECT * FROM (SELECT grp, id, v FROM {t}) PIVOT (sum(v) FOR grp IN ('a', 'b'))"),
    reads("explode", "SELECT id, e FROM {nest} LATERAL VIEW OUTER explode(l) AS e"),
    reads("explode of a map", "SELECT id, k, v FROM {nest} LATERAL VIEW explode(m) AS k, v"),
    reads("inline of structs", "SELECT id, k, n FROM {nest} LATERAL VIEW OUTER inline(ls) AS k, n"),
    reads("fields of structs", "SELECT id, p.x, p.q.y, p.q.z[0], ls.n FROM {nest}", ansi_enabled="false"),
    reads("star of a struct", "SELECT id, p.* FROM {nest}"),
    reads("groups by a field", "SELECT p.q.y, count(*) FROM {nest} GROUP BY p.q.y"),
    reads("collections", "SELECT collect_list(id) FROM (SELECT id FROM {t} ORDER BY id)"),
    reads(
        "CTE used twice", "WITH c AS (SELECT id, v FROM {t} WHERE v > 10) SELECT a.id, b.v FROM c a JOIN c b USING (id)"
    ),
    reads(
        "a recursive CTE",
        "WITH RECURSIVE r(n) AS (SELECT min(id) FROM {t} UNION ALL SELECT n + 1 FROM r WHERE n < 4) SELECT * FROM r",
    ),
    reads("an empty table", "SELECT count(*), max(v), sum(v) FROM {empty}"),
    reads("rows of an empty table", "SELECT * FROM {empty} WHERE v = 1"),
    reads("constants only", "SELECT 1 FROM {t} WHERE v > 10"),
]

VIEWS = [
    changes(
        "a view over a table of the lake and one of Spark",
        "CREATE OR REPLACE TEMPORARY VIEW mixed AS SELECT t.id, r.v FROM {t} t "
        "JOIN (SELECT * FROM VALUES (1, 'x'), (3, 'y') AS r(id, v)) r ON t.id = r.id",
        query="SELECT * FROM mixed",
        expected="SELECT * FROM VALUES (1L, 'x'), (3L, 'y') AS m(id, v)",
    ),
    changes(
        "a view sees later changes",
        "CREATE OR REPLACE TEMPORARY VIEW later AS SELECT * FROM {t} WHERE v > 10",
        "UPDATE {t} SET v = 0 WHERE id < 4",
        query="SELECT * FROM later",
        expected="SELECT * FROM {t} WHERE v > 10 AND id >= 4",
    ),
    changes(
        "a view as the source of a MERGE",
        "CREATE OR REPLACE TEMPORARY VIEW src AS SELECT id, v * 2 AS v FROM {s}",
        "MERGE INTO {t} t USING src ON t.id = src.id WHEN MATCHED THEN UPDATE SET v = src.v",
        expected="SELECT t.id, t.grp, CASE WHEN s.id IS NULL THEN t.v ELSE s.v * 2 END FROM {t} t "
        "LEFT JOIN {s} s ON t.id = s.id",
    ),
    changes(
        "CREATE TABLE AS",
        "CREATE TABLE lake.made_by_ctas AS SELECT id, grp, v, v / 3 AS third FROM {t} WHERE v > 10",
        query="SELECT * FROM lake.made_by_ctas",
        expected="SELECT id, grp, v, v / 3 AS third FROM {t} WHERE v > 10",
    ),
    changes(
        "REPLACE TABLE AS from the table itself",
        "CREATE OR REPLACE TABLE {t} AS SELECT grp, sum(v) AS s FROM {t} GROUP BY grp",
        expected="SELECT grp, sum(v) AS s FROM {t} GROUP BY grp",
    ),
    changes(
        "CREATE TABLE LIKE",
        "CREATE TABLE lake.made_like (id BIGINT, grp STRING, v INT)",
        "INSERT INTO lake.made_like SELECT * FROM {t}",
        query="SELECT * FROM lake.made_like",
        expected="SELECT * FROM {t}",
    ),
]

_TRAVEL = ("UPDATE {t} SET v = 0", "DELETE FROM {t} WHERE id > 1")
INTERVALS = [
    changes(
        "a column of intervals",
        "CREATE TABLE lake.spans AS SELECT id, at - TIMESTAMP'2026-01-01 00:00:00Z' AS d FROM {times} WHERE id <> 2",
        "UPDATE lake.spans SET d = d * 2 WHERE d < INTERVAL '0' DAY",
        query="SELECT id, CAST(d AS STRING) FROM lake.spans",
        expected="SELECT id, CAST(CASE WHEN d < INTERVAL '0' DAY THEN d * 2 ELSE d END AS STRING) "
        "FROM (SELECT id, at - TIMESTAMP'2026-01-01 00:00:00Z' AS d FROM {times} WHERE id <> 2)",
    ),
]
PAST = [
    changes("a version", *_TRAVEL, query="SELECT * FROM {t} VERSION AS OF 2", expected="SELECT * FROM {t}"),
    changes(
        "the first version",
        *_TRAVEL,
        query="SELECT * FROM {t} VERSION AS OF 1",
        expected="SELECT * FROM {t} WHERE id < 4",
    ),
    changes(
        "a version, filtered and aggregated",
        *_TRAVEL,
        query="SELECT grp, sum(v) FROM {t} FOR VERSION AS OF 2 WHERE v > 10 GROUP BY grp",
        expected="SELECT grp, sum(v) FROM {t} WHERE v > 10 GROUP BY grp",
    ),
    changes("count of a version", *_TRAVEL, query="SELECT count(*) FROM {t} VERSION AS OF 2", expected="SELECT 6L"),
    changes(
        "two versions in one query",
        *_TRAVEL,
        query="SELECT o.id, o.v, n.v FROM {t} VERSION AS OF 2 o LEFT JOIN {t} n ON o.id = n.id",
        expected="SELECT id, v, CASE WHEN id = 1 THEN 0 END AS v FROM {t}",
    ),
    changes(
        "now", *_TRAVEL, query="SELECT * FROM {t} TIMESTAMP AS OF now()", expected="SELECT 1L AS id, 'a' AS grp, 0 AS v"
    ),
    changes(
        "a version is written back",
        *_TRAVEL,
        "INSERT OVERWRITE {t} SELECT * FROM {t} VERSION AS OF 2",
        expected="SELECT * FROM {t}",
    ),
    changes(
        "a version as the source of a MERGE",
        *_TRAVEL,
        "MERGE INTO {t} n USING (SELECT * FROM {t} VERSION AS OF 2) o ON n.id = o.id "
        "WHEN MATCHED THEN UPDATE SET v = o.v "
        "WHEN NOT MATCHED THEN INSERT *",
        expected="SELECT * FROM {t}",
    ),
    refused("a version that is not there", "SELECT * FROM {t} VERSION AS OF 99", error="NotFoundError"),
    refused("a time before the first version", "SELECT * FROM {t} TIMESTAMP AS OF '2001-01-01'", error="NotFoundError"),
    refused("a change of a version", "INSERT INTO {t} VERSION AS OF 1 VALUES (1, 'a', 1)", error="PARSE_SYNTAX_ERROR"),
]

CASES: list[Case] = [*JOINS, *QUERIES, *VIEWS, *INTERVALS, *PAST]


@pytest.mark.parametrize("case", sample("reads", CASES, least=6))
def test_queries_as_spark_answers_them(conformance: Conformance, case: Case):
    conformance.check(case)
