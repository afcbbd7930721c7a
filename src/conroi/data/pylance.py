"""The only access to pylance: opens pinned versions, and maps its errors to conroi's.

pylance reads and writes data files; it never commits.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, cast
from weakref import WeakKeyDictionary

from conroi.arguments import printable
from conroi.data.admission import admit
from conroi.errors import (
    ConroiError,
    CorruptionError,
    InvalidInputError,
    StoreError,
    UnsupportedError,
    UntestedPylanceWarning,
)
from conroi.format import lance_pb2 as pb
from conroi.format.fields import has_dictionaries
from conroi.format.flags import described, extraordinary_reader_bits
from conroi.format.manifest import Manifest
from conroi.format.naming import DETACHED_BIT, check_relative_path
from conroi.format.on_disk import DATA_DIR
from conroi.snapshots.branch_storage import is_inherited
from conroi.snapshots.snapshot import Snapshot
from conroi.storage.local import check_file, check_folders
from conroi.storage.objects import Objects, plain_objects
from conroi.storage.parallel import ProcessBound, ProcessLock

if TYPE_CHECKING:
    import lance
    import pyarrow as pa
    from lance.file import LanceFileSession


@cache
def _session() -> Any:
    """One session, so that all handles of the process share their caches."""
    return _new_session()


def _new_session() -> Any:
    """Caches of its own: a private version may have the number, or fragments of the number, of another one; and the
    indices of a version that are not to be used may be in the cache of the others."""
    import lance

    return cast("Any", lance).Session()  # pylance exports it, but not to type checkers


class PrivateSession:
    """The caches and connections of one table inside one transaction, for all versions that only it sees.

    Each of these versions goes by a number of its own for pylance, so that nothing that is cached by version is taken
    for that of another. It is the number of a detached version: pylance does not look for its manifest.
    """

    def __init__(self, base: Snapshot | None = None) -> None:
        self.base = base
        """The base version of the transaction."""
        self._session: Any = None
        self.newest: Any = None
        """The dataset that was opened last: as long as there is one, pylance keeps its connections."""
        self._numbers = count(1)
        self._lock = ProcessLock()

    def next(self) -> tuple[Any, int]:
        """The session, and a number that no other version in it has."""
        with self._lock:
            if self._session is None:
                self._session = _new_session()
            return self._session, DETACHED_BIT | next(self._numbers)


class DataFiles(Protocol):
    """In the place of pylance, for storage that pylance cannot read: see conroi.testing.simulation."""

    def session(self, objects: Objects) -> LanceFileSession:
        """Reads and writes single data files."""
        ...

    def scratch(self) -> Objects:
        """Storage in memory for one data file that is sent elsewhere afterwards."""
        ...

    def dataset(self, objects: Objects, snapshot: Snapshot, private: PrivateSession | None) -> lance.LanceDataset:
        """A version opened for reading."""
        ...

    def plan_compaction(self, dataset: lance.LanceDataset, options: Mapping[str, Any]) -> list[str]:
        """The tasks, as JSON."""
        ...

    def compact(self, dataset: lance.LanceDataset, task: str) -> str:
        """The result of a task, as JSON."""
        ...


def data_files_of(objects: Objects) -> DataFiles | None:
    """What reads and writes the data files of this storage; None: pylance."""
    return getattr(plain_objects(objects), "data_files", None)


_file_sessions: WeakKeyDictionary[Objects, Any] = WeakKeyDictionary()


def file_session(objects: Objects, reading: str | None = None) -> LanceFileSession:
    """Reads and writes single data files of the table; made once, since it holds a connection. The folder is looked at
    each time, and so is the file that is to be read."""
    check_folders(objects, [DATA_DIR])
    if reading is not None:
        check_file(objects, f"{DATA_DIR}/{reading}")
    session = _file_sessions.get(objects)
    if session is None:
        session = _file_sessions[objects] = _new_file_session(objects)
    return session


def _new_file_session(objects: Objects) -> LanceFileSession:
    stand_in = data_files_of(objects)
    if stand_in is not None:
        return stand_in.session(objects)
    return session_at(objects.pylance_uri(DATA_DIR), objects.storage_options)


def session_at(folder: str, storage_options: Mapping[str, str] | None = None) -> LanceFileSession:
    """The single files in a folder."""
    from lance.file import LanceFileSession

    return LanceFileSession(folder, storage_options=dict(storage_options or {}) or None)


def rows_in_file(objects: Objects, name: str) -> int:
    """How many rows the data file has, by its own footer; an error if it is not a whole Lance file."""
    with pylance_errors(objects.root):
        return file_session(objects, check_relative_path(name)).open_reader(name).num_rows()


def open_dataset(objects: Objects, snapshot: Snapshot, private: PrivateSession | None = None) -> lance.LanceDataset:
    """A pylance handle pinned at this very manifest, which is not read; `private` is for versions of a transaction."""
    with pylance_errors(objects.root):
        require_known_flags(snapshot.manifest.head, objects.root)
        admit(objects, snapshot, rows_in_file)
        stand_in = data_files_of(objects)
        if stand_in is not None:
            return stand_in.dataset(objects, snapshot, private)
        return opened_by_pylance(objects, objects.pylance_uri(), snapshot, private)


def rows_by_path(folder: str, version: int) -> pa.Table:
    """The rows of a final version, as any reader finds them that knows only the folder."""
    import lance

    return lance.dataset(folder, version=version).to_table()


def opened_by_pylance(objects: Objects, uri: str, snapshot: Snapshot, private: PrivateSession | None) -> Any:
    """The same for a version that was admitted; `uri` is where pylance finds its files."""
    import lance

    is_looked_up = snapshot.is_private and has_dictionaries(snapshot.manifest.fields)
    if is_looked_up and (snapshot.version == 0 or is_inherited(objects, snapshot.located.path)):
        manifest = _without_dictionaries(snapshot.manifest, objects.root)
        snapshot, is_looked_up = replace(snapshot, manifest=manifest), False
    # pylance opens the file of a manifest with dictionaries: that of the base, whose number the version has.
    if private is not None and snapshot.is_private and not is_looked_up:
        session, version = private.next()
        snapshot = replace(snapshot, manifest=_numbered(snapshot, version))
    else:
        session = _new_session() if snapshot.is_private or snapshot.claims_too_much else _session()
    dataset = lance.LanceDataset(
        uri,
        version=snapshot.version,
        serialized_manifest=_message_for_pylance(objects, snapshot),
        storage_options=dict(objects.storage_options) or None,
        session=session,
    )
    if private is not None:
        private.newest = dataset
    return dataset


def open_with_indices_of(objects: Objects, snapshot: Snapshot, base: Snapshot) -> lance.LanceDataset | None:
    """A private version with the indices of its base, which pylance reads from the base's manifest file.

    None if the transaction changed what they cover, or they are not in a file: then there is nothing that pylance could
    read. It goes by the number of the base, so it gets a session of its own.
    """
    import lance

    indices = snapshot.manifest.indices
    if not indices or list(indices) != list(base.manifest.indices) or not has_sections(objects, base):
        return None
    with pylance_errors(objects.root):
        require_known_flags(snapshot.manifest.head, objects.root)
        admit(objects, snapshot, rows_in_file)
        head = snapshot.manifest.editable_head()
        for section in ("transaction_section", "transaction_section_deprecated"):
            head.ClearField(section)
        head.version = base.version
        head.index_section = base.manifest.head.index_section
        return lance.LanceDataset(
            objects.pylance_uri(),
            version=base.version,
            serialized_manifest=snapshot.manifest.changed(head=head).message,
            storage_options=dict(objects.storage_options) or None,
            session=_new_session(),
        )


def _numbered(snapshot: Snapshot, version: int) -> Manifest:
    head = snapshot.manifest.editable_head()
    head.version = version
    return snapshot.manifest.changed(head=head)


def _without_dictionaries(manifest: Manifest, table: str) -> Manifest:
    """The columns as plain values, which is how data files hold them since format 2.1. A table that was created in this
    transaction, or inherited by its branch, has no manifest file in which pylance could look for dictionaries."""
    if manifest.fragments and manifest.head.data_format.version in ("", "2.0"):  # pylance would give other values
        raise UnsupportedError(
            "Columns of dictionaries in data format 2.0 cannot be read before the table is committed.",
            table=table,
            hint="Commit first, or create the table with data_format='2.1'.",
        )
    head = manifest.editable_head()
    for field in head.fields:
        if field.logical_type.startswith("dict:"):
            field.logical_type = field.logical_type.split(":")[1]
            field.encoding = pb.Field.Encoding.VAR_BINARY
            field.ClearField("dictionary")
    return manifest.changed(head=head)


def has_sections(objects: Objects, snapshot: Snapshot) -> bool:
    """Whether pylance finds the manifest, with its indices as we have them, under its final name."""
    if not snapshot.is_final or snapshot.claims_too_much:
        return False
    return not (snapshot.manifest.indices and is_inherited(objects, snapshot.located.path))


def _message_for_pylance(objects: Objects, snapshot: Snapshot) -> bytes:
    """The manifest; without the sections that pylance would look up in its file if they are not there, or not right."""
    if has_sections(objects, snapshot):
        return snapshot.manifest.message
    head: pb.ManifestHead = snapshot.manifest.editable_head()
    for section in ("index_section", "transaction_section", "transaction_section_deprecated"):
        head.ClearField(section)
    return snapshot.manifest.changed(head=head).message


_INVALID_INPUT = "Invalid user input: "
_NOT_SUPPORTED = "Not supported: "
_SHOWN = 2_000
"""Maximum length of a displayed message."""
_LONGEST = 20_000
"""Maximum length of a message that is analysed: it may quote an expression of any length."""
_MISSING_FILE = re.compile(r"(not found:|no such file)[^\n]{0,1000}\.(lance|manifest|arrow|bin|txn|idx|blob)\b")
"""What pylance says of a missing file, in an OSError, a ValueError or an ArrowInvalid."""
_SOURCE_POSITION = re.compile(r",? *(/[\w./\-]+|[\w\-]+(/[\w.\-]+)+)\.rs:\d+:\d+")


_PYLANCE = ProcessBound("read or written Lance data", "connects to a lake or opens a table")
"""pylance is not fork-safe: a child of a process that used it was seen to crash and to hang, without conroi too."""


class pylance_errors:  # noqa: N801
    """Context manager that maps pylance's errors to typed errors; ours pass through."""

    def __init__(self, table: str) -> None:
        self._table = table

    def __enter__(self) -> None:
        _PYLANCE.enter(self._table)
        warn_if_untested()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ConroiError):
            error.table = error.table or self._table
        # A panic in Rust is no Exception. Others that are none end the process, or the task.
        elif error is not None and (isinstance(error, Exception) or type(error).__name__ == "PanicException"):
            raise _typed(error, self._table) from error


