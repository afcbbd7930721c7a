"""Wrapper of a `RecordStore` through which every request passes in one place, with variants that count and fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from conroi.storage.objects import Objects
from conroi.testing.faults import Fault, Plan, Script
from conroi.testing.instruments import Request
from conroi.versions.records import Record, RecordStore, RecordTaken

T = TypeVar("T")


class WrappedRecords:
    """Hands everything on to `inner`; a subclass overrides `around` to see, delay or refuse requests."""

    def __init__(self, inner: RecordStore) -> None:
        self.inner = inner

    def around(self, request: Request, call: Callable[[], T]) -> T:  # noqa: ARG002  # for subclasses
        """Do the request; its path is the table's name in the store."""
        return call()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    def key_of(self, objects: Objects) -> str:
        return self.inner.key_of(objects)

    def put_if_absent(self, records: Sequence[Record], expected: Mapping[str, int] | None = None) -> None:
        tables = ",".join(record.table for record in records)
        self.around(Request("put_if_absent", tables), lambda: self.inner.put_if_absent(records, expected))

    def newest(self, table: str) -> Record | None:
        return self.around(Request("newest", table), lambda: self.inner.newest(table))

    def get(self, table: str, version: int) -> Record | None:
        return self.around(Request("get", table), lambda: self.inner.get(table, version))

    def all(self, table: str) -> list[Record]:
        return self.around(Request("all", table), lambda: self.inner.all(table))

    def point(self, table: str, version: int, path: str, size: int) -> bool:
        return self.around(Request("point", table), lambda: self.inner.point(table, version, path, size))

    def forget(self, table: str, versions: Sequence[int]) -> None:
        self.around(Request("forget", table), lambda: self.inner.forget(table, versions))

    def close(self) -> None:
        self.inner.close()


class FaultyRecords(WrappedRecords):
    """Requests meet the faults of a plan, as with FaultyObjects; `requests` lists all of them, `hits` those that did.

    >>> from conroi.versions.sql_records import SqliteRecords
    >>> from conroi.testing import lose_answer
    >>> import tempfile
    >>> faulty = FaultyRecords(SqliteRecords(tempfile.mkdtemp() + "/records.db"), [lose_answer("put_if_absent")])
    >>> faulty.put_if_absent([Record("orders", 1, "_versions/1.manifest", 100)])
    Traceback (most recent call last):
    conroi.errors.StoreUnavailable: The answer to put_if_absent orders was lost (injected)
    >>> faulty.newest("orders").version
    1
    """

    def __init__(self, inner: RecordStore, plan: Plan | Sequence[Fault] = ()) -> None:
        super().__init__(inner)
        self.plan: Plan = Script(plan) if isinstance(plan, Sequence) else plan
        self.requests: list[Request] = []
        self.hits: list[Request] = []

    def around(self, request: Request, call: Callable[[], T]) -> T:
        self.requests.append(request)
        fault = self.plan.choose(request)
        if fault is None:
            return call()
        self.hits.append(request)
        if fault.before is not None:
            fault.before(request)
        try:
            answer = call()
        except RecordTaken:
            if fault.after is not None:
                fault.after(request)  # an answer like any other, and it can get lost like any other
            raise
        if fault.after is not None:
            fault.after(request)
        return answer
