"""The tables of a lake's database, with faults at its statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from conroi.catalog.sql_publication import Outcome, RowPublication
from conroi.catalog.sql_tables import LakeTables
from conroi.testing import Fault, Request, Script
from conroi.testing.faults import Plan

T = TypeVar("T")


class FaultyTables:
    """Statements meet the faults of a plan. Their verbs are the methods' names, their paths the SQL or a name."""

    def __init__(self, inner: LakeTables, plan: Plan | Sequence[Fault] = ()) -> None:
        self.inner = inner
        self.plan: Plan = Script(plan) if isinstance(plan, Sequence) else plan
        self.hits: list[Request] = []

    @property
    def now_ns(self) -> str:
        return self.inner.now_ns

    def _around(self, request: Request, call: Callable[[], T]) -> T:
        fault = self.plan.choose(request)
        if fault is None:
            return call()
        self.hits.append(request)
        if fault.before is not None:
            fault.before(request)
        answer = call()
        if fault.after is not None:
            fault.after(request)
        return answer

    def ask(self, sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        return self._around(Request("ask", sql), lambda: self.inner.ask(sql, parameters))

    def add_lake(self, lake: str, root: str) -> None:
        self._around(Request("add_lake", root), lambda: self.inner.add_lake(lake, root))

    def move_lake(self, lake: str, old_root: str, new_root: str) -> bool:
        return self._around(Request("move_lake", new_root), lambda: self.inner.move_lake(lake, old_root, new_root))

    def remove_lake(self, lake: str, root: str) -> None:
        self._around(Request("remove_lake", root), lambda: self.inner.remove_lake(lake, root))

    def publish(self, lake: str, root: str, wanted: RowPublication) -> Outcome:
        request = Request("publish", str(wanted.base))
        return self._around(request, lambda: self.inner.publish(lake, root, wanted))

    def forget(self, lake: str, versions: Sequence[int]) -> None:
        self._around(Request("forget", lake), lambda: self.inner.forget(lake, versions))
