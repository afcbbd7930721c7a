"""INSERT by position and by name, OVERWRITE, casts on the way in. The same statements run on a Parquet table."""

from __future__ import annotations

import pytest

from tests.spark.connector.conformance import Case, Conformance, changes, mirrored, refused, sample

pytestmark = pytest.mark.contract("S17")

POSITIONS = [
    mirrored("by position", "INSERT INTO {t} VALUES (7, 'n', 70), (8, NULL, NULL)"),
    mirrored("by position from a query", "INSERT INTO {t} SELECT id + 100, grp, v FROM {s}"),
    mirrored("a list of columns in another order", "INSERT INTO {t} (v, id, grp) VALUES (70, 7, 'n')"),
    mirrored("fewer columns", "INSERT INTO {t} (id) VALUES (7), (8)"),
    mirrored("fewer columns, in another order", "INSERT INTO {t} (v, id) SELECT v, id FROM {s}"),
    mirrored("by name", "INSERT INTO {t} BY NAME SELECT v, id, grp FROM {s}"),
    mirrored("by name with fewer columns", "INSERT INTO {t} BY NAME SELECT v AS V, id AS Id FROM {s}"),
    mirrored("the word DEFAULT is null", "INSERT INTO {t} VALUES (7, DEFAULT, DEFAULT)"),
    mirrored("the table's own rows", "INSERT INTO {t} SELECT * FROM {t}"),
    mirrored("a CTE", "WITH c AS (SELECT id, grp, v FROM {s}) INSERT INTO {t} SELECT * FROM c"),
    mirrored("TABLE", "INSERT INTO {t} TABLE {empty}"),
    mirrored("FROM before SELECT", "INSERT INTO {t} FROM {s} SELECT id, grp, v WHERE op = 'u'"),
    mirrored("no row", "INSERT INTO {t} SELECT * FROM {t} WHERE false"),
    mirrored(
        "nested values", "INSERT INTO {nest} SELECT id + 10, p, l, m, ls FROM {nest}", query="SELECT * FROM {nest}"
    ),
    mirrored(
        "nested values that are built",
        "INSERT INTO {nest} VALUES (9, named_struct('x', 1, 'q', named_struct('y', 'k', 'z', array(5L, NULL))), "
        "array(NULL), map('a', NULL), array(named_struct('k', 'v', 'n', NULL)))",
        query="SELECT * FROM {nest}",
    ),
    mirrored(
        "every number",
        "INSERT INTO {num} SELECT id + 10, f, d, byte, short, int, long, dec, big FROM {num}",
        query="SELECT * FROM {num}",
    ),
    mirrored("texts and bytes", "INSERT INTO {txt} SELECT id + 20, s, b, flag FROM {txt}", query="SELECT * FROM {txt}"),
    mirrored("times", "INSERT INTO {times} SELECT id + 10, day, at, local FROM {times}", query="SELECT * FROM {times}"),
]