def _typed(error: BaseException, table: str) -> ConroiError:
    text, lowered = _plain(error), str(error)[:_LONGEST].lower()
    is_io = isinstance(error, OSError) or "lanceerror(io)" in lowered
    if _MISSING_FILE.search(lowered) or (is_io and ("not found" in lowered or "no such file" in lowered)):
        return CorruptionError(
            f"A file that the table needs is missing: {text}",
            table=table,
            hint="It was deleted, or collected as part of an old version; open a newer version.",
        )
    if is_io and "not a directory" in lowered:
        return InvalidInputError(
            f"A file stands where the table needs a folder: {text}", table=table, hint="Choose another path."
        )
    if "unsupported timestamp type" in lowered:  # a panic in pylance 12, where the zone is an offset
        hint = "Use the name of a zone, such as Europe/Berlin, or pylance 13 or newer."
        return UnsupportedError(f"The installed pylance does not know this type: {text}", table=table, hint=hint)
    is_refusal = isinstance(error, ValueError | TypeError | NotImplementedError | KeyError)
    if "could not convert to literal of type 'decimal" in lowered:
        hint = "Compare a decimal column with a decimal: write CAST(1.5 AS DECIMAL(10, 2)) for 1.5."
        return InvalidInputError(text, table=table, hint=hint)
    if str(error).startswith((_INVALID_INPUT, _NOT_SUPPORTED)) or (is_refusal and not is_io):
        return InvalidInputError(_WORDY.sub("", text), table=table, hint=_hint(lowered))
    if is_io:
        return StoreError(text, table=table, hint="Check that the storage is there and may be read and written.")
    return StoreError(
        f"pylance failed: {text}", table=table, hint="Try it in smaller pieces, or open an older version."
    )


