"""The options of `format("conroi")`, read once."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, cast

from conroi.errors import InvalidInputError
from conroi.spark.pins import PinnedVersion
from conroi.spark.scanning import Scan, Wanted, checked_filter
from conroi.spark.sizes import BYTES_PER_TASK

if TYPE_CHECKING:
    from conroi.lake import Lake
    from conroi.stores.putters import Put
    from conroi.table import Table

PATH, TABLE, STORE, STORAGE, BRANCH, PUT = "path", "table", "store", "storageOptions", "branch", "put"
VERSION, TAG, AS_OF = "version", "tag", "asOf"
FILTER, COLUMNS, BYTES, FOLLOW = "filter", "columns", "bytesPerTask", "follow"
WHERE, MESSAGE, KEY, IF_MOVED = "where", "message", "key", "ifMoved"
START, SKIP_CHANGES = "startingVersion", "skipChanges"
MOST_ROWS, MOST_VERSIONS = "maxRowsPerTrigger", "maxVersionsPerTrigger"
CHECKPOINT = "checkpointLocation"
PIN = "conroi.pin"
"""A version that was chosen already, as `to_spark` gives it."""

_OF_PLACE = {PATH, TABLE, STORE, STORAGE, BRANCH, PUT, PIN}
_OF_READING = {VERSION, TAG, AS_OF, FILTER, COLUMNS, BYTES, FOLLOW}
_OF_WRITING = {WHERE, MESSAGE, KEY, IF_MOVED}
OF_STREAMS = {START, SKIP_CHANGES, MOST_ROWS, MOST_VERSIONS}
KNOWN = _OF_PLACE | _OF_READING | _OF_WRITING | OF_STREAMS | {CHECKPOINT}


class Options:
    """What was given; names ignore case, as always in Spark."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        if "provider" in self._given:  # so Spark calls us for CREATE TABLE and saveAsTable
            raise InvalidInputError(
                "Spark's own catalog cannot hold tables of conroi: it would forget their path.",
                hint="Write CREATE TEMPORARY VIEW … USING conroi OPTIONS (path '…'), or df.write….save(path).",
            )
        if "commitlock" in self._given or "commit_lock" in self._given:
            raise InvalidInputError(
                "A commit lock is an object of this process, which an option of Spark cannot carry.",
                hint="Use conroi.open_table(path, commit_lock=…).append(dataframe), or a store.",
            )
        unknown = sorted(set(self._given) - {name.lower() for name in KNOWN})
        if unknown:
            known = ", ".join(sorted(KNOWN - {PIN, CHECKPOINT}))
            raise InvalidInputError(f"conroi knows no option {', '.join(unknown)}.", hint=f"It knows {known}.")

    def get(self, name: str) -> str | None:
        """The value, None if it was not given."""
        return self._given.get(name.lower())

    @property
    def path(self) -> str:
        """Where the table is, or the lake."""
        path = self.get(PATH)
        if not path:
            raise InvalidInputError(
                "No path was given to conroi.",
                hint="Give it to load() or save(), or as OPTIONS (path '…').",
            )
        # Spark writes local paths as URIs, in a form of its own.
        return path.removeprefix("file:") if path.startswith("file:/") and not path.startswith("file://") else path

    @property
    def storage_options(self) -> dict[str, str] | None:
        """Settings and credentials of the storage."""
        text = self.get(STORAGE)
        return None if text is None else cast("dict[str, str]", _json(STORAGE, text))

    @property
    def put(self) -> Put:
        """How a version gets its final name."""
        return cast("Put", self.get(PUT) or "conditional")

    @property
    def key(self) -> list[str] | None:
        """The columns that tell the rows of a new table apart."""
        text = self.get(KEY)
        return None if text is None else [name.strip() for name in text.split(",")]

    # ------------------------------------------------------------------------ which table

    def lake(self) -> Lake:
        """The lake, if `table` names a table in one."""
        from conroi.lake import connect

        if self.put != "conditional":
            raise InvalidInputError(
                "A lake commits for its tables, and has no other put.", table=self.path, hint="Leave out put."
            )
        return connect(self.path, store=self.get(STORE), storage_options=self.storage_options, branch=self.get(BRANCH))

    def head(self) -> Table:
        """The table at its newest version."""
        from conroi.opening import open_table

        name = self.get(TABLE)
        if name is not None:
            return self.lake()[name]
        return open_table(
            self.path,
            store=self.get(STORE),
            storage_options=self.storage_options,
            branch=self.get(BRANCH),
            put=self.put,
        )

    def table(self) -> Table:
        """The table at the version that is asked for; in a lake, at that version of the lake."""
        version, tag, as_of = self._version(), self.get(TAG), self.get(AS_OF)
        if version is None and tag is None and as_of is None:
            return self.head()
        name = self.get(TABLE)
        if name is not None:
            return self.lake().at(version, tag=tag, as_of=as_of)[name]
        return self.head().at(version, tag=tag, as_of=as_of)

    def _version(self) -> int | None:
        text = self.get(VERSION)
        if text is None or text.isdecimal():
            return None if text is None else int(text)
        raise InvalidInputError(f"version={text!r} is not a number.", hint="Versions count from 1.")

    @property
    def follows(self) -> bool:
        """Whether every query looks up the newest version, instead of all staying at the first."""
        return self.flag(FOLLOW)

    def flag(self, name: str) -> bool:
        """A yes or no; no if it was not given."""
        text = (self.get(name) or "false").lower()
        if text not in ("true", "false"):
            raise InvalidInputError(f"{name}={text!r} is neither true nor false.", hint='Give "true" or "false".')
        return text == "true"

    def count(self, name: str) -> int | None:
        """How many, at least 1; None if it was not given."""
        text = self.get(name)
        if text is not None and not (text.isdecimal() and int(text)):
            raise InvalidInputError(f"{name}={text!r} is not a number above 0.", hint="Leave it out for no limit.")
        return None if text is None else int(text)

    def refuse(self, names: Collection[str], purpose: str, hint: str) -> None:
        """InvalidInputError if one of these was given."""
        given = sorted(name for name in names if self.get(name) is not None)
        if given:
            raise InvalidInputError(f"{', '.join(given)} cannot be given to {purpose}.", hint=hint)

    # ------------------------------------------------------------------------ what of it

    def scan(self) -> Scan:
        """What to read."""
        pin = self.get(PIN)
        version = PinnedVersion.of(self.table().pinned) if pin is None else PinnedVersion.from_text(pin)
        columns = self.get(COLUMNS)
        wanted = None if columns is None else cast("Wanted", _json(COLUMNS, columns))
        size = self.get(BYTES) or str(BYTES_PER_TASK)
        if not size.isdecimal() or not int(size):
            raise InvalidInputError(f"{BYTES}={size!r} is not a number of bytes.", hint="Such as 67108864.")
        return Scan(version, wanted, checked_filter(self.get(FILTER), version.place.uri), int(size))


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        # The text is not repeated: it may hold credentials.
        raise InvalidInputError(f"The option {name} is not JSON.", hint="Write it with json.dumps(…).") from None
