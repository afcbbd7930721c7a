"""Names: keywords, spaces, other scripts, quotes; letters of any case; qualified and aliased columns."""

from __future__ import annotations

import pytest

from tests.spark.connector.conformance import Case, Conformance, changes, mirrored, reads, refused, sample

pytestmark = pytest.mark.contract("S17")

_ALL = "SELECT * FROM {odd}"

CASES: list[Case] = [
    reads("all columns", _ALL),
    reads("each column by its name", "SELECT `select`, `a b`, `ünï`, `Mixed`, `flag?`, `quo'te\"s`, `名` FROM {odd}"),
    reads("a keyword in a condition", "SELECT `select` FROM {odd} WHERE `select` > 1"),
    reads("a space in a condition", "SELECT * FROM {odd} WHERE `a b` = 'x' OR `a b` IS NULL"),
    reads("another script in a condition", "SELECT * FROM {odd} WHERE `名` IN ('一', '三')"),
    reads("an umlaut in a condition", "SELECT * FROM {odd} WHERE `ünï` >= 10"),
    reads("a question mark in a condition", "SELECT * FROM {odd} WHERE `flag?`"),
    reads("a quote in a condition", "SELECT * FROM {odd} WHERE `quo'te\"s` <> 8"),
    reads("other letters", "SELECT MIXED, mixed, `MiXeD` FROM {odd} WHERE mixed = 'N'"),
    reads("other letters of another script", "SELECT `ÜNÏ` FROM {odd} WHERE `ÜNÏ` = 10"),
    reads("an alias and a qualified name", "SELECT o.`select`, o.`a b` AS `b a` FROM {odd} AS o WHERE o.mixed > 'M'"),
    reads("aggregates", "SELECT max(`select`), min(`a b`), count(`名`), sum(`quo'te\"s`) FROM {odd}"),
    reads("groups", "SELECT `flag?`, count(*) FROM {odd} GROUP BY `flag?`"),
    reads("order", "SELECT `名` FROM {odd} ORDER BY `quo'te\"s` DESC LIMIT 2"),
    reads("a join on odd names", "SELECT a.`a b` FROM {odd} a JOIN {odd} b ON a.`quo'te\"s` = b.`select` + 7"),
    changes(
        "update of odd names",
        "UPDATE {odd} SET `a b` = concat(`名`, `Mixed`), `ünï` = `select` WHERE `quo'te\"s` > 7",
        query=_ALL,
        expected="SELECT `select`, CASE WHEN `quo'te\"s` > 7 THEN concat(`名`, `Mixed`) ELSE `a b` END AS `a b`, "
        "CAST(CASE WHEN `quo'te\"s` > 7 THEN `select` ELSE `ünï` END AS INT) AS `ünï`, `Mixed`, `flag?`, "
        "`quo'te\"s`, `名` FROM {odd}",
    ),
    changes(
        "delete by an odd name",
        "DELETE FROM {odd} WHERE `flag?` OR `a b` = 'y'",
        query=_ALL,
        expected=_ALL + " WHERE `select` = 3",
    ),
    changes(
        "delete by a function of an odd name",
        "DELETE FROM {odd} WHERE length(`a b`) = 1",
        query=_ALL,
        expected=_ALL + " WHERE `a b` IS NULL",
    ),
    changes(
        "merge on an odd name",
        "MERGE INTO {odd} t USING (SELECT 8L AS `quo'te\"s`, 'new' AS `名`) s ON t.`quo'te\"s` = s.`quo'te\"s` "
        "WHEN MATCHED THEN UPDATE SET t.`名` = s.`名` WHEN NOT MATCHED THEN INSERT (`名`) VALUES (s.`名`)",
        query="SELECT `select`, `名` FROM {odd}",
        expected="SELECT `select`, CASE WHEN `select` = 2 THEN 'new' ELSE `名` END AS `名` FROM {odd}",
    ),
    mirrored(
        "insert by odd names",
        "INSERT INTO {odd} (`名`, `flag?`, MIXED, `select`) VALUES ('四', true, 'P', 4)",
        query=_ALL,
    ),
    mirrored(
        "insert by name in other letters", "INSERT INTO {odd} BY NAME SELECT 4L AS `SELECT`, 'q' AS `A B`", query=_ALL
    ),
    changes(
        "a table with an odd name",
        "CREATE TABLE lake.`läger 一` (`order` INT, `group` STRING)",
        "INSERT INTO lake.`läger 一` VALUES (1, 'g')",
        "UPDATE lake.`läger 一` SET `group` = 'h' WHERE `order` = 1",
        query="SELECT `order`, `group` FROM lake.`läger 一`",
        expected="SELECT 1, 'h'",
    ),
    changes(
        "a namespace that is a keyword",
        "CREATE NAMESPACE lake.`select`",
        "CREATE TABLE lake.`select`.`from` AS SELECT 1 AS `where`",
        query="SELECT `from`.`where` FROM lake.`select`.`from`",
        expected="SELECT 1 AS `where`",
    ),
    changes(
        "the names of a table in other letters",
        "CREATE TABLE lake.`Letters` (Id INT)",
        "INSERT INTO lake.LETTERS VALUES (1)",
        "DELETE FROM lake.letters WHERE ID = 2",
        query="SELECT iD FROM lake.letterS",
        expected="SELECT 1 AS iD",
    ),
    refused(
        "two columns that differ in letters",
        "CREATE TABLE lake.twice (a INT, A INT)",
        error="COLUMN_ALREADY_EXISTS",
        query="SELECT * FROM {odd}",
    ),
    refused(
        "a dot in the name of a table", "CREATE TABLE lake.`a.b` (a INT)", error="conroi.", query="SELECT * FROM {odd}"
    ),
    refused(
        "a backtick in the name of a column",
        "CREATE TABLE lake.ticked (`a``b` INT)",
        error="conroi.",
        query="SELECT * FROM {odd}",
    ),
    refused(
        "a dot in the name of a column",
        "CREATE TABLE lake.dotted (`a.b` INT)",
        error="conroi.",
        query="SELECT * FROM {odd}",
    ),
]


@pytest.mark.parametrize("case", sample("names", CASES, least=4))
def test_names_as_spark_reads_them(conformance: Conformance, case: Case):
    conformance.check(case)
