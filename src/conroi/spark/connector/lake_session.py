"""State of the helper: the lake, snapshots by execution of Spark, and open transactions by their ids."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

from conroi.errors import AlreadyExistsError, ClosedError, CorruptionError, InvalidInputError
from conroi.format.json import parse_object
from conroi.lake import Lake
from conroi.lake_snapshot import LakeSnapshot
from conroi.opening import connect
from conroi.spark.options import refuse_shown
from conroi.transaction import Isolation, Transaction

MOST_EXECUTIONS = 64
"""Executions whose snapshot is remembered."""
MOST_TRANSACTIONS = 256
"""Open transactions; beyond, the oldest is rolled back: a statement that was only explained never ends its own."""

_KNOWN = {
    *("uri", "store", "secretstore", "storevariable", "branch"),
    *("storageoptions", "secretstorageoptions", "storageoptionsvariable"),
    *("isolation", "python", "pythonpath", "bytespertask", "allowbases", "create"),
}


def opened_lake(settings: Mapping[str, str]) -> Lake:
    """The lake that the settings of a catalog name. Credentials come by reference, or under a name Spark redacts."""
    given = {name.lower(): value for name, value in settings.items()}
    unknown = sorted(set(given) - _KNOWN)
    if unknown:
        raise InvalidInputError(
            f"Unknown setting {', '.join(unknown)} of the catalog.", hint=f"It knows {', '.join(sorted(_KNOWN))}."
        )
    if not given.get("uri"):
        raise InvalidInputError("The catalog has no uri.", hint="Set spark.sql.catalog.NAME.uri to the lake's path.")
    refuse_shown(given.get("store"), given.get("storageoptions"))
    return connect(
        given["uri"],
        store=_by_reference(given, "storevariable") or given.get("store") or given.get("secretstore"),
        storage_options=_storage_options(given),
        branch=given.get("branch"),
        allow_bases=given["allowbases"].split(",") if "allowbases" in given else None,
        create=given.get("create", "true").lower() == "true",
    )


def _storage_options(given: Mapping[str, str]) -> dict[str, str] | None:
    named = _by_reference(given, "storageoptionsvariable")
    text = named or given.get("storageoptions") or given.get("secretstorageoptions")
    if text is None:
        return None
    try:
        return {str(name): str(value) for name, value in parse_object(text, "The storage options").items()}
    except CorruptionError:
        # The text is not repeated: it may hold credentials.
        raise InvalidInputError("The storage options are not JSON.", hint="Write them with json.dumps(…).") from None


def _by_reference(given: Mapping[str, str], setting: str) -> str | None:
    """The value of the environment variable that a setting names."""
    variable = given.get(setting)
    if variable is None:
        return None
    value = os.environ.get(variable)
    if value is None:
        raise InvalidInputError(
            f"The driver has no environment variable {variable}.", hint=f"Set it, or leave out {setting}."
        )
    return value


@dataclass(frozen=True)
class Replaced:
    """A table while REPLACE TABLE AS replaces it."""

    facts: dict[str, Any]
    """The table as the query of the statement still reads it."""
    kept_as: str
    """Its name in the transaction until the statement ends; a statement that fails gives it back."""


@dataclass
class RowCounts:
    """Rows that statements changed."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


class OpenTransaction:
    """One statement of Spark, or several: a transaction of the lake, and of the branches that it names."""

    def __init__(self, lake: Lake, isolation: Isolation, message: str | None, begun: Transaction | None = None) -> None:
        self._lake = lake
        self._isolation: Isolation = isolation
        self._message = message
        self._by_branch: dict[str | None, Transaction] = {None: begun or self._begun(None)}
        self.changed = RowCounts()
        """Rows that its statements changed."""
        self.writes: dict[str, Any] = {}
        """Planned writes, by their ids."""
        self.replaced: dict[str, Replaced] = {}
        """Tables that a statement is replacing, by name."""

    def _begun(self, branch: str | None) -> Transaction:
        return self._lake.begin(self._message, isolation=self._isolation, branch=branch)

    def on(self, branch: str | None) -> Transaction:
        """The transaction on a branch."""
        if branch not in self._by_branch:
            self._by_branch[branch] = self._begun(branch)
        return self._by_branch[branch]

    def commit(self) -> int:
        """Commit, and return the version of the lake. A statement changes the tables of one branch."""
        versions = [transaction.commit().version for transaction in self._by_branch.values()]
        return versions[0]

    def rollback(self) -> None:
        """Roll back what is still open."""
        for transaction in self._by_branch.values():
            with suppress(ClosedError):
                transaction.rollback()


