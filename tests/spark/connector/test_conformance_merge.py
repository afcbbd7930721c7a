"""MERGE INTO: every clause, kinds of source and condition, on tables without and with a key."""

from __future__ import annotations

import pytest

from tests.spark.connector.conformance import Case, Conformance, both_kinds, changes, refused, sample

pytestmark = pytest.mark.contract("S17")

_KEPT = "SELECT t.* FROM {t} t LEFT ANTI JOIN {s} s ON t.id = s.id"
_NEW = "SELECT s.id, s.grp, s.v FROM {s} s LEFT ANTI JOIN {t} t ON t.id = s.id"
_MATCHED = "FROM {t} t JOIN {s} s ON t.id = s.id"
_ON = "MERGE INTO {t} t USING {s} s ON t.id = s.id "

CLAUSES = [
    changes(
        "update with star, insert with star",
        _ON + "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        expected=f"{_KEPT} UNION ALL SELECT id, grp, v FROM {{s}}",
    ),
    changes(
        "update one column",
        _ON + "WHEN MATCHED THEN UPDATE SET v = s.v + t.id",
        expected=f"{_KEPT} UNION ALL SELECT t.id, t.grp, s.v + t.id {_MATCHED}",
    ),
    changes(
        "update by an expression of both sides and a function",
        _ON + "WHEN MATCHED THEN UPDATE SET grp = concat(upper(t.grp), coalesce(s.grp, '-')), v = greatest(t.v, s.v)",
        expected=f"{_KEPT} UNION ALL SELECT t.id, concat(upper(t.grp), coalesce(s.grp, '-')), "
        f"greatest(t.v, s.v) {_MATCHED}",
    ),
    changes("delete", _ON + "WHEN MATCHED THEN DELETE", expected=_KEPT),
    changes(
        "insert only",
        _ON + "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v * 2)",
        expected="SELECT * FROM {t} UNION ALL SELECT s.id, NULL, s.v * 2 FROM {s} s "
        "LEFT ANTI JOIN {t} t ON t.id = s.id",
    ),
    changes(
        "insert by bare names of the source, as dbt writes it",
        "MERGE INTO {t} AS DBT_INTERNAL_DEST USING {s} AS DBT_INTERNAL_SOURCE "
        "ON DBT_INTERNAL_SOURCE.id = DBT_INTERNAL_DEST.id "
        "WHEN MATCHED THEN UPDATE SET `v` = DBT_INTERNAL_SOURCE.`v` "
        "WHEN NOT MATCHED THEN INSERT (`id`, `grp`, `v`) VALUES (`id`, `grp`, `v`)",
        expected=f"{_KEPT} UNION ALL SELECT t.id, t.grp, s.v {_MATCHED} UNION ALL {_NEW}",
    ),
    changes(
        "several conditional clauses, the first that applies",
        _ON + "WHEN MATCHED AND s.op = 'd' THEN DELETE WHEN MATCHED AND t.v IS NULL THEN UPDATE SET v = -1 "
        "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED AND s.op = 'i' THEN INSERT *",
        expected=f"{_KEPT} UNION ALL SELECT t.id, t.grp, CASE WHEN t.v IS NULL THEN -1 ELSE s.v END {_MATCHED} "
        "WHERE NOT coalesce(s.op = 'd', false) UNION ALL SELECT id, grp, v FROM {s} WHERE op = 'i'",
    ),
    changes(
        "a condition that is null applies to no row",
        _ON + "WHEN MATCHED AND t.v > 0 THEN DELETE WHEN NOT MATCHED AND s.op = 'i' THEN INSERT *",
        expected="SELECT t.* FROM {t} t LEFT JOIN {s} s ON t.id = s.id "
        "WHERE s.id IS NULL OR NOT coalesce(t.v > 0, false) UNION ALL SELECT id, grp, v FROM {s} WHERE op = 'i'",
    ),
    changes(
        "not matched by source: delete",
        _ON + "WHEN NOT MATCHED BY SOURCE THEN DELETE",
        expected=f"SELECT t.* {_MATCHED}",
    ),
    changes(
        "not matched by source: update and delete under conditions, with bare names of the target",
        _ON + "WHEN NOT MATCHED BY SOURCE AND grp = 'a' THEN UPDATE SET v = v + 1 "
        "WHEN NOT MATCHED BY SOURCE AND grp = 'c' THEN DELETE",
        expected="SELECT t.id, t.grp, CASE WHEN s.id IS NULL AND t.grp = 'a' THEN t.v + 1 ELSE t.v END FROM {t} t "
        "LEFT JOIN {s} s ON t.id = s.id WHERE NOT (s.id IS NULL AND coalesce(t.grp = 'c', false))",
    ),
    changes(
        "all three kinds of clauses",
        _ON + "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET grp = 'gone'",
        expected="SELECT t.id, 'gone', t.v FROM {t} t LEFT ANTI JOIN {s} s ON t.id = s.id "
        f"UNION ALL SELECT t.id, t.grp, s.v {_MATCHED} UNION ALL {_NEW}",
    ),
    changes(
        "a subquery in a value",
        _ON + "WHEN MATCHED THEN UPDATE SET v = (SELECT max(v) FROM {dup})",
        expected=f"{_KEPT} UNION ALL SELECT t.id, t.grp, (SELECT max(v) FROM {{dup}}) {_MATCHED}",
    ),
    changes(
        "nothing matches and nothing is inserted",
        _ON + "WHEN MATCHED AND s.v < 0 THEN DELETE",
        expected="SELECT * FROM {t}",
    ),
]

