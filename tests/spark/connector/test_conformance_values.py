"""Values: NaN, zero with a sign, decimals, dates, times in several zones, texts and bytes."""

from __future__ import annotations

import pytest

from tests.spark.connector.conformance import Case, Conformance, changes, reads, sample

pytestmark = pytest.mark.contract("S17")

_ZONES = ("UTC", "America/New_York", "Asia/Kolkata", "Europe/Warsaw", "+14:00")


def _set(table: str, column: str, value: str, where: str, **settings: str) -> Case:
    statement = f"UPDATE {{{table}}} SET {column} = {value} WHERE {where}"
    expected = f"SELECT id, CASE WHEN {where} THEN {value} ELSE {column} END AS {column} FROM {{{table}}}"
    name = " ".join([f"set {column} = {value} where {where}", *settings.values()])
    return changes(name, statement, query=f"SELECT id, {column} FROM {{{table}}}", expected=expected, **settings)


def _delete(table: str, where: str, **settings: str) -> Case:
    rest = f"SELECT * FROM {{{table}}}"
    name = " ".join([f"delete where {where}", *settings.values()])
    expected = f"{rest} WHERE NOT coalesce({where}, false)"
    return changes(name, f"DELETE FROM {{{table}}} WHERE {where}", query=rest, expected=expected, **settings)


NUMBERS = [
    reads("every number", "SELECT * FROM {num}"),
    reads("order of NaN, infinity, zeros and null", "SELECT id, rank() OVER (ORDER BY d) FROM {num}"),
    reads("groups of NaN and zeros", "SELECT d, count(*) FROM {num} GROUP BY d"),
    reads("distinct floats", "SELECT DISTINCT f FROM {num}"),
    reads("min and max of doubles", "SELECT min(d), max(d), min(f), max(f) FROM {num}"),
    reads("sums and averages", "SELECT sum(int), avg(dec), sum(dec), sum(byte), avg(d) FROM {num}"),
    reads("decimal arithmetic", "SELECT id, dec * 1.1, dec / 3, CAST(dec AS DECIMAL(5, 1)) FROM {num} WHERE dec > -9"),
    reads("a join on doubles", "SELECT a.id, b.id FROM {num} a JOIN {num} b ON a.d = b.f"),
    reads("a join on decimals of two scales", "SELECT a.id, b.id FROM {num} a JOIN {num} b ON a.dec = b.big"),
    reads("negative zero", "SELECT id, 1 / d FROM {num} WHERE d = 0", ansi_enabled="false"),
    _set("num", "d", "double('NaN')", "d > 1"),
    _set("num", "d", "-0.0D", "id = 7"),
    _set("num", "d", "d + 1", "d = d"),
    _set("num", "f", "CAST(d AS FLOAT)", "NOT (d < 1)"),
    _set("num", "dec", "CAST(dec * 2 AS DECIMAL(10, 2))", "dec BETWEEN 0 AND 3"),
    _set("num", "big", "CAST(1 AS DECIMAL(38, 0))", "big > 99999999999999999999"),
    _set("num", "long", "9223372036854775807", "long = -9223372036854775808"),
    _set("num", "byte", "CAST(-byte AS TINYINT)", "byte > 0"),
    _delete("num", "d > 1"),
    _delete("num", "d = double('NaN')"),
    _delete("num", "d <> double('NaN')"),
    _delete("num", "d >= 0"),
    _delete("num", "d = 0"),
    _delete("num", "NOT (d <= 1)"),
    _delete("num", "f = 0.1"),
    _delete("num", "f = CAST(0.1 AS FLOAT)"),
    _delete("num", "isnan(f)"),
    _delete("num", "dec = 1.5"),
    _delete("num", "dec IN (0, 2, NULL)"),
    _delete("num", "long = 9007199254740992D"),
    _delete("num", "int > 2147483646"),
    _delete("num", "big < 1.5"),
]

TIMES = [
    *(reads(f"times as text in {zone}", "SELECT id, CAST(at AS STRING), CAST(local AS STRING), CAST(day AS STRING), "
            "hour(at), to_date(at), CAST(local AS TIMESTAMP) FROM {times} WHERE id NOT IN (1, 2)",
            session_timeZone=zone) for zone in _ZONES),
    *(_delete("times", "at >= '2026-10-25 02:30:00'", session_timeZone=zone) for zone in _ZONES),
    *(_delete("times", "CAST(at AS DATE) = DATE'2026-10-25'", session_timeZone=zone) for zone in _ZONES),
    _delete("times", "local = TIMESTAMP'2026-10-25 02:30:00'", session_timeZone="Asia/Kolkata"),
    _delete("times", "day = '1582-10-15'"),
    _delete("times", "day < DATE'1970-01-01'"),
    _delete("times", "at < TIMESTAMP'1970-01-01 00:00:00Z'"),
    _delete("times", "local > TIMESTAMP_NTZ'2026-10-25 02:30:00'"),
    _set("times", "at", "at + INTERVAL 1 DAY", "id = 0", session_timeZone="Europe/Warsaw"),
    _set("times", "at", "CAST(local AS TIMESTAMP)", "id IN (0, 6)", session_timeZone="Europe/Warsaw"),
    _set("times", "local", "CAST(at AS TIMESTAMP_NTZ)", "id IN (0, 6, 7)", session_timeZone="America/New_York"),
    _set("times", "day", "date_add(day, 1)", "day > DATE'2000-01-01' AND day < DATE'9000-01-01'"),
    _set("times", "day", "CAST(at AS DATE)", "id = 6", session_timeZone="Asia/Tokyo"),
    _set("times", "local", "CAST(date_trunc('DAY', local) AS TIMESTAMP_NTZ)", "id > 4"),
    reads("differences of times", "SELECT id, CAST(at - TIMESTAMP'2026-01-01 00:00:00Z' AS STRING) FROM {times} "
          "WHERE id IN (0, 5, 6)"),
]  # fmt: skip

TEXTS = [
    reads("texts and bytes", "SELECT * FROM {txt}"),
    reads("order of texts", "SELECT id, rank() OVER (ORDER BY s), rank() OVER (ORDER BY b) FROM {txt}"),
    reads("min and max of texts", "SELECT min(s), max(s), min(b), max(b) FROM {txt}"),
    reads("functions of bytes", "SELECT id, hex(b), length(b), base64(b) FROM {txt}"),
    reads("three-valued logic", "SELECT id, flag AND id > 5, flag OR id > 5, NOT flag, flag <=> NULL FROM {txt}"),
    _set("txt", "s", "concat(s, '''\\\\%_')", "s LIKE 'a%'"),
    _set("txt", "s", "''", "s IS NULL"),
    _set("txt", "b", "X'DEADBEEF'", "b > X'7F'"),
    _set("txt", "b", "CAST(s AS BINARY)", "length(s) = 3"),
    _set("txt", "flag", "NOT flag", "id > 3"),
    _set("txt", "flag", "NULL", "flag"),
    _delete("txt", "s = ''"),
    _delete("txt", "s LIKE '%\\\\%'"),
    _delete("txt", "s LIKE 'a\\\\_b'"),
    _delete("txt", "contains(s, '\\\\')"),
    _delete("txt", "s > 'a'"),
    _delete("txt", "NOT flag"),
    _delete("txt", "flag IS NULL OR s = 'it''s'"),
    _delete("txt", "b = X'00FF'"),
]

CASES: list[Case] = [*NUMBERS, *TIMES, *TEXTS]


@pytest.mark.parametrize("case", sample("values", CASES, least=6))
def test_values_as_spark_has_them(conformance: Conformance, case: Case):
    conformance.check(case)