_WORDY = re.compile(r" ?Valid fields are [^.\n]*\.?")
"""What pylance says of the columns that a plan reads, which are not all that the table has."""
_HINTS = {
    "no field named": "Check the names of columns. A text needs quotes inside the expression: \"'hello'\".",
    "parsing statement": "An expression is SQL. A text needs quotes inside it, \"'hello'\", or "
    'conroi.literal("hello"); a column whose name has spaces needs backticks.',
    "received literal": "The column is of another type than the value. A text needs quotes inside the expression.",
    "num_partitions": 'Give what it asks for as options: create_index(…, options={"num_partitions": 16, …}).',
    "fixedsizelist": "A vector index needs lists of one length: "
    'alter_columns({"vec": {"type": pa.list_(pa.float32(), 16)}}), with 16 for the length that they have.',
}
"""What helps, by what pylance says."""


def _hint(said: str) -> str:
    return next(
        (hint for part, hint in _HINTS.items() if part in said), "Check column names, types and the expression."
    )


def _plain(error: BaseException) -> str:
    """The message without the source positions pylance puts into it."""
    text = _SOURCE_POSITION.sub("", printable(error, _SHOWN)).strip()
    return text.removeprefix(_INVALID_INPUT).removeprefix("LanceError(IO): ") or type(error).__name__


