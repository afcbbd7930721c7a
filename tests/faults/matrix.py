"""One fault at every request of a statement, and an oracle of what must hold afterwards.

Run as a program for the full matrix: `python -m tests.faults.matrix --help`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import tempfile
import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import conroi
from tests.support import databases, servers
from tests.support.http_faults import KINDS, HttpFaults, http_faults

SUBJECTS = ("table", "table in sqlite", "table in postgresql", "lake", "lake in sqlite", "lake in postgresql")
STATEMENTS = ("append", "transaction", "merge", "create")
LONGEST = 60
"""More requests than any of these statements makes."""


@dataclass
class Place:
    """Where a subject is: straight, for the oracle, and through the proxy, for the writer."""

    uri: str
    straight: dict[str, str]
    through: dict[str, str]
    store: str | None


class OneTable:
    """A single table, maybe under a store."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.table = conroi.create_table(place.uri, base_rows(), storage_options=place.straight, store=place.store)
        self.table = conroi.open_table(place.uri, storage_options=place.through, store=place.store)

    def do(self, statement: str, number: int) -> None:
        if statement == "append":
            self.table = self.table.append(rows_of(number))
        elif statement == "transaction":
            with self.table.latest().begin() as tx:
                tx.append(rows_of(number))
                tx.append(rows_of(-number))
        elif statement == "merge":
            merge(self.table, number)
        else:
            conroi.create_table(
                self._created(number), rows_of(number), storage_options=self._place.through, store=self._place.store
            )

    def _created(self, number: int) -> str:
        return self._place.uri.replace(".lance", f"-{number}.lance")

    def settle(self) -> None:
        """Nothing goes on in the background."""

    def seen(self, statement: str, number: int) -> list[int]:
        """How often what the statement does is there: once for each of its effects."""
        if statement == "create":
            try:
                made = conroi.open_table(
                    self._created(number), storage_options=self._place.straight, store=self._place.store
                )
            except conroi.NotFoundError:
                return [0]
            return [ids(made).count(number)]
        found = self._open()
        return counts(statement, number, ids(found), ids(found), found)

    def _open(self) -> conroi.Table:
        return conroi.open_table(self._place.uri, storage_options=self._place.straight, store=self._place.store)

    def is_healthy(self) -> bool:
        return self._open().doctor().is_healthy


class OneLake:
    """A lake of two tables, maybe with its history in a database."""

    def __init__(self, place: Place) -> None:
        self._place = place
        with self._open().begin() as tx:
            for name in "tu":
                tx.create_table(name, base_rows())
        self.lake = conroi.connect(place.uri, storage_options=place.through, store=place.store)
        self.lake["t"].count_rows()

    def do(self, statement: str, number: int) -> None:
        if statement == "append":
            self.lake["t"].append(rows_of(number))
        elif statement == "transaction":
            with self.lake.begin() as tx:
                tx["t"].append(rows_of(number))
                tx["u"].append(rows_of(-number))
        elif statement == "merge":
            merge(self.lake["t"], number)
        else:
            self.lake.create_table(f"c{number}", rows_of(number))

    def settle(self) -> None:
        for running in list(self.lake.catalog.finalizing.values()):
            with contextlib.suppress(conroi.ConroiError):
                running.result()

    def seen(self, statement: str, number: int) -> list[int]:
        lake = self._open()
        if statement == "create":
            return [ids(lake[f"c{number}"]).count(number) if f"c{number}" in lake.tables() else 0]
        return counts(statement, number, ids(lake["t"]), ids(lake["u"]), lake["t"])

    def _open(self) -> conroi.Lake:
        return conroi.connect(self._place.uri, storage_options=self._place.straight, store=self._place.store)

    def is_healthy(self) -> bool:
        return self._open().doctor().is_healthy


def base_rows() -> pa.Table:
    return pa.table({"id": [0], "v": [0]})


def rows_of(number: int) -> pa.Table:
    return pa.table({"id": [number], "v": [number]})


def merge(table: conroi.Table, number: int) -> None:
    """The row of this number comes in, and row 0 gets its value."""
    rows = pa.table({"id": [0, number], "v": [number, number]})
    table.merge(rows, on="id").when_matched_update_all().when_not_matched_insert_all().execute()


def ids(table: conroi.Table) -> list[int]:
    found: list[Any] = table.to_arrow()["id"].to_pylist()
    return found


def counts(statement: str, number: int, first: list[int], second: list[int], table: conroi.Table) -> list[int]:
    """What is there of a statement's effects."""
    if statement == "transaction":
        return [first.count(number), second.count(-number)]
    if statement == "merge":
        value = table.to_arrow(filter="id = 0")["v"].to_pylist()
        return [first.count(number), int(value == [number])]
    return [first.count(number)]


@dataclass
class Tally:
    """What was seen."""

    cases: int = 0
    outcomes: collections.Counter[str] = field(default_factory=lambda: collections.Counter[str]())
    by_kind: collections.Counter[str] = field(default_factory=lambda: collections.Counter[str]())
    anomalies: list[str] = field(default_factory=lambda: list[str]())


