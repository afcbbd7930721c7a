"""Ctrl-C in the middle of a commit under any external store: the same table goes on working."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import LifoQueue
from typing import Any

import pytest

import conroi
from conroi.storage.dynamodb import DynamoClient, dynamo_table
from tests.support.databases import aws_environment, dynamodb_address
from tests.support.external_tables import rows
from tests.support.servers import S3Server


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


@pytest.mark.contract("X10")
def test_no_interrupt_leaves_a_lock_of_the_connection_pool_of_boto3_held(
    moto: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """urllib3 returns a connection under a lock of a queue in Python, which an interrupt may leave held for ever."""
    for name, value in aws_environment().items():
        monkeypatch.setenv(name, value)
    client = DynamoClient(dynamo_table(dynamodb_address(moto.endpoint)))
    client.call("describe_table")
    really_put = LifoQueue.put
    putting: list[threading.Thread] = []

    def put(queue: LifoQueue[object], *arguments: Any, **more: Any) -> None:
        putting.append(threading.current_thread())
        if len(putting) == 1:
            os.kill(os.getpid(), signal.SIGALRM)  # Python raises it in the main thread
        really_put(queue, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(LifoQueue, "put", put)
        with pytest.raises(KeyboardInterrupt):
            client.call("describe_table")
    assert threading.main_thread() not in putting, "an interrupt there could leave the queue locked"
    assert client.call("describe_table")["Table"]["TableName"] == client.table.name