CASTS = [
    mirrored("a smaller integer", "INSERT INTO {t} SELECT 7S, 'n', 70Y"),
    mirrored("a literal that fits", "INSERT INTO {t} VALUES (7, 'n', 70L)"),
    mirrored("a decimal as an integer", "INSERT INTO {t} VALUES (7, 'n', 70.9)"),
    mirrored("a double as an integer", "INSERT INTO {t} VALUES (7, 'n', 70.9D)"),
    mirrored("a number as text", "INSERT INTO {t} VALUES (7, 12.50, 70)"),
    mirrored("a date as text", "INSERT INTO {t} VALUES (7, DATE'2026-01-02', 70)"),
    mirrored(
        "an integer as a decimal is rounded",
        "INSERT INTO {num} (id, dec) VALUES (10, 1.005), (11, 7)",
        query="SELECT id, dec FROM {num}",
    ),
    mirrored("a double as a float", "INSERT INTO {num} (id, f) VALUES (10, 0.1D)", query="SELECT id, f FROM {num}"),
    mirrored(
        "a date as a timestamp",
        "INSERT INTO {times} (id, at) VALUES (10, DATE'2026-03-29')",
        query="SELECT id, at FROM {times}",
        session_timeZone="Europe/Warsaw",
    ),
    mirrored(
        "a timestamp without zone as one with",
        "INSERT INTO {times} (id, at) VALUES (10, TIMESTAMP_NTZ'2026-03-29 02:30:00')",
        query="SELECT id, at FROM {times}",
        session_timeZone="Europe/Warsaw",
    ),
    mirrored(
        "a timestamp as a date",
        "INSERT INTO {times} (id, day) VALUES (10, TIMESTAMP'2026-03-29 23:30:00Z')",
        query="SELECT id, day FROM {times}",
        session_timeZone="Asia/Tokyo",
    ),
    refused(
        "legacy casts",
        "INSERT INTO {t} VALUES (7, 'n', 'x')",
        error="LEGACY store assignment policy is disallowed",
        storeAssignmentPolicy="LEGACY",
        ansi_enabled="false",
    ),
    refused("an overflow", "INSERT INTO {t} VALUES (7, 'n', 3000000000)", error="CAST_OVERFLOW"),
    refused(
        "an overflow of a decimal",
        "INSERT INTO {num} (id, dec) VALUES (10, 999999999.99)",
        error="CAST_OVERFLOW_IN_TABLE_INSERT",
        query="SELECT * FROM {num}",
    ),
    refused("text as a number", "INSERT INTO {t} VALUES (7, 'n', 'x')", error="CANNOT_SAFELY_CAST"),
    refused(
        "a number as a date",
        "INSERT INTO {times} (id, day) VALUES (1, 1)",
        error="CANNOT_SAFELY_CAST",
        query="SELECT * FROM {times}",
    ),
    refused("too many columns", "INSERT INTO {t} VALUES (1, 'a', 1, 1)", error="TOO_MANY_DATA_COLUMNS"),
    refused("too few columns", "INSERT INTO {t} VALUES (1, 'a')", error="NOT_ENOUGH_DATA_COLUMNS"),
    refused("an unknown column", "INSERT INTO {t} (nope) VALUES (1)", error="UNRESOLVED_COLUMN"),
    refused("a column twice", "INSERT INTO {t} (id, id) VALUES (1, 2)", error="COLUMN_ALREADY_EXISTS"),
    refused("a null in a key", "INSERT INTO {k} VALUES (NULL, 'a', 1)", error="NULL", query="SELECT * FROM {k}"),
    refused("a key twice", "INSERT INTO {k} VALUES (1, 'a', 1)", error="DuplicateKeyError", query="SELECT * FROM {k}"),
]

OVERWRITES = [
    mirrored("overwrite", "INSERT OVERWRITE {t} SELECT id, grp, v FROM {s}"),
    mirrored("overwrite by a list of columns", "INSERT OVERWRITE {t} (v, id) SELECT v, id FROM {s}"),
    mirrored("overwrite by name", "INSERT OVERWRITE {t} BY NAME SELECT v, grp, id FROM {s}"),
    mirrored("overwrite with no row", "INSERT OVERWRITE {t} SELECT * FROM {empty}"),
    changes(
        "overwrite with the table's own rows",
        "INSERT OVERWRITE {t} SELECT id, grp, v * 2 FROM {t} WHERE v > 10",
        expected="SELECT id, grp, v * 2 FROM {t} WHERE v > 10",
    ),
    changes(
        "overwrite, dynamic, without partitions",
        "INSERT OVERWRITE {t} SELECT id, grp, v FROM {s}",
        expected="SELECT id, grp, v FROM {s}",
        sources_partitionOverwriteMode="DYNAMIC",
    ),
    changes(
        "replace where",
        "INSERT INTO {t} REPLACE WHERE grp = 'b' SELECT id + 10, 'b', v FROM {s}",
        expected="SELECT * FROM {t} WHERE NOT coalesce(grp = 'b', false) UNION ALL SELECT id + 10, 'b', v FROM {s}",
    ),
    changes(
        "replace where a null is not equal",
        "INSERT INTO {t} REPLACE WHERE v <> 10 SELECT id + 10, grp, 1 FROM {s}",
        expected="SELECT * FROM {t} WHERE NOT coalesce(v <> 10, false) UNION ALL SELECT id + 10, grp, 1 FROM {s}",
    ),
    changes(
        "replace where, by name",
        "INSERT INTO {t} BY NAME REPLACE WHERE id IN (1, 2) SELECT 5 AS v, 1L AS id",
        expected="SELECT * FROM {t} WHERE id > 2 UNION ALL SELECT 1L, NULL, 5",
    ),
    changes(
        "replace where everything",
        "INSERT INTO {t} REPLACE WHERE true SELECT id, grp, v FROM {s}",
        expected="SELECT id, grp, v FROM {s}",
    ),
    refused(
        "replace where a function decides",
        "INSERT INTO {t} REPLACE WHERE length(grp) = 1 SELECT * FROM {empty}",
        error="does not support overwrite by expression",
    ),
]

CASES: list[Case] = [*POSITIONS, *CASTS, *OVERWRITES]


@pytest.mark.parametrize("case", sample("inserts", CASES, least=6))
def test_inserts_as_spark_defines_them(conformance: Conformance, case: Case):
    conformance.check(case)
