"""The final name under a store, on storage that refuses conditions: the store has decided, so looking is enough."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

import conroi
from conroi.environment import SYSTEM
from conroi.errors import StoreError, StoreUnavailable
from conroi.snapshots.snapshot import TableStorage
from conroi.storage import open_objects
from conroi.storage.objects import ObjectExists, UnsupportedByStorage
from conroi.testing.instruments import Request, WrappedObjects
from conroi.versions import open_records
from conroi.versions.external import ExternalVersions, FinalPut
from tests.support.external_tables import rows, rows_by_pylance, staged_files
from tests.support.instruments import CloudLike

pytestmark = pytest.mark.contract("X1", "X3")
T = TypeVar("T")


class NoConditions(WrappedObjects):
    """Storage that says of a condition that it cannot do that."""

    error: type[StoreError] = UnsupportedByStorage
    refused = 0

    def around(self, request: Request, call: Callable[[], T]) -> T:
        if request.verb == "put_if_absent":
            self.refused += 1
            raise self.error("this storage cannot do that", hint="commit under a lock")
        return call()


def opened(uri: str, store: str) -> tuple[conroi.Table, NoConditions]:
    objects = NoConditions(CloudLike(open_objects(uri)))
    files = TableStorage(objects, ExternalVersions(objects, open_records(store), None, SYSTEM), SYSTEM)
    return conroi.Table(files, files.head()), objects


def test_versions_get_their_final_names_without_conditions(tmp_path: Path) -> None:
    uri, store = str(tmp_path / "t.lance"), f"sqlite:///{tmp_path}/versions.db"
    conroi.create_table(uri, [{"row": 1}], store=store)
    table, objects = opened(uri, store)
    for number in (2, 3):
        table = table.append([{"row": number}])
        assert rows_by_pylance(uri) == (number, list(range(1, number + 1)))
    assert objects.refused >= 2
    assert staged_files(uri) == []
    assert rows(conroi.open_table(uri, store=store)) == [1, 2, 3]


def test_writers_that_race_without_conditions_lose_nothing(tmp_path: Path) -> None:
    uri, store = str(tmp_path / "t.lance"), f"sqlite:///{tmp_path}/versions.db"
    conroi.create_table(uri, [{"row": 0}], store=store)

    def work(writer: int) -> None:
        table, _ = opened(uri, store)
        for number in range(5):
            table = table.append([{"row": 10 * writer + number}])

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, (1, 2, 3)))
    expected = sorted([0, *(10 * writer + number for writer in (1, 2, 3) for number in range(5))])
    assert sorted(rows(conroi.open_table(uri, store=store))) == expected
    assert rows_by_pylance(uri)[0] == 16


def test_a_name_that_is_there_is_left_and_a_lost_answer_is_no_refusal(tmp_path: Path) -> None:
    objects = NoConditions(open_objects(str(tmp_path)))
    FinalPut().put_new(objects, "_versions/1.manifest", b"first")
    with pytest.raises(ObjectExists):
        FinalPut().put_new(objects, "_versions/1.manifest", b"second")
    assert objects.get("_versions/1.manifest") == b"first"
    objects.error = StoreUnavailable
    with pytest.raises(StoreUnavailable):
        FinalPut().put_new(objects, "_versions/2.manifest", b"third")
    assert objects.head("_versions/2.manifest") is None


def test_a_refusal_for_another_reason_does_not_put_without_a_condition(tmp_path: Path) -> None:
    """Found by a simulation (out_of_band, seed 10004492): a full store refused the final name of a published version,
    a client committed by path under that name, and the put without a condition replaced its manifest.
    """
    objects = NoConditions(open_objects(str(tmp_path)))
    objects.error = StoreError
    with pytest.raises(StoreError, match="cannot do that"):
        FinalPut().put_new(objects, "_versions/1.manifest", b"ours")
    assert objects.head("_versions/1.manifest") is None
