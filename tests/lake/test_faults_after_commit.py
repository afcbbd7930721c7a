"""A verb that fails after its point of commit never says that nothing happened: one fault at every request of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.branches.results import LakeMerge
from conroi.storage.objects import Objects
from conroi.testing import Fault, FaultyObjects, NthRequest, connect_through, fail, lose_answer
from tests.support.instruments import CloudLike
from tests.support.sampling import sampled

pytestmark = pytest.mark.contract("T19")

ROWS = pa.table({"id": [1, 2]})
LONGEST = 80
"""More requests than any of these verbs makes."""


@dataclass(frozen=True)
class Verb:
    """What is done, and whether another client sees that it was done."""

    do: Callable[[conroi.Lake], conroi.Table | LakeMerge]
    is_done: Callable[[conroi.Lake], bool]
    rows: list[int]
    """Those of the answer, if it is a table."""
    prepare: Callable[[conroi.Lake], object] = lambda _: None


def _branch_with_a_row(lake: conroi.Lake) -> None:
    lake.branches.create("dev")
    lake.branch("dev")["t"].append([{"id": 3}])
    lake.tags.create("before")


VERBS = {
    "create_table": Verb(lambda lake: lake.create_table("new", ROWS), lambda lake: "new" in lake.tables(), [1, 2]),
    "rename_table": Verb(lambda lake: lake.rename_table("t", "u"), lambda lake: "u" in lake.tables(), [1, 2]),
    "register": Verb(lambda lake: lake.register("found", "found.lance"), lambda lake: "found" in lake.tables(), [7]),
    "insert": Verb(lambda lake: lake.insert("t", [{"id": 3}]), lambda lake: lake["t"].count_rows() == 3, [1, 2, 3]),
    "Table.insert": Verb(
        lambda lake: lake["t"].insert([{"id": 3}]), lambda lake: lake["t"].count_rows() == 3, [1, 2, 3]
    ),
    "append": Verb(lambda lake: lake["t"].append([{"id": 3}]), lambda lake: lake["t"].count_rows() == 3, [1, 2, 3]),
    "merge": Verb(
        lambda lake: lake.merge("dev"), lambda lake: lake["t"].count_rows() == 3, [], prepare=_branch_with_a_row
    ),
}


def ids(table: conroi.Table) -> list[int]:
    found: list[int] = table.to_arrow()["id"].to_pylist()  # pyright: ignore[reportAssignmentType]
    return sorted(found)


FAULTS: dict[str, Callable[[], Fault]] = {"no answer": fail, "lost answer": lose_answer}


@pytest.mark.parametrize(("name", "kind"), sampled("faults after the commit", list(product(VERBS, FAULTS))))
def test_a_fault_after_the_commit_is_no_refusal(name: str, kind: str, tmp_path: Path) -> None:
    verb, landed = VERBS[name], 0
    for number in range(1, LONGEST):
        uri = tmp_path / str(number)
        conroi.connect(uri).create_table("t", ROWS)
        verb.prepare(conroi.connect(uri))
        lance.write_dataset(pa.table({"id": [7]}), uri / "found.lance")
        chosen, wrapped = NthRequest(number, FAULTS[kind]()), list[FaultyObjects]()

        def wrap(objects: Objects, chosen: NthRequest = chosen, wrapped: list[FaultyObjects] = wrapped) -> Objects:
            wrapped.append(FaultyObjects(CloudLike(objects), chosen))
            return wrapped[-1]

        answer, is_unknown = None, False
        try:
            answer = verb.do(connect_through(uri, wrap))
        except conroi.CommitStateUnknown:
            is_unknown = True
        except conroi.StoreError:
            pass  # refused
        is_done = verb.is_done(conroi.connect(uri))
        assert is_unknown or is_done is (answer is not None), f"request {number}: answer {answer}, but done: {is_done}"
        assert not isinstance(answer, conroi.Table) or ids(answer) == verb.rows
        landed += is_done
        if not any(objects.hits for objects in wrapped):
            break
    else:
        pytest.fail("it makes more requests")
    assert landed > 1, "a fault after the commit is among them"
