"""Exception hierarchy of conroi, grouped by what the caller does next.

::

    ConroiError
    ├── ConflictError               a concurrent transaction committed first
    │   ├── RetryableConflict       run your work again on the new version (conroi.retry does)
    │   │   └── BaseVersionExpired  … because its base version was garbage-collected; also a VersionExpired
    │   ├── IncompatibleConflict    running it again would be wrong; decide what you want
    │   ├── ExpectedVersionMismatch a table changed that you declared must not
    │   ├── MergeConflict           both branches changed the same thing; `conflicts` lists it, prefer= decides
    │   ├── InsertInterrupted       other writers committed between the pieces of an insert; it was not finished
    │   └── TooMuchContention       retries or time ran out; nothing was committed
    │       └── LockTimeout         … while another worker held the insert lock; `holder` identifies it
    ├── CommitStateUnknown          the commit may or may not have succeeded; look, do not resend
    ├── CorruptionError             bytes on disk are not what they should be
    │   └── ForkedTableError        a lake's table was written by its path; nothing is lost, lake.mend() repairs it
    ├── NotFoundError               no such table, version, tag, column, index
    │   └── VersionExpired          the version expired and was garbage-collected; open a newer version
    ├── InvalidInputError           the request is invalid; nothing was written
    │   ├── AlreadyExistsError      the name is taken
    │   ├── DuplicateKeyError       a key already exists, or occurs twice in the input
    │   ├── LocksRequired           the lake requires insert locks, and this connection has none
    │   ├── UnknownArgumentError    a call has no argument of this name; also a TypeError
    │   └── UnsupportedError        the table needs a feature this version does not have
    ├── ClosedError                 a transaction or handle was used after its end
    └── StoreError                  the storage refused or failed
        └── StoreUnavailable        … in a way that may pass

    UntestedPylanceWarning          a UserWarning: pylance is newer than the releases conroi was tested with

Matching on message text is never needed: the facts are attributes (`table`, `version`, `hint`, and on conflicts
`reason`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conroi.branches.results import Conflict
    from conroi.conflicts.reason import Reason


UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, marks that turn the direction of text, and halves of surrogate pairs."""


def visible(text: str, *, lines: bool = True) -> str:
    """The text with control characters escaped: names come from other software, and a terminal would obey them.

    New lines and tabs stay, unless `lines` is False.
    """
    if text.isascii() and text.isprintable():
        return text
    shown = UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    return shown if lines else shown.replace("\n", "\\n").replace("\t", "\\t")


class ConroiError(Exception):
    """Base class of all errors of conroi.

    `table` and `version` say where, `hint` what to do; each may be None.
    """

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        version: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.table = table
        self.version = version
        self.hint = hint

    def __reduce__(self) -> tuple[Callable[..., ConroiError], tuple[type[ConroiError], str], dict[str, object]]:
        # By default an error that goes to another process is made again from its message alone.
        return _made_again, (type(self), self.message), self.__dict__

    def __str__(self) -> str:
        where = ""
        if self.table is not None:
            where = f" [table {visible(self.table, lines=False)}"
            where += f", version {self.version}]" if self.version is not None else "]"
        hint = f" Hint: {self.hint}" if self.hint else ""
        return visible(f"{self.message}{where}{hint}")


def _made_again(kind: type[ConroiError], message: str) -> ConroiError:
    return kind.__new__(kind, message)


class about:  # noqa: N801  (used like a function; a class costs a third of a generator, several times in each commit)
    """Context manager that adds the table to errors that do not name one."""

    def __init__(self, table: str) -> None:
        self._table = table

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ConroiError):
            error.table = error.table or self._table


class ConflictError(ConroiError):
    """A concurrent transaction committed first, and the two changes are not compatible.

    `base_version` is the version that your change is based on, `version` that of the concurrent commit, and `reason`
    has the conflict rule and both operations.
    """

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        version: int | None = None,
        hint: str | None = None,
        base_version: int | None = None,
        reason: Reason | None = None,
    ) -> None:
        super().__init__(message, table=table, version=version, hint=hint)
        self.base_version = base_version
        self.reason = reason


class RetryableConflict(ConflictError):
    """The change is valid, but must be computed again on the newer version."""


class IncompatibleConflict(ConflictError):
    """The concurrent commit removed what this change modifies; repeating it blindly would be wrong."""


class ExpectedVersionMismatch(ConflictError):
    """A precondition failed: a table is not at its expected version."""

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        expected: int,
        actual: int,
        hint: str | None = None,
        reason: Reason | None = None,
        is_retryable: bool = False,
    ) -> None:
        super().__init__(message, table=table, version=actual, hint=hint, base_version=expected, reason=reason)
        self.expected = expected
        self.actual = actual
        self.is_retryable = is_retryable
        """Whether only the isolation level required it, so that the work may be run again; lake.run does."""


