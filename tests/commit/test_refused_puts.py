"""A put that the storage refuses: the refusal is the outcome, unless a request before it had no response."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import conroi
from conroi import CommitStateUnknown, UnsupportedError
from conroi.commit.conditional_put import RESEND_PAUSE_S, RESENDS
from conroi.testing import Fault, FaultyObjects, Request, SeededEnvironment, call_before, fail, lose_answer
from tests.support.arrow import column_values
from tests.support.instruments import CloudLike, table_on

pytestmark = pytest.mark.contract("T3")
PUT = ("put_if_absent", "_versions/*.manifest")
BOTH = pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])


@pytest.fixture
def table(tmp_path: Path) -> conroi.Table:
    return conroi.create_table(tmp_path / "t.lance", [{"id": 1}])


def ids(table: conroi.Table) -> list[int]:
    return sorted(column_values(conroi.open_table(table.uri).to_arrow()["id"]))


def writer(
    table: conroi.Table, is_cloud: bool, faults: Sequence[Fault], seed: int = 1
) -> tuple[conroi.Table, SeededEnvironment]:
    environment = SeededEnvironment(seed)
    objects = CloudLike(table._files.objects) if is_cloud else table._files.objects
    return table_on(FaultyObjects(objects, faults), environment=environment), environment


def refuse(_request: Request) -> None:
    raise UnsupportedError("The bucket is sealed.", hint="Use another one.")


@BOTH
def test_a_refusal_is_passed_on_and_nothing_is_committed(is_cloud: bool, table: conroi.Table) -> None:
    refused, _ = writer(table, is_cloud, [call_before(refuse, *PUT)])
    with pytest.raises(UnsupportedError, match="sealed"):
        refused.append([{"id": 2}])
    assert ids(table) == [1]


@BOTH
def test_a_refusal_after_a_request_without_a_response_is_no_outcome(is_cloud: bool, table: conroi.Table) -> None:
    refused, _ = writer(table, is_cloud, [fail(*PUT), call_before(refuse, *PUT)])
    with pytest.raises(CommitStateUnknown, match="sealed") as caught:
        refused.append([{"id": 2}])
    assert caught.value.version == 2
    assert ids(table) == [1]


@BOTH
def test_a_put_is_sent_again_after_short_pauses(is_cloud: bool, table: conroi.Table) -> None:
    again, environment = writer(table, is_cloud, [fail(*PUT, times=RESENDS)])
    again.append([{"id": 2}])
    assert ids(table) == [1, 2]
    pauses = environment.sleeps
    assert len(pauses) == RESENDS
    assert all(0 <= pause <= RESEND_PAUSE_S * 2**number for number, pause in enumerate(pauses))
    assert len(set(pauses)) == RESENDS, "they are random"


@BOTH
def test_a_put_without_a_response_is_unknown_after_the_last_time(is_cloud: bool, table: conroi.Table) -> None:
    lost, _ = writer(table, is_cloud, [fail(*PUT, times=RESENDS + 1)])
    with pytest.raises(CommitStateUnknown):
        lost.append([{"id": 2}])
    assert ids(table) == [1]
    found, environment = writer(table, is_cloud, [lose_answer(*PUT)], 2)
    assert found.append([{"id": 3}]).version == 2
    assert environment.sleeps == [], "it was there"
    assert ids(table) == [1, 3]
