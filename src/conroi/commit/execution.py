"""Retry loop of a verb: plan its work at the newest version, commit, and plan again after a retryable conflict."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypedDict

from conroi.commit.change import Change, CommitResult, Plan, checked_texts
from conroi.commit.fairness import PriorityToken, Turns
from conroi.commit.table_commit import attribute, commit
from conroi.environment import Moment, moment
from conroi.errors import ExpectedVersionMismatch, InvalidInputError, RetryableConflict
from conroi.format.on_disk import COMMIT_MESSAGE_PROPERTY
from conroi.retry_policy import COMMIT_RETRIES, DEFAULT_RETRIES, checked_retries
from conroi.snapshots.snapshot import Snapshot, TableStorage, load_transaction, version_in_use

_log = logging.getLogger(__name__)

REPEATED_WORK_MAY_TAKE = 3.0
"""Other writers are asked to yield for this multiple of the duration of the wasted work."""


class WriteOptions(TypedDict, total=False):
    """Write options common to all verbs that commit."""

    message: str
    """The commit message, shown by history()."""
    properties: Mapping[str, str]
    """Custom key-value properties of the commit."""
    retries: int
    """Number of retries after conflicts; 0 fails fast."""
    strict: bool
    """Refuse after any concurrent commit, even where both changes are compatible."""
    expect: int
    """Refuse unless the table's newest version is this one."""
    detached: bool
    """Create a version outside the table's linear history, on the version this table is pinned at; read only by its
    number.
    """


@dataclass(frozen=True)
class Done:
    """The outcome of a verb: the version it committed, or the one on which it was a no-op."""

    snapshot: Snapshot
    work: Plan | None
    result: CommitResult | None


def run(
    files: TableStorage,
    known: Snapshot,
    verb: Callable[[Snapshot], Plan | None],
    how: WriteOptions,
    prepare: Callable[[Snapshot], None] | None = None,
) -> Done:
    """Execute the verb's work on the newest version and commit it. `known` is the newest version seen so far.

    `prepare` does the part that can be done before it is our turn.
    """
    files.refuse_past()
    settings = _settings(how)
    token = PriorityToken(files.objects, files.environment, files.kept(Turns).me)
    try:
        # What the first execution wrote, a later one may use again.
        begun_at = moment(files.environment)
        for execution in range(settings.executions + 1):
            head = known if settings.is_detached else _head_in_turn(files, known, token, prepare)
            started = files.environment.monotonic()
            try:
                done = _execute(files.holding(head), head, verb, settings, token, begun_at)
            except RetryableConflict as conflict:
                took_s = files.environment.monotonic() - started
                files.kept(Turns).worked(took_s, wasted=True)
                if execution == settings.executions:
                    raise
                _log.info("%s: doing the work again on a newer version (%s)", files.root, conflict.message)
                known = head
                _before_doing_it_again(files, token, execution + 1, took_s)
            else:
                files.kept(Turns).worked(files.environment.monotonic() - started, wasted=False)
                return done
    finally:
        token.pass_on()
    raise AssertionError("unreachable")


def _head_in_turn(
    files: TableStorage, known: Snapshot, token: PriorityToken, prepare: Callable[[Snapshot], None] | None
) -> Snapshot:
    """The newest version; if our last work was wasted by a conflict, after waiting for our turn."""
    head = files.newest(known)
    turns = files.kept(Turns)
    if token.is_mine or files.is_managed or not turns.wastes_work():
        return head
    _note_writer(files, head)
    places = turns.places_to_wait()
    if not places:
        return head
    if prepare is not None:
        prepare(head)

    def has_moved(versions: int) -> bool:
        return files.objects.head(head.naming.path(head.version + versions)) is not None

    turns.wait(places, has_moved if files.objects.is_local else None, turns.work_s())
    newest = files.newest(head)
    _note_writer(files, newest)
    return newest


def _note_writer(files: TableStorage, snapshot: Snapshot) -> None:
    transaction = load_transaction(files.objects, snapshot)
    if transaction is not None:
        files.kept(Turns).saw(snapshot.version, transaction)


def _before_doing_it_again(files: TableStorage, token: PriorityToken, losses: int, took_s: float) -> None:
    """After several wasted executions, request the priority token; yield to another writer's token."""
    token.ask(losses, needs_s=REPEATED_WORK_MAY_TAKE * took_s)
    if files.kept(Turns).is_contended():
        token.give_way(files.kept(Turns).turn_s())


def _execute(
    files: TableStorage,
    head: Snapshot,
    verb: Callable[[Snapshot], Plan | None],
    settings: _Settings,
    token: PriorityToken,
    begun_at: Moment,
) -> Done:
    if settings.expect is not None:
        _check_expected(settings.expect, head, files)
    with version_in_use(files.objects, head, is_base=True):
        work = verb(head)
    if work is None:
        return Done(head, None, None)
    change = Change(
        work,
        head,
        uuid=str(files.environment.new_uuid()),
        uuid_is_fresh=True,
        base_is_fresh=not work.has_reserved,
        properties=settings.properties,
        is_strict=settings.strict,
        is_detached=settings.is_detached,
        priority_token=token,
        begun_at=begun_at,
    )
    result = commit(files, change, settings.commit_retries)
    return Done(result.snapshot, work, result)


def _check_expected(expected: int, head: Snapshot, files: TableStorage) -> None:
    if isinstance(expected, bool) or not isinstance(expected, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(
            f"expect={expected!r} is not a version number.", table=files.root, hint="Give table.version, for example."
        )
    if head.version != expected:
        error = ExpectedVersionMismatch(
            f"You expected version {expected}, but the table is at version {head.version}.",
            table=files.root,
            expected=expected,
            actual=head.version,
            hint="Look at what changed, then run it again on the newest version.",
        )
        attribute(files, error)
        raise error


@dataclass(frozen=True, slots=True)
class _Settings:
    properties: dict[str, str]
    commit_retries: int
    executions: int
    strict: bool
    expect: int | None
    is_detached: bool


def _settings(how: WriteOptions) -> _Settings:
    properties = dict(how.get("properties") or {})
    message = how.get("message")
    if message is not None:
        properties[COMMIT_MESSAGE_PROPERTY] = message
    retries = how.get("retries")
    retries = None if retries is None else checked_retries(retries)
    return _Settings(
        properties=checked_texts(properties) if properties else {},
        commit_retries=COMMIT_RETRIES if retries is None else retries,
        executions=DEFAULT_RETRIES if retries is None else retries,
        strict=how.get("strict", False) or how.get("expect") is not None,
        expect=how.get("expect"),
        is_detached=how.get("detached", False),
    )
