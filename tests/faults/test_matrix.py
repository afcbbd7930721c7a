"""One fault at every request of a statement on S3: nothing is lost, doubled or half visible, the next commit works."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import conroi
from conroi.commit.conditional_put import Putting
from tests.faults.matrix import STATEMENTS, SUBJECTS, Matrix, Tally, place_of, subject_at
from tests.support.databases import sqlite_address
from tests.support.http_faults import KINDS, HttpFaults, http_faults
from tests.support.servers import S3Server

pytestmark = pytest.mark.contract("T21", "T19")


@pytest.fixture
def proxy(seaweedfs: S3Server) -> Iterator[HttpFaults]:
    with http_faults(int(seaweedfs.endpoint.rpartition(":")[2])) as running:
        yield running


def matrix_of(
    subject: str, statement: str, proxy: HttpFaults, server: S3Server, request: pytest.FixtureRequest
) -> tuple[Matrix, Tally]:
    store = None
    if subject.endswith("sqlite"):
        store = sqlite_address(request.getfixturevalue("tmp_path"))
    elif subject.endswith("postgresql"):
        store = request.getfixturevalue("postgres").new_address()
    tally = Tally()
    return Matrix(subject_at(subject, place_of(subject, server, proxy, store)), statement, proxy, tally), tally


SAMPLE = [
    ("table", "append", "dropped after", 1),
    ("table", "append", "409 after", 1),
    ("lake", "transaction", "lands late", 4),
    ("lake", "append", "412 after", 3),
    ("table in sqlite", "append", "409 before", 2),
]


@pytest.mark.parametrize(("subject", "statement", "kind", "step"), SAMPLE)
def test_a_sample_of_the_matrix(
    subject: str,
    statement: str,
    kind: str,
    step: int,
    proxy: HttpFaults,
    seaweedfs: S3Server,
    request: pytest.FixtureRequest,
) -> None:
    matrix, tally = matrix_of(subject, statement, proxy, seaweedfs, request)
    matrix.run(kind, step)
    assert (tally.anomalies, tally.cases > 1) == ([], True)


def test_control_a_lost_answer_that_is_taken_for_a_loss_is_noticed(
    proxy: HttpFaults, seaweedfs: S3Server, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(*_: object) -> None:
        raise conroi.RetryableConflict("taken for lost")

    monkeypatch.setattr(Putting, "_look_for_mine", give_up)
    matrix, tally = matrix_of("table", "append", proxy, seaweedfs, request)
    matrix.run("dropped after")
    assert any("there: [2]" in anomaly for anomaly in tally.anomalies), tally.anomalies


@pytest.mark.soak
@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_whole_matrix(
    subject: str, statement: str, proxy: HttpFaults, seaweedfs: S3Server, request: pytest.FixtureRequest
) -> None:
    matrix, tally = matrix_of(subject, statement, proxy, seaweedfs, request)
    for kind in KINDS:
        matrix.run(kind)
    assert (tally.anomalies, len(tally.by_kind)) == ([], len(KINDS))
