"""The helper process of the driver: answers the requests of the catalog, and holds its transactions."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from conroi.errors import ConroiError, InvalidInputError
from conroi.spark.connector import (
    definitions,
    jar,
    join_plans,
    metadata_tables,
    procedures,
    scans,
    search,
    streams,
    writes,
)
from conroi.spark.connector.errors import facts_of
from conroi.spark.connector.lake_session import LakeSession, opened_lake
from conroi.spark.connector.wire import Frames, private_stdio
from conroi.storage.parallel import Pool

_log = logging.getLogger(__name__)
_REQUESTS = Pool("conroi-helper", 16)

Request = dict[str, Any]
Answer = dict[str, Any]

PLANNING: dict[str, Callable[[Request], Answer]] = {
    "filters": scans.filters,
    "scan_filters": scans.scan_filters,
    "runtime_filters": scans.runtime_filters,
    "top": scans.top,
    "aggregates": scans.aggregates,
    "join": join_plans.join,
    "plan": scans.plan,
    "plan_search": search.plan,
}
"""Requests about a version that they bring along: they need no lake."""

_AT_ONCE = {"open", "filters", "scan_filters", "runtime_filters", "top", "aggregates", "join"}
"""Requests that are answered before the next one is received: another thread would only take longer."""

HANDLERS: dict[str, Callable[[LakeSession, Request], Answer]] = {
    "load": metadata_tables.load,
    "metadata_rows": metadata_tables.rows,
    "procedure": procedures.load,
    "procedures": procedures.names,
    "call": procedures.call,
    "tables": definitions.tables,
    "namespaces": definitions.namespaces,
    "namespace": definitions.namespace,
    "create_namespace": definitions.create_namespace,
    "alter_namespace": definitions.alter_namespace,
    "drop_namespace": definitions.drop_namespace,
    "create": definitions.create,
    "stage": definitions.stage,
    "end_stage": definitions.end_stage,
    "alter": definitions.alter,
    "rename": definitions.rename,
    "drop": definitions.drop,
    "begin": writes.begin,
    "commit": writes.commit,
    "rollback": writes.rollback,
    "reload": writes.reload,
    "plan_write": writes.plan_write,
    "stage_write": writes.stage_write,
    "delete": writes.delete,
    "begin_stream": streams.begin_stream,
    "next_offset": streams.next_offset,
    "newest_version": streams.newest_version,
    "plan_batch": streams.plan_batch,
    "end_batch": streams.end_batch,
    "end_stream": streams.end_stream,
    "plan_batch_write": streams.plan_batch_write,
    "add_batch_parts": streams.add_batch_parts,
    "commit_batch": streams.commit_batch,
    "abort_batch": streams.abort_batch,
}

FRAGMENTS: dict[str, Callable[[writes.FragmentWrite, Request], Answer]] = {
    "plan_fragments": writes.plan_fragments,
    "add_fragments": writes.add_fragments,
}
"""Requests of a job that only writes files."""


def check_sources(compiled: str) -> None:
    """InvalidInputError if the jar was compiled from other sources than these."""
    if jar.sources() and compiled != jar.fingerprint():  # an archive that was shipped has no Scala
        raise InvalidInputError(
            "The jar of the Spark session is of another version of conroi than the Python package of its driver.",
            hint="Use conroi.spark.session(lake=…), or the jar that conroi.spark.connector.configuration finds.",
        )


class Sessions(Protocol):
    """Where requests find their lake."""

    def open(self, request: Request) -> None:
        """The first request of a catalog."""
        ...

    def of(self, request: Request) -> LakeSession:
        """The lake of a request, with the transactions that are open."""
        ...

    def pin(self, text: str) -> str:
        """The version that a request brings along, with all that workers need."""
        ...

    def fragments(self, request: Request) -> writes.FragmentWrite:
        """The write of a verb that a request is about."""
        ...


class OneLake:
    """The lake of a helper process."""

    def __init__(self) -> None:
        self._session: LakeSession | None = None

    def open(self, request: Request) -> None:
        self._session = LakeSession(request["catalog"], opened_lake(request["settings"]), request["settings"])

    def of(self, request: Request) -> LakeSession:
        del request
        assert self._session is not None, "the first request opens the lake"
        return self._session

    def pin(self, text: str) -> str:
        return text

    def fragments(self, request: Request) -> writes.FragmentWrite:
        raise InvalidInputError(
            f"There is no write {request['write']}.", hint="Verbs are executed by the process that has the table."
        )


class Helper:
    """Serves one connection; requests are answered as they are done, in any order."""

    def __init__(self, frames: Frames, sessions: Sessions) -> None:
        self._frames = frames
        self._sessions = sessions

    def run(self) -> None:
        """Serve until the driver ends."""
        while (message := self._frames.receive()) is not None:
            request, data = message
            if request["op"] in _AT_ONCE:
                self._answer(request, data)
            else:
                _REQUESTS.start(partial(self._answer, request, data))

    def _answer(self, request: Request, data: bytes) -> None:
        try:
            answer = self._done(request, data)
        except ConroiError as error:
            answer = {"error": facts_of(error)}
        except Exception as error:  # noqa: BLE001 (it is raised where the request came from)
            _log.error("%s failed: %s", request["op"], traceback.format_exc())
            answer = {"error": facts_of(error)}
        with suppress(OSError):  # the driver has ended, or closed the connection
            self._frames.send({**answer, "id": request["id"]})

    def _done(self, request: Request, data: bytes) -> Answer:
        name = request["op"]
        if name == "open":
            check_sources(str(request.get("sources")))
            self._sessions.open(request)
            return {}
        for pinned in (request, *request.get("others", ())):
            if "pin" in pinned:
                pinned["pin"] = self._sessions.pin(pinned["pin"])
        if name in PLANNING:
            return PLANNING[name](request)
        if name in FRAGMENTS:
            return FRAGMENTS[name](self._sessions.fragments(request), request)
        session = self._sessions.of(request)
        if name == "add_parts":
            return writes.add_parts(session, request, data)
        handler = HANDLERS.get(name)
        if handler is None:
            raise InvalidInputError(
                f"The helper has no request {name!r}.", hint="The jar is of another version of conroi."
            )
        return handler(session, request)


if __name__ == "__main__":
    Helper(private_stdio(), OneLake()).run()