SOURCES = [
    changes(
        "a subquery as the source",
        "MERGE INTO {t} t USING (SELECT id, max(v) AS m FROM {dup} GROUP BY id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = s.m WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.m)",
        expected="SELECT t.id, t.grp, coalesce(s.m, t.v) FROM {t} t "
        "LEFT JOIN (SELECT id, max(v) AS m FROM {dup} GROUP BY id) s ON t.id = s.id UNION ALL SELECT 9L, NULL, 4",
    ),
    changes(
        "a CTE as the source",
        "WITH c AS (SELECT id, v FROM {s} WHERE op = 'u') MERGE INTO {t} t USING c ON t.id = c.id "
        "WHEN MATCHED THEN UPDATE SET v = c.v",
        expected="SELECT t.id, t.grp, CASE WHEN s.id IS NULL THEN t.v ELSE s.v END FROM {t} t "
        "LEFT JOIN (SELECT * FROM {s} WHERE op = 'u') s ON t.id = s.id",
    ),
    changes(
        "a join as the source",
        "MERGE INTO {t} t USING (SELECT s.id, d.v FROM {s} s JOIN {dup} d ON s.id = d.id WHERE d.v = 2) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v",
        expected="SELECT id, grp, CASE WHEN id = 2 THEN 2 ELSE v END FROM {t}",
    ),
    changes(
        "VALUES as the source",
        "MERGE INTO {t} t USING (SELECT * FROM VALUES (1L, 'n'), (99L, 'm') AS x(id, grp)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET grp = s.grp WHEN NOT MATCHED THEN INSERT (id, grp) VALUES (s.id, s.grp)",
        expected="SELECT id, CASE WHEN id = 1 THEN 'n' ELSE grp END, v FROM {t} UNION ALL SELECT 99L, 'm', NULL",
    ),
    changes(
        "the table itself as the source",
        "MERGE INTO {t} t USING (SELECT id, v FROM {t} WHERE v > 15) s ON t.id = s.id + 1 "
        "WHEN MATCHED THEN UPDATE SET v = s.v",
        expected="SELECT t.id, t.grp, coalesce(s.v, t.v) FROM {t} t "
        "LEFT JOIN (SELECT id, v FROM {t} WHERE v > 15) s ON t.id = s.id + 1",
    ),
    changes(
        "an empty source",
        "MERGE INTO {t} t USING {none} s ON t.id = s.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *",
        expected="SELECT * FROM {t}",
    ),
    changes(
        "an empty source deletes what it does not match",
        "MERGE INTO {t} t USING {none} s ON t.id = s.id WHEN NOT MATCHED BY SOURCE AND t.v > 30 THEN DELETE",
        expected="SELECT * FROM {t} WHERE NOT coalesce(v > 30, false)",
    ),
    changes(
        "doubled source rows that match nothing",
        "MERGE INTO {t} t USING {dup} s ON t.id = s.id AND s.id <> 2 WHEN MATCHED THEN DELETE",
        expected="SELECT * FROM {t}",
    ),
    changes(
        "two source rows for one row, of which one changes it",
        "MERGE INTO {t} t USING {dup} s ON t.id = s.id AND s.v = 2 WHEN MATCHED THEN UPDATE SET v = s.v",
        expected="SELECT id, grp, CASE WHEN id = 2 THEN 2 ELSE v END FROM {t}",
    ),
    refused(
        "two source rows that update one row",
        "MERGE INTO {t} t USING {dup} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v",
        error="MERGE_CARDINALITY_VIOLATION",
    ),
    refused(
        "a column assigned twice",
        _ON + "WHEN MATCHED THEN UPDATE SET v = 1, v = 2",
        error="assignments",
    ),
    refused(
        "a clause without condition before another of its kind",
        _ON + "WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET v = 1",
        error="NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION",
    ),
]