class Matrix:
    """One subject and one statement: a fault at each request."""

    def __init__(self, subject: OneTable | OneLake, statement: str, proxy: HttpFaults, tally: Tally) -> None:
        self._subject, self._statement, self._proxy, self._tally = subject, statement, proxy, tally
        self._number = 1000

    def run(self, kind: str, step: int = 1, first: int = 1) -> None:
        """The fault at every `step`-th request; the statement itself says how many there are."""
        for request in range(first, LONGEST, step):
            if not self._case(kind, request):
                break
        self._check(self._subject.is_healthy(), kind, 0, "doctor finds something")

    def _case(self, kind: str, request: int) -> bool:
        """Whether the statement made as many requests."""
        self._number += 2
        number = self._number
        self._subject.settle()
        self._proxy.arm(request, kind)
        outcome = outcome_of(lambda: self._subject.do(self._statement, number))
        self._subject.settle()
        self._proxy.disarm()
        if self._proxy.hit is None:
            self._check(outcome == "acknowledged", kind, request, f"without a fault: {outcome}")
            return False
        self._tally.cases += 1
        self._tally.outcomes[outcome.partition(":")[0]] += 1
        self._tally.by_kind[kind] += 1
        self._judge(kind, request, outcome, self._subject.seen(self._statement, number))
        again = outcome_of(lambda: self._subject.do(self._statement, number + 1))
        self._subject.settle()
        self._check(again == "acknowledged", kind, request, f"the next commit: {again}")
        self._judge(kind, request, again, self._subject.seen(self._statement, number + 1))
        return True

    def _judge(self, kind: str, request: int, outcome: str, seen: list[int]) -> None:
        said = outcome.partition(":")[0]
        is_whole = set(seen) == {1} or set(seen) == {0}
        if said == "acknowledged":
            self._check(set(seen) == {1}, kind, request, f"acknowledged, but there: {seen}")
        elif said == "unknown":
            self._check(is_whole, kind, request, f"unknown, and there: {seen}")
        elif said == "refused":
            self._check(set(seen) == {0}, kind, request, f"{outcome}, but there: {seen}")
        else:
            self._check(False, kind, request, outcome)

    def _check(self, holds: bool, kind: str, request: int, what: str) -> None:
        if not holds:
            name = type(self._subject).__name__
            at = f"{name} {self._statement} {kind!r} at request {request} ({self._proxy.hit})"
            self._tally.anomalies.append(f"{at}: {what}")


def outcome_of(work: Callable[[], object]) -> str:
    try:
        work()
    except conroi.CommitStateUnknown as error:
        return f"unknown: {error.message}"
    except conroi.ConroiError as error:
        return f"refused: {type(error).__name__}: {error.message}"
    except Exception as error:  # noqa: BLE001  # that is what it looks for
        return f"untyped: {type(error).__name__}: {error}"
    return "acknowledged"


def place_of(subject: str, server: servers.S3Server, proxy: HttpFaults, store: str | None) -> Place:
    name = f"{uuid.uuid4().hex[:8]}.lance" if subject.startswith("table") else uuid.uuid4().hex[:8]
    through = {**server.options, "aws_endpoint": f"http://127.0.0.1:{proxy.port}"}
    return Place(f"s3://{server.bucket}/faults/{name}", server.options, through, store)


def subject_at(subject: str, place: Place) -> OneTable | OneLake:
    return OneTable(place) if subject.startswith("table") else OneLake(place)


@contextlib.contextmanager
def _stores() -> Generator[Callable[[str], str | None]]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server: list[databases.PostgresServer] = []

        def store_of(subject: str) -> str | None:
            if subject.endswith("sqlite"):
                return f"sqlite:///{folder}/{uuid.uuid4().hex[:8]}.db"
            if subject.endswith("postgresql"):
                if not server:
                    server.append(stack.enter_context(databases.postgres()))
                return server[0].new_address()
            return None

        yield store_of


def main() -> None:
    parser = argparse.ArgumentParser(description="One fault at every request of a statement, for each kind of fault.")
    parser.add_argument("--subjects", nargs="*", default=SUBJECTS)
    parser.add_argument("--statements", nargs="*", default=STATEMENTS)
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, servers.seaweedfs(Path(folder)) as server, _stores() as store_of:
        port = int(server.endpoint.rpartition(":")[2])
        for subject in given.subjects:
            for statement in given.statements:
                tally = Tally()
                with http_faults(port) as proxy:
                    there = subject_at(subject, place_of(subject, server, proxy, store_of(subject)))
                    matrix = Matrix(there, statement, proxy, tally)
                    for kind in given.kinds:
                        matrix.run(kind)
                told: dict[str, object] = {"subject": subject, "statement": statement, "cases": tally.cases}
                told |= {"outcomes": dict(tally.outcomes), "kinds": dict(tally.by_kind), "anomalies": tally.anomalies}
                print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
