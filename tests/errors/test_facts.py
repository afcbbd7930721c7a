"""The facts of an error are attributes: no caller needs to match its text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from conroi import (
    AlreadyExistsError,
    CommitStateUnknown,
    ConflictError,
    ConroiError,
    CorruptionError,
    DuplicateKeyError,
    ExpectedVersionMismatch,
    IncompatibleConflict,
    InvalidInputError,
    NotFoundError,
    RetryableConflict,
    StoreError,
    StoreUnavailable,
    TooMuchContention,
    UnsupportedError,
)
from conroi.conflicts.rules import Outcome
from conroi.format.manifest_file import decode_manifest_file, encode_manifest_file
from conroi.testing import Fault, FaultyObjects, Request, fail
from conroi.version import WRITER
from tests.support.instruments import interrupted, table_on

pytestmark = pytest.mark.contract("T12")

PUT = {"verb": "put_if_absent", "at": "_versions/*"}
SAID = "a concurrent commit was first"


def same_row(table: conroi.Table) -> object:
    return table.update({"n": "n + 1"}, where="id = 1", mode="rows", message=SAID)


def append(table: conroi.Table) -> object:
    return table.append([{"id": 3, "n": 30}], message=SAID)


def overwrite(table: conroi.Table) -> object:
    return table.overwrite([{"id": 3, "n": 30}], message=SAID)


Work = Callable[[conroi.Table], object]
CONFLICTS: dict[str, tuple[type[ConflictError], Work, Work, dict[str, str], str, str]] = {
    "an update of a row that was just updated": (
        RetryableConflict,
        same_row,
        lambda t: t.update({"n": "0"}, where="id = 1", mode="rows", retries=0),
        {},
        "Update",
        "Update",
    ),
    "an insert of a key that was just inserted": (
        RetryableConflict,
        append,
        lambda t: t.merge([{"id": 3, "n": 1}], on="id").when_not_matched_insert_all().execute(retries=0),
        {},
        "Update",
        "Append",
    ),
    "an append of a key that was just appended": (
        RetryableConflict,
        append,
        lambda t: t.append([{"id": 3, "n": 1}], retries=0),
        {},
        "Append",
        "Append",
    ),
    "an append to a table that was overwritten": (
        IncompatibleConflict,
        overwrite,
        lambda t: t.append([{"id": 4, "n": 1}]),
        {},
        "Append",
        "Overwrite",
    ),
    "a delete that was to be alone": (
        ExpectedVersionMismatch,
        append,
        lambda t: t.delete("id = 1", strict=True),
        {},
        "Delete",
        "Append",
    ),
    "an overwrite of a table that moved": (
        ExpectedVersionMismatch,
        append,
        lambda t: t.overwrite([{"id": 9, "n": 9}]),
        {},
        "Overwrite",
        "Append",
    ),
    "a delete that lost its only race": (
        TooMuchContention,
        append,
        lambda t: t.delete("id = 1", retries=0),
        PUT,
        "Delete",
        "Append",
    ),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_a_conflict_says_where_what_who_and_when(name: str, table: conroi.Table) -> None:
    kind, theirs, mine, moment, my_operation, their_operation = CONFLICTS[name]
    before = datetime.now(UTC)
    with pytest.raises(ConflictError) as caught:
        mine(interrupted(table, lambda: theirs(table), **moment))  # type: ignore[arg-type]
    error = caught.value
    assert type(error) is kind
    assert (error.table, error.base_version, error.version) == (table.uri, 1, 2)
    assert error.message
    assert error.hint
    reason = error.reason
    assert reason is not None
    assert (reason.mine, reason.theirs) == (my_operation, their_operation)
    winner = reason.winner
    assert winner is not None
    assert (winner.version, winner.message, winner.writer) == (2, SAID, " ".join(WRITER))
    assert winner.operation.name == their_operation
    assert winner.timestamp_ns is not None
    assert before.timestamp() - 1 <= winner.timestamp_ns / 1e9 <= datetime.now(UTC).timestamp() + 1
    assert SAID in reason.explain()
    assert reason.hint


def test_who_may_be_pylance(tmp_path: Path) -> None:
    root = str(tmp_path / "t")
    table = conroi.create_table(root, [{"id": 1, "n": 1}])
    with pytest.raises(RetryableConflict) as caught:
        interrupted(table, lambda: lance.dataset(root).update({"n": "5"})).update({"n": "6"}, mode="rows", retries=0)
    assert caught.value.reason is not None
    assert caught.value.reason.winner is not None
    assert caught.value.reason.winner.writer == f"lance {lance.__version__}"
    assert "lance" in str(caught.value)


def test_an_expected_version_knows_both_versions(table: conroi.Table) -> None:
    append(table)
    with pytest.raises(ExpectedVersionMismatch) as caught:
        table.delete("id = 1", expect=1)
    error = caught.value
    assert (error.expected, error.actual, error.base_version, error.version, error.table) == (1, 2, 1, 2, table.uri)
    assert error.hint
    assert error.reason is not None
    assert error.reason.winner is not None
    assert (error.reason.theirs, error.reason.winner.message) == ("Append", SAID)
    assert error.reason.outcome is Outcome.INCOMPATIBLE


def test_a_version_that_is_still_to_come_has_no_author(table: conroi.Table) -> None:
    with pytest.raises(ExpectedVersionMismatch) as caught:
        table.delete("id = 1", expect=7)
    assert (caught.value.expected, caught.value.actual, caught.value.reason) == (7, 1, None)


def test_too_much_contention_counts_its_attempts(table: conroi.Table) -> None:
    writer = interrupted(table, lambda: table.set_config({"a": "b"}, message=SAID), times=4, **PUT)
    with pytest.raises(TooMuchContention) as caught:
        writer.append([{"id": 3, "n": 3}], retries=3)
    error = caught.value
    assert (error.attempts, error.base_version, error.version, error.table) == (4, 1, 5, table.uri)
    assert error.reason is not None
    assert error.reason.winner is not None
    assert (error.reason.rule, error.reason.winner.version) == ("table/contended", 5)


def test_the_lower_layer_says_the_same(table: conroi.Table) -> None:
    from tests.support.transactions import reserve_fragments

    class Lock:
        def __init__(self, _version: int) -> None:
            append(table)

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    with pytest.raises(TooMuchContention) as caught:
        conroi.commit(table.uri, reserve_fragments(1), retries=0, commit_lock=Lock)
    assert caught.value.reason is not None
    assert (caught.value.reason.mine, caught.value.reason.theirs) == ("ReserveFragments", "Append")


# ------------------------------------------------------------------------------ not conflicts


def test_duplicate_keys_are_named(table: conroi.Table) -> None:
    with pytest.raises(DuplicateKeyError) as caught:
        table.append([{"id": 2, "n": 0}])
    error = caught.value
    assert (error.table, error.version, error.keys) == (table.uri, 1, ({"id": 2},))
    assert error.hint


def test_not_found_says_what_there_is(table: conroi.Table) -> None:
    with pytest.raises(NotFoundError) as caught:
        table.update({"zz": "1"})
    error = caught.value
    assert (error.table, error.version) == (table.uri, 1)
    assert "'zz'" in error.message
    assert "id, n" in str(error.hint)


@pytest.mark.parametrize(
    ("kind", "work"),
    [
        (NotFoundError, lambda t: t.at(99)),
        (NotFoundError, lambda t: t.at(tag="none")),
        (NotFoundError, lambda t: conroi.open_table("memory://nothing-here")),
        (InvalidInputError, lambda t: t.delete("id = = 1")),
        (InvalidInputError, lambda t: t.append([{"id": "text"}])),
        (AlreadyExistsError, lambda t: conroi.create_table(t.uri, [{"a": 1}])),
    ],
)
def test_every_refusal_has_its_type_a_table_and_a_hint(
    kind: type[ConroiError], work: Work, table: conroi.Table
) -> None:
    with pytest.raises(ConroiError) as caught:
        work(table)
    assert type(caught.value) is kind
    assert caught.value.table
    assert caught.value.hint


def test_an_unknown_outcome_knows_its_transaction(table: conroi.Table) -> None:
    """The manifest is written, its answer is lost, and from then on the storage is silent."""
    is_silent = False

    def before(_request: Request) -> None:
        if is_silent:
            raise StoreUnavailable("no answer")

    def after(request: Request) -> None:
        nonlocal is_silent
        is_silent = is_silent or request.verb == "put_if_absent"
        before(request)

    with pytest.raises(CommitStateUnknown) as caught:
        table_on(FaultyObjects(table._files.objects, [Fault(before, after, times=None)])).append([{"id": 3, "n": 3}])
    error = caught.value
    assert (error.table, error.version) == (table.uri, 2)
    assert error.hint
    landed = [commit for commit in table.latest().history() if commit.transaction_uuid == error.transaction_uuid]
    assert [commit.version for commit in landed] == [2], "with its id one can find out that it did land"


def test_storage_that_does_not_answer_is_a_store_error(table: conroi.Table) -> None:
    broken = FaultyObjects(table._files.objects, [fail(times=None)])
    with pytest.raises(StoreError) as caught:
        table_on(broken)
    assert isinstance(caught.value, StoreUnavailable)


def test_damage_says_where(tmp_path: Path) -> None:
    root = tmp_path / "t"
    conroi.create_table(str(root), [{"id": 1}]).append([{"id": 2}])
    newest = min((root / "_versions").glob("*.manifest"))
    newest.write_bytes(newest.read_bytes()[:-40])
    with pytest.raises(CorruptionError) as caught:
        conroi.open_table(str(root))
    assert (caught.value.table, caught.value.version) == (str(root), 2)
    assert caught.value.hint


def test_a_feature_from_the_future_is_its_own_type(tmp_path: Path) -> None:
    root = tmp_path / "t"
    conroi.create_table(str(root), [{"id": 1}])
    newest = next((root / "_versions").glob("*.manifest"))
    file = decode_manifest_file(newest.read_bytes())
    head = file.manifest.editable_head()
    head.reader_feature_flags |= 1 << 40
    newest.write_bytes(encode_manifest_file(file.manifest.changed(head=head), file.transaction or b""))
    with pytest.raises(UnsupportedError) as caught:
        conroi.open_table(str(root))
    assert caught.value.hint
    assert isinstance(caught.value, InvalidInputError)


def test_the_text_has_all_of_it_for_people() -> None:
    error = NotFoundError("No such column.", table="t", version=3, hint="Look again.")
    assert str(error) == "No such column. [table t, version 3] Hint: Look again."
    assert str(NotFoundError("No such table.", table="t")) == "No such table. [table t]"
    assert str(NotFoundError("Nothing.")) == "Nothing."


def test_all_have_one_root_that_is_ours_alone() -> None:
    assert issubclass(ConflictError, ConroiError)
    assert not issubclass(ConroiError, pa.ArrowException | OSError | ValueError)