CONDITIONS = [
    changes(
        "ON with an inequality",
        "MERGE INTO {t} t USING (SELECT max(id) AS most FROM {s} WHERE op = 'd') s ON t.id < s.most "
        "WHEN MATCHED THEN UPDATE SET v = s.most",
        expected="SELECT id, grp, CASE WHEN id < 3 THEN 3 ELSE v END FROM {t}",
    ),
    changes(
        "ON with conditions on either side",
        "MERGE INTO {t} t USING {s} s ON t.id = s.id AND t.grp = 'a' AND s.v > 100 "
        "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED AND s.id > 7 THEN INSERT *",
        expected="SELECT t.id, t.grp, CASE WHEN t.id = 2 THEN 200 ELSE t.v END FROM {t} t "
        "UNION ALL SELECT 8L, 'z', 800",
    ),
    changes(
        "ON FALSE inserts every row",
        "MERGE INTO {empty} t USING {s} s ON FALSE WHEN NOT MATCHED THEN INSERT *",
        query="SELECT * FROM {empty}",
        expected="SELECT id, grp, v FROM {s}",
    ),
    changes(
        "ON FALSE deletes every row of the table",
        "MERGE INTO {t} t USING {none} s ON FALSE WHEN NOT MATCHED BY SOURCE THEN DELETE",
        expected="SELECT * FROM {empty}",
    ),
    changes(
        "ON TRUE with one source row",
        "MERGE INTO {t} t USING (SELECT 5 AS n) s ON TRUE WHEN MATCHED AND t.id > s.n THEN DELETE",
        expected="SELECT * FROM {t} WHERE id <= 5",
    ),
    changes(
        "a null equals nothing in ON",
        "MERGE INTO {t} t USING (SELECT DISTINCT grp FROM {s} WHERE grp IS NULL OR grp = 'b') s ON t.grp = s.grp "
        "WHEN MATCHED THEN DELETE",
        expected="SELECT * FROM {t} WHERE NOT coalesce(grp = 'b', false)",
    ),
    changes(
        "a null equals a null by <=>",
        "MERGE INTO {t} t USING (SELECT DISTINCT grp FROM {s} WHERE grp IS NULL OR grp = 'b') s ON t.grp <=> s.grp "
        "WHEN MATCHED THEN DELETE",
        expected="SELECT * FROM {t} WHERE NOT (grp <=> 'b' OR grp IS NULL)",
    ),
    changes(
        "ON with OR",
        "MERGE INTO {t} t USING (SELECT 1L AS a, 6L AS b) s ON t.id = s.a OR t.id = s.b WHEN MATCHED THEN DELETE",
        expected="SELECT * FROM {t} WHERE id NOT IN (1, 6)",
    ),
    changes(
        "two equalities on one column",
        "MERGE INTO {t} t USING (SELECT * FROM VALUES (1L, 1L), (2L, 3L) AS x(a, b)) s ON t.id = s.a AND t.id = s.b "
        "WHEN MATCHED THEN DELETE",
        expected="SELECT * FROM {t} WHERE id <> 1",
    ),
    changes(
        "ON with a function of the table's column",
        "MERGE INTO {t} t USING (SELECT 'A' AS g) s ON upper(t.grp) = s.g WHEN MATCHED THEN UPDATE SET v = 0",
        expected="SELECT id, grp, CASE WHEN grp = 'a' THEN 0 ELSE v END FROM {t}",
    ),
    changes(
        "a DOUBLE equals an integer only if it is whole",
        "MERGE INTO {t} t USING (SELECT * FROM VALUES (1.5D), (2.0D) AS x(id)) s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE",
        expected="SELECT * FROM {t} WHERE id <> 2",
    ),
    changes(
        "a key too big for the table's type matches nothing",
        "MERGE INTO {t} t USING (SELECT 3000000000L AS v) s ON t.v = s.v WHEN MATCHED THEN DELETE",
        expected="SELECT * FROM {t}",
    ),
    changes(
        "text is compared with numbers as Spark does",
        "MERGE INTO {t} t USING (SELECT '01' AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        expected="SELECT * FROM {t} WHERE id <> 1",
    ),
    changes(
        "decimals of another scale are equal",
        "MERGE INTO {t} t USING (SELECT 2.000 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        expected="SELECT * FROM {t} WHERE id <> 2",
    ),
    changes(
        "the key column is updated",
        _ON + "WHEN MATCHED AND s.op = 'u' THEN UPDATE SET id = t.id + 100",
        expected="SELECT CASE WHEN id IN (2, 4) THEN id + 100 ELSE id END, grp, v FROM {t}",
    ),
]