class LakeSession:
    """One lake for the statements of a driver. Its methods may be called by several threads."""

    def __init__(self, catalog: str, lake: Lake, settings: Mapping[str, str]) -> None:
        self.catalog = catalog
        self.lake = lake
        self._isolation: Isolation = _isolation(settings)
        self._snapshots: OrderedDict[str, LakeSnapshot] = OrderedDict()
        self._transactions: OrderedDict[str, OpenTransaction] = OrderedDict()
        self._lock = threading.Lock()
        self.streams: dict[str, Any] = {}
        """Streaming queries that read a table, by their ids."""
        self.batches: dict[str, Any] = {}
        """Batches of streaming queries that are being written, by their ids."""

    # ------------------------------------------------------------------------ reading

    def snapshot(self, execution: str | None, branch: str | None = None) -> LakeSnapshot:
        """The lake for one execution: all its tables are read at one version."""
        lake = self.lake if branch is None else self.lake.branch(branch)
        if execution is None:
            return lake.current()
        key = f"{execution} {branch or ''}"
        with self._lock:
            found = self._snapshots.get(key)
        if found is None:
            found = lake.current()
        with self._lock:
            found = self._snapshots.setdefault(key, found)
            self._snapshots.move_to_end(key)
            while len(self._snapshots) > MOST_EXECUTIONS:
                self._snapshots.popitem(last=False)
        return found

    # ------------------------------------------------------------------------ transactions

    def begin(self, identity: str, message: str | None = None, isolation: Isolation | None = None) -> OpenTransaction:
        """Begin a transaction under this id."""
        begun = OpenTransaction(self.lake, isolation or self._isolation, message)
        with self._lock:
            if identity in self._transactions:
                raise AlreadyExistsError(
                    f"A transaction {identity!r} is open already.",
                    hint="Commit it or roll it back, or use another name.",
                )
            self._transactions[identity] = begun
            forgotten = len(self._transactions) > MOST_TRANSACTIONS
            oldest = self._transactions.popitem(last=False)[1] if forgotten else None
        if oldest is not None:
            oldest.rollback()
        return begun

    def join(self, identity: str, begun: Transaction) -> OpenTransaction:
        """Take part in a transaction that this process has begun, and that it will end."""
        joined = OpenTransaction(self.lake, self._isolation, None, begun)
        with self._lock:
            self._transactions[identity] = joined
        return joined

    def transaction(self, identity: str) -> OpenTransaction:
        """The open transaction of this id."""
        with self._lock:
            found = self._transactions.get(identity)
        if found is None:
            raise ClosedError(
                "The transaction is not open: it has ended, or its helper process was started again.",
                hint="Run the statement again.",
            )
        return found

    def commit(self, identity: str) -> int:
        """Commit the transaction, and return the version of the lake; afterwards it is closed in any case."""
        return self._taken(identity).commit()

    def rollback(self, identity: str) -> None:
        """Roll back the transaction, if it is open."""
        with suppress(ClosedError):
            self._taken(identity).rollback()

    def _taken(self, identity: str) -> OpenTransaction:
        found = self.transaction(identity)
        with self._lock:
            self._transactions.pop(identity, None)
        return found

    @contextmanager
    def changing(self, identity: str | None, message: str, branch: str | None = None) -> Generator[Transaction]:
        """The transaction of this id; without one, a transaction for this change alone."""
        if identity is not None:
            yield self.transaction(identity).on(branch)
            return
        with self.lake.begin(message, branch=branch) as transaction:
            yield transaction


def _isolation(settings: Mapping[str, str]) -> Isolation:
    given = {name.lower(): value for name, value in settings.items()}
    return cast("Isolation", given.get("isolation", "snapshot").lower())
