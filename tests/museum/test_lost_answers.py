"""A storage or a process that stops in the middle: what was committed stays, and nothing is done twice."""

from __future__ import annotations

from pathlib import Path

import lancedb
import pyarrow as pa
import pytest

import conroi
from conroi.testing import Fault, call_before, lose_answer
from tests.support.arrow import column_values
from tests.support.lakes import Dies, dies, faulty, rows

pytestmark = pytest.mark.contract("H7")

PUT = ("put_if_absent", "_versions/*.manifest")


def files(uri: str) -> set[str]:
    return {str(path.relative_to(uri)) for path in Path(uri).rglob("*") if path.is_file()}


@pytest.mark.contract("T11", "T19")
def test_a_commit_whose_answer_was_lost_loses_no_file(tmp_path: Path) -> None:
    """ClickHouse#112081: a put that landed is taken for a lost race, and the clean-up deletes what it had committed.

    First the storage can be asked again, then it cannot.
    """
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"n": 0}])
    client = faulty(lake.uri, [lose_answer(*PUT)], only="__manifest", is_cloud=True)
    with client.begin() as tx:
        tx["t"].append([{"n": 1}])
    assert (tx.result.attempts, rows(lake["t"])) == (1, [0, 1])

    is_silent = [False]

    def go_silent(_request: object) -> None:
        is_silent[0] = True
        raise conroi.StoreUnavailable("no answer (injected)")

    def no_answer(_request: object) -> None:
        if is_silent[0]:
            raise conroi.StoreUnavailable("no answer (injected)")

    faults = [Fault(after=go_silent, verb=PUT[0], path=PUT[1]), Fault(before=no_answer, times=None)]
    silent = faulty(lake.uri, faults, only="__manifest", is_cloud=True)
    before = files(lake.uri)
    with pytest.raises(conroi.CommitStateUnknown):
        silent["t"].append([{"n": 2}])
    assert before < files(lake.uri)
    assert rows(lake["t"]) == [0, 1, 2]


@pytest.mark.contract("P1", "W10")
def test_rows_and_the_position_up_to_which_they_were_read_are_one_commit(tmp_path: Path) -> None:
    """lancedb#4010: rows and position are two commits, and a crash between them appends the rows again."""
    batch = pa.table({"n": [1, 2]})
    connection = lancedb.connect(str(tmp_path / "lancedb"))
    connection.create_table("t", schema=batch.schema)
    connection.create_table("position", schema=pa.schema([("upto", pa.int64())]))

    def load(*, crashes: bool) -> None:
        if connection.open_table("position").count_rows() == 0:
            connection.open_table("t").add(batch)
            if crashes:
                raise Dies
            connection.open_table("position").add(pa.table({"upto": [2]}))

    with pytest.raises(Dies):
        load(crashes=True)
    load(crashes=False)
    assert sorted(column_values(connection.open_table("t").to_arrow()["n"])) == [1, 1, 2, 2]

    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", batch.schema)
    lake.create_table("position", pa.schema([("upto", pa.int64())]))
    for crash in ([call_before(dies, *PUT)], [Fault(after=dies, verb=PUT[0], path=PUT[1])], []):
        client = faulty(lake.uri, crash, only="__manifest", is_cloud=True)
        try:
            _load(client, batch)
        except Dies:
            continue
    assert (rows(lake["t"]), lake["position"].to_arrow().to_pylist()) == ([1, 2], [{"upto": 2}])


def _load(client: conroi.Lake, batch: pa.Table) -> None:
    with client.begin() as tx:
        if tx["position"].count_rows() == 0:
            tx["t"].append(batch)
            tx["position"].append([{"upto": 2}])
