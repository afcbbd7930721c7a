"""Options of `format("conroi")`, read once, and redaction of credentials in plans, event logs and the UI."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from conroi.errors import CorruptionError, InvalidInputError, NotFoundError
from conroi.format.json import parse_json
from conroi.spark.pins import PinnedVersion
from conroi.spark.scan import BYTES_PER_TASK, Scan, Wanted, checked_filter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conroi.lake import Lake
    from conroi.table import Table
    from conroi.versions.folder import Put


OPTIONS_PATTERN, TEXT_PATTERN = "spark.sql.redaction.options.regex", "spark.sql.redaction.string.regex"
OURS = "^(?i:store|storeUrl|storageOptions|secretStorageOptions|conroi[.]secretPin)$"
"""Options of ours that may hold credentials."""
PASSWORDS = "(?<=://[^:/@\\s]{1,64}:)[^@/\\s]{1,256}(?=@)"
"""Passwords in addresses, for the text of plans and statements."""
BY_DEFAULT = re.compile("(?i)secret|password|token|access[.]?key")
"""`spark.redaction.regex` as Spark has it: an option whose name or value matches is redacted."""


def redact(spark: SparkSession) -> None:
    """Add our patterns to those of a session. What it redacts already stays redacted."""
    _add(spark, OPTIONS_PATTERN, OURS, "(?i)url")
    _add(spark, TEXT_PATTERN, PASSWORDS, None)


def _add(spark: SparkSession, name: str, pattern: str, by_default: str | None) -> None:
    known = spark.conf.get(name, None) or by_default
    if known is None:
        spark.conf.set(name, pattern)
    elif pattern not in known:
        spark.conf.set(name, f"(?:{known})|{pattern}")


def refuse_shown(store: str | None, storage_options: str | None) -> None:
    """InvalidInputError for a credential in an option that Spark shows. Neither is repeated in the error."""
    if store is not None and _has_password(store):
        raise InvalidInputError(
            "The option store holds a password, and Spark shows that option in its plans, event log and UI.",
            hint="Name the option storeUrl, which Spark redacts; or leave the password out, and give it to the "
            "driver and the executors as PGPASSWORD.",
        )
    if storage_options is not None and not BY_DEFAULT.search(storage_options) and _holds_secrets(storage_options):
        raise InvalidInputError(
            "The option storageOptions may hold a credential, and Spark shows it in its plans, event log and UI.",
            hint="Name the option secretStorageOptions, which Spark redacts; or set the environment variables of the "
            "storage for the driver and the executors.",
        )


def _has_password(address: str) -> bool:
    try:
        return urlsplit(address).password is not None or "password=" in address.lower()
    except ValueError:
        return "@" in address


def _holds_secrets(text: str) -> bool:
    from conroi.table_location import NOT_SECRET

    try:
        given = parse_json(text, "The option storageOptions")
    except CorruptionError:
        return False  # refused later
    return isinstance(given, Mapping) and any(str(name).lower() not in NOT_SECRET for name in given)


PATH, TABLE, STORE, STORAGE, BRANCH, PUT = "path", "table", "store", "storageOptions", "branch", "put"
STORE_URL, SECRET_STORAGE, BASES = "storeUrl", "secretStorageOptions", "allowBases"
VERSION, TAG, AS_OF = "version", "tag", "asOf"
FILTER, COLUMNS, BYTES, FOLLOW = "filter", "columns", "bytesPerTask", "follow"
WHERE, MESSAGE, KEY, IF_MOVED = "where", "message", "key", "ifMoved"
START, SKIP_CHANGES = "startingVersion", "skipChanges"
MOST_ROWS, MOST_VERSIONS = "maxRowsPerTrigger", "maxVersionsPerTrigger"
CHECKPOINT = "checkpointLocation"
PIN = "conroi.secretPin"
"""A version that was already chosen, as `to_spark` passes it; Spark redacts the value because of the name."""

OF_PLACE = {PATH, TABLE, STORE, STORE_URL, STORAGE, SECRET_STORAGE, BRANCH, PUT, BASES, PIN}
_OF_READING = {VERSION, TAG, AS_OF, FILTER, COLUMNS, BYTES, FOLLOW}
_OF_WRITING = {WHERE, MESSAGE, KEY, IF_MOVED}
OF_STREAMS = {START, SKIP_CHANGES, MOST_ROWS, MOST_VERSIONS}
NAMES_SHOWN = 10
"""Maximum number of tables of a lake in an error."""
KNOWN = OF_PLACE | _OF_READING | _OF_WRITING | OF_STREAMS | {CHECKPOINT}


class Options:
    """What was given; names ignore case, as always in Spark."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        if "provider" in self._given:  # so Spark calls us for CREATE TABLE and saveAsTable
            raise InvalidInputError(
                "Spark's own catalog cannot hold tables of conroi: it would forget their path.",
                hint="Write CREATE TEMPORARY VIEW … USING conroi OPTIONS (path '…'), or df.write….save(path); "
                "lake.sql(spark, …) knows the tables of a lake by name.",
            )
        if "commitlock" in self._given or "commit_lock" in self._given:
            raise InvalidInputError(
                "A commit lock is an object of this process, which an option of Spark cannot carry.",
                hint="Use conroi.open_table(path, commit_lock=…).append(dataframe), or a store.",
            )
        unknown = sorted(set(self._given) - {name.lower() for name in KNOWN})
        if unknown:
            known = ", ".join(sorted(KNOWN - {PIN, CHECKPOINT}))
            raise InvalidInputError(f"Unknown option {', '.join(unknown)}.", hint=f"It knows {known}.")
        refuse_shown(self.get(STORE), self.get(STORAGE))
        for shown_name, redacted in ((STORE, STORE_URL), (STORAGE, SECRET_STORAGE)):
            if self.get(shown_name) is not None:
                self.refuse({redacted}, f"a source that has {shown_name}", "Give one of the two.")

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
                hint="Give it to load() or save(), or as OPTIONS (path '…'). A table made by CREATE TABLE … USING "
                "conroi has lost it: Spark does not hand its LOCATION on. DROP TABLE it, and write CREATE TEMPORARY "
                "VIEW instead.",
            )
        # Spark writes local paths as URIs, in a form of its own.
        return path.removeprefix("file:") if path.startswith("file:/") and not path.startswith("file://") else path

    @property
    def store(self) -> str | None:
        """The address of the store, under either of its two names."""
        return self.get(STORE) or self.get(STORE_URL)

    @property
    def storage_options(self) -> dict[str, str] | None:
        """Settings and credentials of the storage."""
        name = STORAGE if self.get(STORAGE) is not None else SECRET_STORAGE
        text = self.get(name)
        return None if text is None else cast("dict[str, str]", _json(name, text))

    @property
    def allow_bases(self) -> list[str] | None:
        """Folders outside the table or its lake from which its files may be read."""
        text = self.get(BASES)
        if text is None:
            return None
        bases = _json(BASES, text) if text.lstrip().startswith("[") else [text]
        if not all(isinstance(base, str) for base in bases):
            raise InvalidInputError(
                f"{BASES} is not a list of paths.", hint='Give a path, or JSON: ["/data/a", "s3://b"].'
            )
        return bases

    @property
    def put(self) -> Put:
        """How a version gets its final name."""
        return cast("Put", self.get(PUT) or "conditional")

    @property
    def key(self) -> list[str] | None:
        """The primary key columns of a new table."""
        text = self.get(KEY)
        return None if text is None else [name.strip() for name in text.split(",")]

    # ------------------------------------------------------------------------ which table

    def lake(self) -> Lake:
        """The lake, if `table` names a table in one."""
        from conroi.opening import connect

        self._refuse_put()
        return connect(
            self.path,
            store=self.store,
            storage_options=self.storage_options,
            branch=self.get(BRANCH),
            allow_bases=self.allow_bases,
            create=False,
        )

    def in_lake(self) -> tuple[Lake, str] | None:
        """The lake, and the name that the table has in it or would get; None for a table that stands alone."""
        from conroi.catalog.folders import created_in
        from conroi.catalog.names import shown
        from conroi.lake import Lake
        from conroi.table_location import lake_around, table_storage

        name = self.get(TABLE)
        if name is not None:
            return self.lake(), name
        place: Any = {"store": self.store, "storage_options": self.storage_options}
        around = lake_around(self.path, **place, allow_bases=self.allow_bases)
        if around is None:
            return None
        branch, folder = self.get(BRANCH), around[1]
        ref = around[0] if branch is None else around[0].branch(branch)
        lake, files = Lake(ref.catalog, ref.manifest), ref.storage_in(folder)
        if files is not None:
            self._refuse_put()
            return lake, shown(files.object_id)
        alone = table_storage(self.path, **place)
        if alone.versions.latest() is not None and created_in(alone.objects, folder) is None:
            return None  # other software made it, and the lake does not list it
        self._refuse_put()
        return lake, folder.removesuffix(".lance")

    def _refuse_put(self) -> None:
        if self.put != "conditional":
            raise InvalidInputError(
                "A lake commits for its tables, and has no other put.", table=self.path, hint="Leave out put."
            )

    def head(self) -> Table:
        """The table at its newest version."""
        from conroi.opening import open_table

        found = self.in_lake()
        if found is not None:
            return found[0][found[1]]
        try:
            return open_table(
                self.path,
                store=self.store,
                storage_options=self.storage_options,
                branch=self.get(BRANCH),
                put=self.put,
                allow_bases=self.allow_bases,
            )
        except NotFoundError:
            self._refuse_lake()
            raise

    def _refuse_lake(self) -> None:
        """InvalidInputError if the path is that of a lake, and no table was named."""
        from conroi.catalog.folders import content_of
        from conroi.opening import connect
        from conroi.storage import open_objects

        storage = self.storage_options
        if content_of(open_objects(self.path, storage)) != "a lake":
            return
        names = connect(self.path, store=self.store, storage_options=storage, create=False).tables()
        has = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "") if names else "no table yet"
        raise InvalidInputError(
            f"{self.path} is a lake, not a table.",
            table=self.path,
            hint=f'Name a table of it: option("table", "…"). It has {has}.',
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
        """Whether every query looks up the newest version, instead of all using the first one."""
        follows = self.flag(FOLLOW)
        if follows:
            self.refuse({VERSION, TAG, AS_OF, PIN}, "a read that follows", "Leave out follow to stay at one version.")
        return follows

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
        return Scan(version, wanted, checked_filter(self.get(FILTER), version.place.uri), self.bytes_per_task)

    @property
    def bytes_per_task(self) -> int:
        """How much a task reads."""
        size = self.get(BYTES) or str(BYTES_PER_TASK)
        if not size.isdecimal() or not int(size):
            raise InvalidInputError(f"{BYTES}={size!r} is not a number of bytes.", hint="Such as 67108864.")
        return int(size)


def _json(name: str, text: str) -> Any:
    try:
        return parse_json(text, name)
    except CorruptionError:
        # The text is not repeated: it may hold credentials.
        raise InvalidInputError(f"The option {name} is not JSON.", hint="Write it with json.dumps(…).") from None
