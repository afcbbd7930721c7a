"""Looking into a ClickHouse table as any client would."""

from __future__ import annotations

import contextlib
import itertools

from conroi.export.clickhouse_engine import Value, parse


def ask(target: str, statement: str) -> list[list[Value]]:
    """The answer to a statement in which `…` is the table."""
    at = parse(target)
    with contextlib.closing(at.engine()) as engine:
        engine.ask(f"CREATE DATABASE IF NOT EXISTS {at.database}")
        return engine.ask(statement.replace("…", at.sql))


def rows(target: str, columns: str = "*") -> list[list[Value]]:
    """The rows in the order of their numbers; 64-bit numbers as text, as some servers say them."""
    found = ask(target, f"SELECT {columns} FROM … ORDER BY conroi_row")
    return [[str(value) if isinstance(value, int) else value for value in row] for row in found]


def runs(target: str) -> list[tuple[int, int, int]]:
    """By number: whose export each unbroken run of rows is, and how many rows it has."""
    found = [tuple(map(int, row)) for row in rows(target, "worker, export, conroi_row")]
    groups = itertools.groupby(enumerate(found), key=lambda item: (*item[1][:2], item[1][2] - item[0]))
    return [(worker, export, len(list(group))) for (worker, export, _), group in groups]
