"""ClickHouse client over HTTP. The protocol is small enough to be implemented here, and any server version works."""

from __future__ import annotations

import http.client
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import cached_property
from urllib.parse import urlencode

from conroi.errors import StoreUnavailable
from conroi.export.engine import Value, is_question, refused, rows_of
from conroi.export.target import Target

ANSWER_WITHIN_S = 300.0
_FIRST_WITH_ARROW = 20
_OK = 200


class Server:
    """The server that a target is on."""

    is_shared = True

    def __init__(self, target: Target) -> None:
        self._target = target
        self.place: str = target.place

    @property
    def has_arrow(self) -> bool:
        return self._year >= _FIRST_WITH_ARROW

    @cached_property
    def _year(self) -> int:
        ((version,),) = self.ask("SELECT version()")
        return int(str(version).split(".")[0])

    def ask(self, statement: str) -> list[list[Value]]:
        asked = f"{statement} FORMAT JSONCompact" if is_question(statement) else statement
        return rows_of(self._post({}, asked.encode()))

    def send(self, statement: str, form: str, chunks: Iterable[bytes], query_id: str) -> None:
        settings = {"query": f"{statement} FORMAT {form}", "query_id": query_id}
        if self.has_arrow:
            settings["async_insert"] = "0"  # the answer comes when the rows are in, not when they are queued
        self._post(settings, chunks)

    def close(self) -> None:
        """Every request had a connection of its own."""

    def _post(self, settings: Mapping[str, str], body: bytes | Iterable[bytes]) -> str:
        connection = self._connection()
        try:
            # http.client sends a stream of unknown length in chunks.
            connection.request("POST", f"/?{urlencode({**self._target.settings, **settings})}", body, self._headers)
            response = connection.getresponse()
            answer = response.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise self._unavailable(error) from None
        finally:
            connection.close()
        # Servers may find an error after they began to answer 200.
        if response.status != _OK or answer.startswith("Code: ") or "\nCode: " in answer[-1000:]:
            raise refused(self.place, answer)
        return answer

    def _connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._target.scheme == "https" else http.client.HTTPConnection
        return kind(self._target.host, self._target.port, timeout=ANSWER_WITHIN_S)

    @cached_property
    def _headers(self) -> dict[str, str]:
        if self._target.user is None:
            return {}
        pair = f"{self._target.user}:{self._target.password or ''}"
        return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(
            f"ClickHouse at {self.place} could not be asked: {type(error).__name__}: {error}",
            hint="Check host and port, and that the server runs; it may pass.",
        )