class TooMuchContention(ConflictError):
    """Every attempt lost its race against concurrent commits; nothing was committed."""

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        version: int | None = None,
        hint: str | None = None,
        base_version: int | None = None,
        reason: Reason | None = None,
        attempts: int = 0,
        conflicts: int = 0,
    ) -> None:
        super().__init__(message, table=table, version=version, hint=hint, base_version=base_version, reason=reason)
        self.attempts = attempts
        self.conflicts = conflicts
        """How many of the attempts lost to a commit to the same table."""


class LockTimeout(TooMuchContention):
    """Another worker held the insert lock for longer than the timeout; nothing was done."""

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        hint: str | None = None,
        holder: str | None = None,
        held_since: datetime | None = None,
    ) -> None:
        super().__init__(message, table=table, hint=hint)
        self.holder = holder
        """Host and process of the holder; None if unknown."""
        self.held_since = held_since


class InsertInterrupted(ConflictError):
    """Rows of other writers were committed between the pieces of an insert, or another worker fenced it off.

    None of its rows stay: its own worker removes them, or the next one that inserts.
    """


class MergeConflict(ConflictError):
    """Both branches changed the same things differently; nothing was merged. `conflicts` lists all conflicts."""

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        version: int | None = None,
        hint: str | None = None,
        base_version: int | None = None,
        conflicts: Sequence[Conflict] = (),
    ) -> None:
        super().__init__(message, table=table, version=version, hint=hint, base_version=base_version)
        self.conflicts = tuple(conflicts)


class CommitStateUnknown(ConroiError):
    """The response of the storage was lost, and the outcome of the commit could not be determined.

    No file of any attempt was deleted. Open the table later and compare `transaction_uuid`
    with `table.history()` before doing the work again.
    """

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        version: int | None = None,
        hint: str | None = None,
        transaction_uuid: str | None = None,
    ) -> None:
        super().__init__(message, table=table, version=version, hint=hint)
        self.transaction_uuid = transaction_uuid


class CorruptionError(ConroiError):
    """Bytes on disk are damaged or inconsistent."""


class ForkedTableError(CorruptionError):
    """An out-of-band writer took a version's final name after the lake had published that version.

    Both versions exist and nothing was overwritten. The lake continues to read its own; publications to the table are
    refused until the other change is merged by lake.mend().
    """


class NotFoundError(ConroiError):
    """No such table, version, tag, column or index."""


class VersionExpired(NotFoundError):
    """The version expired and was garbage-collected, possibly while it was being read."""

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        version: int | None = None,
        hint: str | None = None,
        collected_at: datetime | None = None,
    ) -> None:
        super().__init__(message, table=table, version=version, hint=hint)
        self.collected_at = collected_at
        """Time by the storage's clock at which it was already collected; None if unknown."""


class BaseVersionExpired(RetryableConflict, VersionExpired):
    """The base version of a transaction or a verb was garbage-collected; nothing was committed."""

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        version: int | None = None,
        hint: str | None = None,
        base_version: int | None = None,
        reason: Reason | None = None,
        collected_at: datetime | None = None,
    ) -> None:
        super().__init__(message, table=table, version=version, hint=hint, base_version=base_version, reason=reason)
        self.collected_at = collected_at


class InvalidInputError(ConroiError):
    """The request is invalid; nothing was written."""


class AlreadyExistsError(InvalidInputError):
    """The name is taken."""


class DuplicateKeyError(InvalidInputError):
    """A unique key would occur twice; `keys` names some."""

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        version: int | None = None,
        hint: str | None = None,
        keys: Sequence[Mapping[str, object]] = (),
    ) -> None:
        super().__init__(message, table=table, version=version, hint=hint)
        self.keys = tuple(keys)


class LocksRequired(InvalidInputError):
    """The lake requires insert locks, and this connection has none."""


class UnknownArgumentError(InvalidInputError, TypeError):
    """The call has no argument of this name; nothing was done."""


class UnsupportedError(InvalidInputError):
    """The table uses, or the call needs, a feature that this version of conroi does not have."""


class ClosedError(ConroiError):
    """A transaction or handle was used after its end."""


class StoreError(ConroiError):
    """The storage refused or failed."""


class StoreUnavailable(StoreError):
    """The storage did not respond, or failed in a way that may pass."""


class UntestedPylanceWarning(UserWarning):
    """The installed pylance is newer than the releases that this version of conroi was tested with."""
