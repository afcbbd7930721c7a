"""The helper process of the driver: answers the requests of the catalog, and holds its transactions."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

from conroi.errors import ConroiError, InvalidInputError
from conroi.spark.connector import definitions, jar, metadata_tables, procedures, scans, search, writes
from conroi.spark.connector.errors import facts_of
from conroi.spark.connector.lake_session import LakeSession
from conroi.spark.connector.wire import Frames, private_stdio
from conroi.storage.parallel import Pool

_log = logging.getLogger(__name__)
_REQUESTS = Pool("conroi-helper", 16)

Handler = Callable[[LakeSession, dict[str, Any]], dict[str, Any]]

HANDLERS: dict[str, Handler] = {
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
    "filters": scans.filters,
    "scan_filters": scans.scan_filters,
    "runtime_filters": scans.runtime_filters,
    "top": scans.top,
    "aggregates": scans.aggregates,
    "plan": scans.plan,
    "plan_search": search.plan,
    "begin": writes.begin,
    "commit": writes.commit,
    "rollback": writes.rollback,
    "reload": writes.reload,
    "plan_write": writes.plan_write,
    "stage_write": writes.stage_write,
    "delete": writes.delete,
}


def check_sources(compiled: str) -> None:
    """InvalidInputError if the jar was compiled from other sources than these."""
    if jar.sources() and compiled != jar.fingerprint():  # an archive that was shipped has no Scala
        raise InvalidInputError(
            "The jar of the Spark session is of another version of conroi than the Python package of its driver.",
            hint="Use conroi.spark.session(lake=…), or the jar that conroi.spark.connector.configuration finds.",
        )


class Helper:
    """One lake; requests are answered as they are done, in any order."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._session: LakeSession | None = None

    def run(self) -> None:
        """Serve until the driver ends."""
        while (message := self._frames.receive()) is not None:
            request, data = message
            if request["op"] == "open":
                self._answer(request, data)
            else:
                _REQUESTS.start(partial(self._answer, request, data))

    def _answer(self, request: dict[str, Any], data: bytes) -> None:
        try:
            answer = self._done(request, data)
        except ConroiError as error:
            answer = {"error": facts_of(error)}
        except Exception as error:  # noqa: BLE001 (it is raised where the request came from)
            _log.error("%s failed: %s", request["op"], traceback.format_exc())
            answer = {"error": facts_of(error)}
        self._frames.send({**answer, "id": request["id"]})

    def _done(self, request: dict[str, Any], data: bytes) -> dict[str, Any]:
        if request["op"] == "open":
            check_sources(str(request.get("sources")))
            self._session = LakeSession(request["catalog"], request["settings"])
            return {}
        assert self._session is not None, "the first request opens the lake"
        if request["op"] == "add_parts":
            return writes.add_parts(self._session, request, data)
        handler = HANDLERS.get(request["op"])
        if handler is None:
            raise InvalidInputError(
                f"The helper has no request {request['op']!r}.", hint="The jar is of another version of conroi."
            )
        return handler(self._session, request)


if __name__ == "__main__":
    Helper(private_stdio()).run()
