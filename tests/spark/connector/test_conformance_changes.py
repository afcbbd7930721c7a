"""UPDATE, DELETE and TRUNCATE: three-valued logic, subqueries, expressions, nested fields."""

from __future__ import annotations

import pytest

from tests.spark.connector.conformance import Case, Conformance, both_kinds, changes, refused, sample

pytestmark = pytest.mark.contract("S17")


def _delete(where: str) -> Case:
    expected = f"SELECT * FROM {{t}} t WHERE NOT coalesce({where}, false)"
    return changes(f"delete where {where}", f"DELETE FROM {{t}} t WHERE {where}", expected=expected)


def _update(column: str, value: str, where: str) -> Case:
    new = f"CASE WHEN {where} THEN {value} ELSE t.{column} END AS {column}"
    columns = ", ".join(new if name == column else f"t.{name}" for name in ("id", "grp", "v"))
    statement = f"UPDATE {{t}} t SET {column} = {value} WHERE {where}"
    return changes(f"set {column} = {value} where {where}", statement, expected=f"SELECT {columns} FROM {{t}} t")


DELETES = [
    _delete(where)
    for where in (
        "t.v > 20", "NOT (t.v > 20)", "t.v = NULL", "t.v IS NULL", "t.v <=> NULL", "t.grp = 'a' OR t.v > 40",
        "NOT (t.grp = 'a' AND t.v > 10)", "t.grp IN ('a', NULL)", "t.grp NOT IN ('a', NULL)", "t.grp NOT IN ('a')",
        "t.v BETWEEN 20 AND 50", "t.v NOT BETWEEN 20 AND 50", "t.grp LIKE 'a%'", "NOT (t.grp LIKE '%b%')", "true",
        "false", "CAST(NULL AS BOOLEAN)", "length(t.grp) = 1 AND t.v % 20 = 0", "t.v / 0.5 > 90",
        "coalesce(t.v, -1) < 0",
        "t.id IN (SELECT id FROM {s})",
        "t.id NOT IN (SELECT id FROM {s})", "t.v IN (SELECT v FROM {s})", "t.id IN (SELECT id FROM {s} WHERE v > 250)",
        "t.v > (SELECT avg(v) FROM {t})", "t.v = (SELECT max(v) FROM {t} i WHERE i.grp = t.grp)",
        "t.grp IN (SELECT grp FROM {s})", "t.id IN (SELECT id FROM {none})",
        "(t.id, t.grp) IN (SELECT id, grp FROM {s})",
    )
]  # fmt: skip

EXISTING = [
    changes(
        "delete where EXISTS",
        "DELETE FROM {t} t WHERE EXISTS (SELECT 1 FROM {s} s WHERE s.id = t.id AND s.v > t.v)",
        expected="SELECT * FROM {t} t WHERE NOT EXISTS (SELECT 1 FROM {s} s WHERE s.id = t.id AND s.v > t.v)",
    ),
    changes(
        "delete where NOT EXISTS",
        "DELETE FROM {t} t WHERE NOT EXISTS (SELECT 1 FROM {s} s WHERE s.id = t.id)",
        expected="SELECT * FROM {t} t WHERE EXISTS (SELECT 1 FROM {s} s WHERE s.id = t.id)",
    ),
    changes(
        "delete where NOT IN a subquery with a null deletes nothing",
        "DELETE FROM {t} t WHERE t.v NOT IN (SELECT v FROM {s})",
        expected="SELECT * FROM {t}",
    ),
    changes("delete without a condition", "DELETE FROM {t}", expected="SELECT * FROM {empty}"),
    changes("truncate", "TRUNCATE TABLE {t}", expected="SELECT * FROM {empty}"),
    changes(
        "truncate, then insert",
        "TRUNCATE TABLE {t}",
        "INSERT INTO {t} VALUES (1, 'n', 1)",
        expected="SELECT 1L, 'n', 1",
    ),
    changes(
        "several statements after each other",
        "DELETE FROM {t} WHERE id = 1",
        "UPDATE {t} SET v = 0 WHERE id = 2",
        "INSERT INTO {t} VALUES (1, 'back', 11)",
        "UPDATE {t} SET v = v + 1",
        "DELETE FROM {t} WHERE id + v = 4",
        expected="SELECT id, CASE WHEN id = 1 THEN 'back' ELSE grp END, "
        "CASE id WHEN 1 THEN 12 WHEN 2 THEN 1 ELSE v + 1 END FROM {t}",
    ),
]

UPDATES = [
    _update("v", "t.v + 1", "t.v > 20"),
    _update("v", "NULL", "NOT (t.v > 20)"),
    _update("v", "0", "t.grp IS NULL"),
    _update("v", "CASE WHEN t.v IS NULL THEN 1 ELSE t.v * 2 END", "true"),
    _update("v", "length(t.grp)", "t.id % 2 = 0"),
    _update("grp", "concat(t.grp, '-', t.v)", "t.id < 5"),
    _update("grp", "upper(t.grp)", "t.grp IN ('a', NULL)"),
    _update("grp", "NULL", "t.grp NOT IN ('a', NULL)"),
    _update("v", "(SELECT max(v) FROM {s})", "t.id = 1"),
    _update("v", "cast('7' AS INT)", "t.id IN (SELECT id FROM {s})"),
    _update("v", "-1", "t.v > (SELECT avg(v) FROM {t})"),
    _update("id", "t.id + 10", "t.v > 20"),
    _update("v", "t.v", "false"),
]

