"""Queries over the lake's tables: run by Spark, with each table's name replaced by a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import Token

from conroi.errors import InvalidInputError, NotFoundError
from conroi.spark.sql.references import DIALECT, Reference, Tables, narrow, parsed, references

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, query: str, tables: Tables) -> DataFrame:
    """The answer to a query, in which every table of the lake is at the version it has in `tables`."""
    tree = parsed(query)
    found = references(tree, tables)
    counted = _counted(tree, found)
    if counted is not None:
        return spark.sql(f"SELECT CAST({found[0].table.count_rows()} AS BIGINT) AS `{counted}`")
    narrow(tree, found)
    frames: dict[str, Any] = {f"t{number}": _rows_of(spark, each) for number, each in enumerate(found)}
    text = _with_frames(query, found)
    try:
        return spark.sql(text, **frames) if frames else spark.sql(query)
    except AnalysisException as error:
        raise _told(error, tables) from error


def _counted(tree: exp.Expr, found: Sequence[Reference]) -> str | None:
    """For `SELECT count(*) FROM t` and no more: what the column is called. The metadata answer it, without a job."""
    if not isinstance(tree, exp.Select) or len(found) != 1 or len(tree.expressions) != 1:
        return None
    node = found[0].node
    if _parts(tree) != {"expressions", "from_"} or not _parts(node) <= {"this", "db", "catalog", "alias", "version"}:
        return None
    asked = tree.expressions[0]
    is_count = asked.unalias().sql(DIALECT) in ("COUNT(*)", "COUNT(1)")
    is_plain = isinstance(node.parent, exp.From) and node.parent.parent is tree
    return (asked.alias or "count(1)").replace("`", "``") if is_count and is_plain else None


def _parts(node: exp.Expr) -> set[str]:
    return {part for part, value in node.args.items() if value}


def _rows_of(spark: SparkSession, each: Reference) -> DataFrame:
    """What the query needs of a table; where it only counts rows, their number is in the metadata."""
    if each.columns == [] and each.filter is None:
        return spark.range(each.table.count_rows())
    return each.table.to_spark(spark, each.columns or None, each.filter)


def _told(error: AnalysisException, tables: Tables) -> Exception:
    condition = error.getCondition() or ""
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        name = (error.getMessageParameters() or {}).get("relationName", "")
        return NotFoundError(
            f"Neither the lake nor Spark has a table {name}.",
            hint=f"The lake has {', '.join(tables.names()) or 'none'}.",
        )
    return InvalidInputError(f"Spark refuses the query: {error}", hint="It is written in Spark SQL.")


def _with_frames(query: str, found: Sequence[Reference]) -> str:
    """The text as it was written, with a place for a DataFrame where a table was named."""
    tokens = Spark().tokenize(query)
    starts = {token.start: position for position, token in enumerate(tokens)}
    pieces: list[str] = []
    done = 0
    spans = sorted((*_span(each.node, tokens, starts), number) for number, each in enumerate(found))
    for start, end, number in spans:
        each = found[number]
        pieces += [_escaped(query[done:start]), f"{{t{number}}}"]
        pieces += [] if each.is_aliased else [f" AS `{_escaped(each.alias)}`"]
        done = end
    return "".join([*pieces, _escaped(query[done:])])


def _span(node: exp.Table, tokens: Sequence[Token], starts: dict[int, int]) -> tuple[int, int]:
    """Where the name stands in the text, with its VERSION AS OF if it has one."""
    parts = node.parts
    start, end = parts[0].meta["start"], parts[-1].meta["end"]
    if node.args.get("version") is not None:
        position = starts[parts[-1].meta["start"]]
        while tokens[position].text.upper() != "OF":
            position += 1
        end = tokens[position + 1].end
    return start, end + 1


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