# ------------------------------------------------------------------------------ compaction


def plan_compaction(objects: Objects, dataset: lance.LanceDataset, options: Mapping[str, Any]) -> list[str]:
    """Which fragments pylance would rewrite together: each task as JSON."""
    stand_in = data_files_of(objects)
    if stand_in is not None:
        return stand_in.plan_compaction(dataset, options)
    return planned_by_pylance(dataset, options)


def planned_by_pylance(dataset: lance.LanceDataset, options: Mapping[str, Any]) -> list[str]:
    """The same, in simulations too."""
    from lance.optimize import Compaction

    plan = Compaction.plan(dataset, cast("Any", options))
    # Tasks and results have a json() that pylance's types do not have.
    return [cast("Any", task).json() for task in plan.tasks]


def execute_compaction(objects: Objects, dataset: lance.LanceDataset, task: str) -> str:
    """Execute one task; its result as JSON."""
    stand_in = data_files_of(objects)
    if stand_in is not None:
        return stand_in.compact(dataset, task)
    return compacted_by_pylance(dataset, task)


def compacted_by_pylance(dataset: lance.LanceDataset, task: str) -> str:
    """The same, in simulations too."""
    from lance.optimize import CompactionTask

    return cast("Any", CompactionTask).from_json(task).execute(dataset).json()


# ------------------------------------------------------------------------------ features

TESTED = (12, 13, 14)
"""The major versions that `make ring` runs."""
_TOO_NEW = "cannot be read by this version of Lance"
"""What pylance says of a feature that it does not know."""


def is_tested(release: str) -> bool:
    """Whether the suites were run with this major version.

    >>> is_tested("14.0.2"), is_tested("11.0.0"), is_tested("15.0.0b1")
    (True, False, False)
    """
    return _major(release) in TESTED


@cache
def installed() -> str:
    """The version of the installed pylance."""
    import lance

    return lance.__version__


@cache
def warn_if_untested() -> None:
    """Warn once in a process if the installed pylance is newer than the tested releases."""
    if _major(installed()) > max(TESTED):
        warnings.warn(
            f"pylance {installed()} is newer than the releases that this conroi was tested with "
            f"({TESTED[0]} to {TESTED[-1]}). Tables that need a feature which conroi does not know are refused.",
            UntestedPylanceWarning,
            stacklevel=2,
        )


def require_known_flags(head: pb.ManifestHead, table: str) -> None:
    """Refuse a table that needs a feature which conroi knows and the installed pylance does not."""
    unknown = sum(bit for bit in extraordinary_reader_bits(head) if not knows_reader_flag(bit))
    if unknown:
        raise UnsupportedError(
            f"The installed pylance {installed()} cannot read the table: its reader flags ask for "
            f"{described(unknown)}.",
            table=table,
            hint=f"Install pylance {TESTED[-1]}.",
        )


@cache
def knows_reader_flag(bit: int) -> bool:
    """Probe: whether pylance opens a table without rows that asks for this feature. No I/O."""
    import lance

    manifest = pb.Manifest(version=1, reader_feature_flags=bit, writer_feature_flags=bit)
    manifest.fields.add(name="a", id=0, parent_id=-1, logical_type="int64", nullable=True)
    manifest.data_format.file_format, manifest.data_format.version = "lance", "2.1"
    message = manifest.SerializeToString()
    try:
        lance.LanceDataset("memory://conroi-probe", version=1, serialized_manifest=message)
    except (OSError, ValueError, NotImplementedError) as error:
        return _TOO_NEW not in str(error)  # any other refusal is about the probe: the table itself will tell
    return True


def _major(release: str) -> int:
    digits = release.partition(".")[0]
    return int(digits) if digits.isdigit() else 0
