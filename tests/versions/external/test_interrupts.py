"""Ctrl-C in the middle of a commit under any external store: the same table goes on working."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import conroi
from tests.support.external_tables import rows


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """The alarm raises KeyboardInterrupt."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.contract("X10")
def test_a_table_works_after_interrupts_at_any_moment(store: str, tmp_path: Path) -> None:
    """F8 for the records of single tables: SQLite, PostgreSQL and DynamoDB."""
    uri = str(tmp_path / "t.lance")
    table = conroi.create_table(uri, [{"row": 0}], store=store)
    slow = 4 if store.startswith("dynamodb") else 1
    for number in range(15):
        try:
            signal.setitimer(signal.ITIMER_REAL, (0.0005 + 0.001 * number) * slow)
            try:
                table.append([{"row": -1}])
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            pass
        assert conroi.open_table(uri, store=store).version >= 1, "which shares the connection"
    for number in range(1, 4):
        table = table.append([{"row": number}])
    assert [row for row in rows(conroi.open_table(uri, store=store)) if row >= 0] == [0, 1, 2, 3]
