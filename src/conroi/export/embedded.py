"""Embedded ClickHouse: chdb in this process, on a folder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from conroi.errors import StoreUnavailable, UnsupportedError
from conroi.export.engine import Value, is_question, refused, rows_of
from conroi.export.target import Target


class Embedded:
    """chdb on the target's folder, which no other process can have open at the same time."""

    is_shared = False
    has_arrow = True

    def __init__(self, target: Target) -> None:
        self.place: str = target.place
        chdb = _chdb()
        try:
            self._connection: Any = chdb.connect(target.folder)
        except Exception as error:  # noqa: BLE001 (chdb has one kind for everything)
            raise StoreUnavailable(
                f"chdb could not open {self.place}: {str(error)[:200]}",
                hint="One process at a time can have the folder open, and a process can have one folder open.",
            ) from None

    def ask(self, statement: str) -> list[list[Value]]:
        try:
            answer = self._connection.query(statement, "JSONCompact")
        except Exception as error:  # noqa: BLE001
            raise refused(self.place, str(error)) from None
        return rows_of(str(answer)) if is_question(statement) else []

    def send(self, statement: str, form: str, chunks: Iterable[bytes], query_id: str) -> None:  # noqa: ARG002
        # It has no id: it ends with this process, so no other export ever waits for it.
        with self._begun(statement, form) as stream:
            for chunk in chunks:
                self._said(stream.append, chunk)
            self._said(stream.finish)

    def _begun(self, statement: str, form: str) -> Any:
        return self._said(self._connection.send_insert, statement, form)

    def _said(self, act: Any, *given: object) -> Any:
        try:
            return act(*given)
        except RuntimeError as error:
            raise refused(self.place, str(error)) from None

    def close(self) -> None:
        self._connection.close()


def _chdb() -> Any:
    try:
        import chdb
    except ImportError:
        raise UnsupportedError(
            "An export to chdb:// needs the package chdb, which is not installed.", hint="Install it: pip install chdb."
        ) from None
    return chdb