TYPED = [
    changes(
        "NaN equals NaN in ON",
        "MERGE INTO {num} t USING (SELECT double('NaN') AS d) s ON t.d = s.d WHEN MATCHED THEN UPDATE SET long = 0",
        query="SELECT id, long FROM {num}",
        expected="SELECT id, CASE WHEN id = 1 THEN 0 ELSE long END FROM {num}",
    ),
    changes(
        "0.0 equals -0.0 in ON",
        "MERGE INTO {num} t USING (SELECT 0.0D AS d) s ON t.d = s.d WHEN MATCHED THEN DELETE",
        query="SELECT id FROM {num}",
        expected="SELECT id FROM {num} WHERE id NOT IN (4, 5)",
    ),
    changes(
        "a field of a struct in ON and SET",
        "MERGE INTO {nest} t USING (SELECT 1 AS x, 'new' AS y) s ON t.p.x = s.x WHEN MATCHED THEN UPDATE "
        "SET t.p.q.y = s.y",
        query="SELECT id, p FROM {nest}",
        expected="SELECT id, CASE WHEN id = 1 THEN named_struct('x', p.x, 'q', named_struct('y', 'new', 'z', p.q.z)) "
        "ELSE p END AS p FROM {nest}",
    ),
    changes(
        "maps and arrays are inserted and updated",
        "MERGE INTO {nest} t USING (SELECT 1L AS id UNION ALL SELECT 9L) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET l = array(7), m = map('z', 26) "
        "WHEN NOT MATCHED THEN INSERT (id, l, m) VALUES (s.id, array(9), map('n', 9))",
        query="SELECT id, l, m FROM {nest}",
        expected="SELECT id, CASE WHEN id = 1 THEN array(7) ELSE l END AS l, "
        "CASE WHEN id = 1 THEN map('z', 26) ELSE m END AS m FROM {nest} UNION ALL SELECT 9L, array(9), map('n', 9)",
    ),
    changes(
        "dates and timestamps in ON",
        "MERGE INTO {times} t USING (SELECT TIMESTAMP_NTZ'2026-10-25 02:30:00' AS l) s ON t.local = s.l "
        "WHEN MATCHED THEN UPDATE SET day = DATE'2000-01-01'",
        query="SELECT id, day FROM {times}",
        expected="SELECT id, CASE WHEN id = 6 THEN DATE'2000-01-01' ELSE day END FROM {times}",
    ),
]

CASES: list[Case] = [*both_kinds([*CLAUSES, *SOURCES, *CONDITIONS]), *TYPED]


@pytest.mark.parametrize("case", sample("merge", CASES, least=7))
def test_merge_as_spark_defines_it(conformance: Conformance, case: Case):
    conformance.check(case)
