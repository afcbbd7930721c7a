"""Conflict explanation: the concurrent versions that a commit is checked against, and the rule that decides each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from conroi import operations
from conroi.commit.table_commit import RULES
from conroi.conflicts import ConcurrentCommit, Outcome, Reason, Rebase, Staged, Verdict
from conroi.conflicts.catalog import CATALOG
from conroi.conflicts.matrix import MATRIX, OPERATIONS, PRECHECKS
from conroi.environment import utc_time
from conroi.errors import ConroiError, InvalidInputError, NotFoundError
from conroi.format.on_disk import TRANSACTIONS_DIR
from conroi.format.transaction import Transaction, decode_transaction
from conroi.history import find
from conroi.snapshots.snapshot import Snapshot, load_snapshot, load_transaction

if TYPE_CHECKING:
    from conroi.table import Table

VERBS = {
    "append": "Append",
    "insert": "Append",
    "delete": "Delete",
    "update": "Update",
    "merge": "Update",
    "upsert": "Update",
    "overwrite": "Overwrite",
    "restore": "Restore",
    "compact": "Rewrite",
    "sort": "Rewrite",
    "index": "CreateIndex",
    "add-columns": "Merge",
    "drop-columns": "Project",
    "rename-columns": "Project",
    "alter-columns": "Project",
    "config": "UpdateConfig",
    "replace-column": "DataReplacement",
}
"""What people call an operation, and what Lance does."""


MOVED = {kind.__name__: rule for kind, rule in RULES.items()}
"""Errors that are a conflict by themselves, and their rule."""


@dataclass(frozen=True)
class Meeting:
    """My change and a concurrent commit."""

    mine: str
    theirs: str
    answers: tuple[str, ...]
    """`compatible`, `rebased`, `retryable`, `incompatible`: the one, or those that it can be."""
    why: tuple[str, ...]
    """By which rule, in words."""
    rules: tuple[str, ...]
    hint: str | None = None
    version: int | None = None
    timestamp: datetime | None = None
    writer: str | None = None
    author: str | None = None
    message: str | None = None

    @property
    def lands(self) -> bool:
        """Whether both changes fit for certain."""
        return set(self.answers) <= {"compatible", "rebased"}

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Refused:
    """A commit whose transaction file exists and that never became a version."""

    uuid: str
    operation: str
    base_version: int
    meetings: tuple[Meeting, ...]
    author: str | None = None
    message: str | None = None

    @property
    def refusal(self) -> Meeting | None:
        """The commit that it conflicts with; None if it would fit on top of all that was committed since."""
        return next((each for each in self.meetings if not each.lands), None)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def operation_named(word: str) -> str:
    """The Lance operation of a word."""
    if word in OPERATIONS:
        return word
    if word.lower() in VERBS:
        return VERBS[word.lower()]
    raise InvalidInputError(
        f"{word!r} is not an operation.", hint=f"Give one of {', '.join(VERBS)}, or a Lance operation such as Rewrite."
    )


def by_kind(mine: str, theirs: str) -> Meeting:
    """The possible outcomes for two operations of which only the kind is known."""
    rule = MATRIX[mine, theirs if (mine, theirs) in MATRIX else "Unknown"]
    prechecks = [check.rule for check in PRECHECKS if check.concerns(mine, theirs)]
    findings = [*(name for check in prechecks for name in check.findings), *rule.findings]
    outcomes = {CATALOG[name].outcome for name in findings} | (
        {Outcome.COMPATIBLE} if rule.can_pass else set[Outcome]()
    )
    return Meeting(
        mine,
        theirs,
        answers=tuple(each.name.lower() for each in Outcome if each in outcomes),
        why=tuple(each.title for each in (*prechecks, rule)),
        rules=tuple(findings),
    )


def since(table: Table, mine: str, base_version: int) -> list[Meeting]:
    """The versions that a change based on `base_version` is checked against, oldest first."""
    return [_with_winner(by_kind(mine, winner.operation.name), winner) for winner in _winners(table, base_version)]


def refused(table: Table, uuid: str | None = None) -> list[Refused]:
    """Commits that left a transaction and became no version: refused, given up, or still on their way; newest first."""
    landed = {commit.transaction_uuid for commit in table.latest().history()}
    found = [each for each in _transactions(table) if each.uuid not in landed and uuid in (None, each.uuid)]
    if uuid is not None and not found:
        where = "It became a version." if uuid in landed else "Its file may have been collected."
        raise NotFoundError(f"There is no refused commit {uuid}.", table=table.uri, hint=where)
    winners = list(_winners(table, min((each.read_version for each in found), default=0))) if found else []
    judged = [_judged(table, each, winners) for each in found]
    return sorted(judged, key=lambda each: -each.base_version)


def _transactions(table: Table) -> Iterator[Transaction]:
    objects = table.pinned.files.objects
    for path in sorted(objects.list_names(TRANSACTIONS_DIR)):
        if path.endswith(".txn"):
            try:
                yield decode_transaction(objects.get(path))
            except ConroiError:  # half written, or of something else
                continue


def _judged(table: Table, transaction: Transaction, winners: Sequence[ConcurrentCommit]) -> Refused:
    """Rebase it once more, as far as that needs no rows to be read."""
    operation = operations.of(transaction)
    try:
        base = find(table.pinned.files, transaction.read_version).manifest
    except ConroiError:  # collected, or none: it wanted to make the table
        return _refused(transaction, operation.name, ())
    rebase = Rebase(Staged(operation=operation, base=base))
    meetings: list[Meeting] = []
    for winner in (each for each in winners if each.version > transaction.read_version):
        before = len(rebase.repairs)
        rebase = rebase.over(winner)
        verdict = rebase.verdict if rebase.refusal or len(rebase.repairs) > before else Verdict(Outcome.COMPATIBLE)
        meetings.append(_with_winner(_exact(operation.name, winner, verdict), winner))
        if rebase.refusal is not None:
            break
    return _refused(transaction, operation.name, tuple(meetings))


def _refused(transaction: Transaction, operation: str, meetings: tuple[Meeting, ...]) -> Refused:
    return Refused(
        transaction.uuid,
        operation,
        transaction.read_version,
        meetings,
        author=transaction.author,
        message=transaction.message,
    )


def _exact(mine: str, winner: ConcurrentCommit, verdict: Verdict) -> Meeting:
    reason = verdict.reason
    return Meeting(
        mine,
        winner.operation.name,
        answers=(verdict.outcome.name.lower(),),
        why=("The two do not touch the same thing.",) if reason is None else (reason.why,),
        rules=() if reason is None else (reason.rule,),
        hint=None if reason is None or verdict.outcome.lands else reason.hint,
    )


def _winners(table: Table, base_version: int) -> Iterator[ConcurrentCommit]:
    newest = table.latest()
    for located in newest.pinned.files.versions.all():
        if base_version < located.version <= newest.version:
            snapshot: Snapshot = load_snapshot(newest.pinned.files.objects, located)
            transaction = load_transaction(newest.pinned.files.objects, snapshot)
            if transaction is not None:
                yield ConcurrentCommit.of(snapshot.manifest, transaction, operations.of(transaction))


def _with_winner(meeting: Meeting, winner: ConcurrentCommit) -> Meeting:
    when = None if winner.timestamp_ns is None else utc_time(winner.timestamp_ns)
    return replace(
        meeting,
        version=winner.version,
        timestamp=when,
        writer=winner.writer,
        author=winner.author,
        message=winner.message,
    )


def from_error(facts: dict[str, Any]) -> Meeting:
    """What the JSON of an error says, which `conroi … --json` printed."""
    facts = facts.get("error", facts)
    found: Any = facts.get("reason")
    if found is None and facts.get("type") in MOVED:  # an error that knows only which version was in the way
        found = {"rule": MOVED[facts["type"]], "winner": {"version": facts.get("version")}}
    if not isinstance(found, dict) or found.get("rule") not in CATALOG:
        raise InvalidInputError(
            f"This error is no conflict between two commits: {facts.get('message', 'it says nothing')}",
            hint=str(facts.get("hint") or "Give the JSON that a command with --json wrote to stderr."),
        )
    reason = Reason(
        rule=str(found["rule"]),
        mine=str(found.get("mine", "your change")),
        theirs=str(found.get("theirs", "another commit")),
        fragments=tuple(found.get("fragments") or ()),
        rows=int(found.get("rows") or 0),
        names=tuple(found.get("names") or ()),
    )
    winner: Any = found.get("winner") or {}
    return Meeting(
        reason.mine,
        reason.theirs,
        (reason.outcome.name.lower(),),
        (str(facts["message"]), reason.why) if facts.get("reason") is None else (reason.why,),
        (reason.rule,),
        reason.hint.replace("version that is newest", f"version {winner.get('version', 'that is newest')}"),
        version=winner.get("version"),
        writer=winner.get("writer"),
        author=winner.get("author"),
        message=winner.get("message"),
    )