CORRELATED = [
    changes(
        "a correlated scalar subquery as the value",
        "UPDATE {t} t SET v = (SELECT s.v FROM {s} s WHERE s.id = t.id) WHERE t.id IN (2, 3, 5)",
        expected="SELECT t.id, t.grp, CASE WHEN t.id IN (2, 3, 5) THEN s.v ELSE t.v END FROM {t} t "
        "LEFT JOIN {s} s ON s.id = t.id",
    ),
    changes(
        "update where EXISTS",
        "UPDATE {t} t SET v = 0 WHERE EXISTS (SELECT 1 FROM {s} s WHERE s.id = t.id AND s.op = 'u')",
        expected="SELECT id, grp, CASE WHEN id IN (2, 4) THEN 0 ELSE v END FROM {t}",
    ),
    changes(
        "columns get each other's values",
        "UPDATE {t} SET id = v, v = id WHERE v IS NOT NULL",
        expected="SELECT coalesce(v, id), grp, CASE WHEN v IS NULL THEN v ELSE id END FROM {t}",
    ),
    changes(
        "names in other letters",
        "UPDATE {t} SET V = ID WHERE GRP = 'b'",
        expected="SELECT id, grp, CASE WHEN grp = 'b' THEN id ELSE v END FROM {t}",
    ),
    refused("a column assigned twice", "UPDATE {t} SET v = 1, v = 2", error="assignments"),
    refused("an unknown column", "UPDATE {t} SET nope = 1", error="UNRESOLVED_COLUMN"),
    refused("an overflow", "UPDATE {t} SET v = 3000000000", error="CAST_OVERFLOW"),
    refused("an overflow of arithmetic", "UPDATE {t} SET v = v + 2147483640", error="ARITHMETIC_OVERFLOW"),
    refused("a value of another type", "UPDATE {t} SET v = 'x'", error="CANNOT_SAFELY_CAST"),
    refused("a division by zero", "UPDATE {t} SET v = cast(1 / (id - id) AS INT)", error="DIVIDE_BY_ZERO"),
    changes(
        "a division by zero is null without ANSI",
        "UPDATE {t} SET v = cast(1 / (id - id) AS INT)",
        expected="SELECT id, grp, cast(NULL AS INT) FROM {t}",
        ansi_enabled="false",
    ),
]

_NEST = "SELECT id, p, l, m, ls FROM {nest}"


def _nested(assignment: str, where: str, **values: str) -> Case:
    columns = ", ".join(
        f"CASE WHEN {where} THEN {values[name]} ELSE {name} END AS {name}" if name in values else name
        for name in ("id", "p", "l", "m", "ls")
    )
    statement = f"UPDATE {{nest}} SET {assignment} WHERE {where}"
    return changes(f"set {assignment}", statement, query=_NEST, expected=f"SELECT {columns} FROM {{nest}}")


NESTED = [
    _nested("p.x = 9", "id = 1", p="named_struct('x', 9, 'q', p.q)"),
    _nested("p.q.y = 'n'", "id = 1", p="named_struct('x', p.x, 'q', named_struct('y', 'n', 'z', p.q.z))"),
    _nested("p.x = p.x + 1, l = array(p.x)", "p.x > 0", p="named_struct('x', p.x + 1, 'q', p.q)", l="array(p.x)"),
    _nested("p = NULL", "id < 3", p="NULL"),
    _nested(
        "p = named_struct('x', 1, 'q', named_struct('y', 'k', 'z', array(5L)))",
        "id = 3",
        p="named_struct('x', 1, 'q', named_struct('y', 'k', 'z', array(5L)))",
    ),
    _nested("l = transform(l, e -> e * 2)", "true", l="transform(l, e -> e * 2)"),
    _nested("l = array_append(l, 5)", "id < 3", l="array_append(l, 5)"),
    _nested("m = map_concat(m, map('n', 1))", "id <> 3", m="map_concat(m, map('n', 1))"),
    _nested("m = map()", "m['a'] = 1", m="map()"),
    _nested("ls = filter(ls, e -> e.n > 0)", "true", ls="filter(ls, e -> e.n > 0)"),
    changes(
        "delete by a nested field",
        "DELETE FROM {nest} WHERE p.q.y = 'a'",
        query=_NEST,
        expected=_NEST + " WHERE NOT coalesce(p.q.y = 'a', false)",
    ),
    changes(
        "delete by an element",
        "DELETE FROM {nest} WHERE array_contains(l, 4) OR m['b'] IS NULL AND size(m) = 2",
        query=_NEST,
        expected=_NEST + " WHERE id NOT IN (1, 4)",
    ),
    changes(
        "delete where a struct is null",
        "DELETE FROM {nest} WHERE p IS NULL OR p.q IS NULL",
        query=_NEST,
        expected=_NEST + " WHERE id NOT IN (2, 3)",
    ),
]

CASES: list[Case] = [*DELETES, *both_kinds([*EXISTING, *UPDATES, *CORRELATED]), *NESTED]


@pytest.mark.parametrize("case", sample("changes", CASES, least=8))
def test_changes_as_spark_defines_them(conformance: Conformance, case: Case):
    conformance.check(case)
