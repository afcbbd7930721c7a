"""Data files of a transaction on an object store: completed in the background, until something reads them."""

from __future__ import annotations

from typing import Any

import pytest

import conroi
from conroi.data import writer
from conroi.testing.simulation.world import Process
from tests.simulation.test_serial_requests import REQUEST_S, append, run
from tests.support.cloud_servers import BucketServer

pytestmark = pytest.mark.contract("W5")


def begin_to_end(*tables: str, reads: bool = False) -> int:
    """Serial requests of the statements of a transaction, until all are staged."""
    took = list[float]()

    def script(process: Process) -> None:
        lake = process.connect()
        for table in tables:
            lake[table].count_rows()
        tx = lake.begin()
        began = process.world.scheduler.now
        for table in tables:
            append(table, tx)
        if reads:
            tx[tables[0]].to_arrow()
        tx._request()  # pyright: ignore[reportPrivateUsage]  # what commit() does first
        took.append(process.world.scheduler.now - began)

    run(script)
    return round(took[0] / REQUEST_S)


def test_files_of_several_tables_take_one_serial_request() -> None:
    assert begin_to_end("a", "b") == begin_to_end("a") == 1


def test_a_statement_that_reads_waits_for_the_file() -> None:
    assert begin_to_end("a", "b", reads=True) > 1


@pytest.mark.parametrize("how", ["commit", "read"])
def test_a_file_that_could_not_be_completed_fails_the_transaction(
    bucket_of_the_day: BucketServer, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    lake = conroi.connect(bucket_of_the_day.new_uri("lake"), storage_options=bucket_of_the_day.options)
    lake.create_table("a", [{"n": 0}])
    tx = lake.begin()
    tx["a"].append([{"n": 1}])
    _fail_next(monkeypatch)
    tx["a"].append([{"n": 2}])
    for _ in range(2 if how == "read" else 0):
        with pytest.raises(conroi.StoreUnavailable):
            tx["a"].count_rows()
    with pytest.raises(conroi.StoreUnavailable):
        tx.commit()
    assert lake["a"].to_arrow()["n"].to_pylist() == [0]


def _fail_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise conroi.StoreUnavailable("no answer")

    monkeypatch.setattr(writer.OpenFile, "end_into", fail)


def test_what_was_completed_in_the_background_is_read_by_pylance(bucket_of_the_day: BucketServer) -> None:
    import lance

    lake = conroi.connect(bucket_of_the_day.new_uri("lake"), storage_options=bucket_of_the_day.options)
    for table in ("a", "b"):
        lake.create_table(table, [{"n": 0}])
    with lake.begin() as tx:
        for number in (1, 2):
            for table in ("a", "b"):
                tx[table].append([{"n": number}])
    for table in ("a", "b"):
        found = lance.dataset(str(lake[table].uri), storage_options=bucket_of_the_day.options)
        assert found.to_table().sort_by("n")["n"].to_pylist() == [0, 1, 2]
        sizes = [file.file_size_bytes for each in found.get_fragments() for file in each.data_files()]
        assert all(size for size in sizes), sizes
