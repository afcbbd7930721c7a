"""What statements inside a transaction cost on the wire: pylance's own requests are counted, not only ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import lance
import pytest

import conroi
from tests.support.proxy import Proxy, proxy_to
from tests.support.servers import S3Server

ROWS = 40
Statement = Callable[[Any, int], object]
STATEMENTS: dict[str, Statement] = {
    "update": lambda table, n: table.update({"n": "n + 1"}, where=f"id = {n}"),
    "delete": lambda table, n: table.delete(f"id = {n}"),
    "merge": lambda table, n: (
        table.merge([{"id": n, "n": 9}, {"id": 1000 + n, "n": 9}], on="id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    ),
    "append": lambda table, n: table.append([{"id": 2000 + n, "n": n}]),
}


@dataclass
class Opens:
    """Counts what pylance makes."""

    datasets: int = 0
    sessions: int = 0


@dataclass
class Far:
    """A table of a lake on an object store, with every request counted."""

    proxy: Proxy
    lake: conroi.Lake
    opens: Opens = field(default_factory=Opens)

    def asked(self, work: Callable[[], object]) -> Counter[str]:
        """The requests by verb and kind of file; pylance's are among them, those of commits before are not."""
        for running in list(self.lake.catalog.finalizing.values()):
            running.result()
        before = len(self.proxy.lines)
        work()
        return Counter(map(_kind, self.proxy.lines[before:]))


def _kind(line: str) -> str:
    verb, _, rest = line.partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    kinds = ("data", "_deletions", "_versions", "_transactions", "_indices")
    return f"{verb} {next((kind for kind in kinds if f'/{kind}/' in path), 'other')}"


@pytest.fixture
def far(seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Far]:
    opens = Opens()
    made, session = lance.LanceDataset.__init__, cast("Any", lance).Session

    def counted(self: Any, *args: Any, **named: Any) -> None:
        opens.datasets += 1
        made(self, *args, **named)

    def new_session(*args: Any, **named: Any) -> Any:
        opens.sessions += 1
        return session(*args, **named)

    uri = seaweedfs.new_uri("lake")
    with proxy_to(int(seaweedfs.endpoint.rpartition(":")[2])) as proxy:
        near = replace(seaweedfs, endpoint=f"http://127.0.0.1:{proxy.port}")
        lake = conroi.connect(uri, storage_options=near.options)
        lake.create_table("t", [{"id": i, "n": i} for i in range(ROWS)])
        lake["t"].to_arrow()  # whatever is opened once in the process is open
        monkeypatch.setattr(lance.LanceDataset, "__init__", counted)
        monkeypatch.setattr(lance, "Session", new_session)
        yield Far(proxy, lake, opens)


ONE = {
    # What one changing statement asks for besides opening the table. An update reads the fragment before it once more.
    "update": {"GET data": 2, "GET _deletions": 1, "PUT data": 1, "PUT _deletions": 1},
    "delete": {"GET data": 0, "GET _deletions": 0, "PUT _deletions": 1},
    "merge": {"GET data": 0, "GET _deletions": 0, "PUT data": 1, "PUT _deletions": 1},
    "append": {"PUT data": 1},
}
OPENING = {"HEAD _versions": 1, "HEAD data": 1, "GET data": 1}
"""Once for a table that is known to the process: the look of pylance at the base, and the base's own data."""


@pytest.mark.contract("W17", "W18")
@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.parametrize("is_stable", [False, True], ids=["addresses", "stable row ids"])
def test_twenty_changing_statements_open_one_dataset_on_the_wire(far: Far, name: str, is_stable: bool):
    """G9: 20 updates asked for 20 manifests, 210 data files over 207 connections, and made 19 cold sessions."""
    table = f"t_{is_stable}"
    far.lake.create_table(table, [{"id": i, "n": i} for i in range(ROWS)], stable_row_ids=is_stable)
    tx = far.lake.begin()
    tx[table].count_rows("n < 0")
    far.opens.datasets = far.opens.sessions = 0
    connections = far.proxy.connections
    asked = far.asked(lambda: [STATEMENTS[name](tx[table], number) for number in range(20)])
    allowed = {kind: 20 * ONE[name].get(kind, 0) + OPENING.get(kind, 0) for kind in ONE[name].keys() | OPENING.keys()}
    assert {kind: count for kind, count in asked.items() if count > allowed.get(kind, 0)} == {}
    assert asked["HEAD _versions"] <= 1
    assert far.opens.sessions <= 1
    assert far.proxy.connections - connections <= 6
    with far.lake.begin() as check:
        expected = sorted(_model(name, 20))
        assert sorted(_rows(check[table])) == sorted((i, i) for i in range(ROWS))
    assert sorted(_rows(tx[table])) == expected
    tx.commit()
    assert sorted(_rows(far.lake[table])) == expected


def _rows(table: Any) -> list[tuple[int, int]]:
    found = table.to_arrow()
    return list(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))


def _model(name: str, statements: int) -> list[tuple[int, int]]:
    rows = {i: i for i in range(ROWS)}
    for number in range(statements):
        if name == "update":
            rows[number] += 1
        elif name == "delete":
            del rows[number]
        elif name == "merge":
            rows |= {number: 9, 1000 + number: 9}
        else:
            rows[2000 + number] = number
    return list(rows.items())


@pytest.mark.contract("W17")
def test_control_the_instruments_see_a_dataset_for_each_statement(far: Far):
    """Outside a transaction every statement commits, so every next one is on another version."""
    before = far.opens.datasets
    asked = far.asked(lambda: [STATEMENTS["update"](far.lake["t"], number) for number in range(5)])
    assert far.opens.datasets - before >= 5
    assert asked["HEAD _versions"] >= 5


@pytest.mark.contract("W17")
def test_mixed_statements_see_each_other_through_one_session(far: Far):
    """Whatever pylance caches by version or fragment must not be taken for that of an earlier statement."""
    far.lake.create_table("m", [{"id": i, "n": 0} for i in range(10)], stable_row_ids=True)
    tx = far.lake.begin()
    table = tx["m"]
    model = dict.fromkeys(range(10), 0)
    for number in range(10):
        table.update({"n": f"n + {number}"}, where=f"id % 2 = {number % 2}")
        model = {key: value + number if key % 2 == number % 2 else value for key, value in model.items()}
        table.append([{"id": 100 + number, "n": number}])
        model[100 + number] = number
        table.delete(f"id = {number}")
        del model[number]
        assert dict(_rows(table)) == model
        ids = table.to_arrow(["id"], with_row_id=True)
        assert len(set(ids["_rowid"].to_pylist())) == len(model)
        taken = table.to_lance().take(list(range(len(model))), columns=["id", "n"])
        assert dict(zip(taken["id"].to_pylist(), taken["n"].to_pylist(), strict=True)) == model
    tx.commit()
    assert dict(_rows(far.lake["m"])) == model
