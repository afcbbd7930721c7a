"""Bugs planted into conroi for negative controls: a history with one of them must not pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from conroi.catalog.catalog import Catalog
from conroi.catalog.participant import PublishResult
from conroi.catalog.publication import Publishing
from conroi.transaction import Transaction
from conroi.transaction_tables import TransactionTables


def _unchecked() -> None:
    """What a serializable transaction read is not checked when it commits."""
    TransactionTables.expectations = lambda self: []  # type: ignore[method-assign]


def _stale() -> None:
    """A transaction begins with the state that its process saw last, without a look."""
    begin = Transaction.__init__

    def begin_stale(self: Transaction, catalog: Catalog, **how: Any) -> None:
        look = catalog.state
        catalog.state = catalog.known_state  # type: ignore[method-assign]
        try:
            begin(self, catalog, **how)
        finally:
            catalog.state = look  # type: ignore[method-assign]

    Transaction.__init__ = begin_stale  # type: ignore[method-assign]


def _separately() -> None:
    """The tables of a transaction are published one after the other."""
    run = Publishing.run

    def run_separately(self: Publishing) -> PublishResult:
        order = self._request
        if len(order.tables) < 2:
            return run(self)
        alone = [replace(order, tables=[wanted], expects=(), listing=None, uuid="") for wanted in order.tables]
        outcomes = [run(Publishing(self._catalog, each)) for each in alone]
        tables = {name: result for outcome in outcomes for name, result in outcome.tables.items()}
        return replace(outcomes[-1], tables=tables)

    Publishing.run = run_separately  # type: ignore[method-assign]


PLANTED: dict[str, Callable[[], None]] = {"unchecked": _unchecked, "stale": _stale, "separately": _separately}


def plant(name: str | None) -> None:
    """Give this process the bug."""
    if name is not None:
        PLANTED[name]()
