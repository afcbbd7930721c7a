"""The past of a table: by number, by tag, by time; who made what; and going back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from conroi import NotFoundError
from conroi.testing import SeededEnvironment
from tests.support.refusals import refused

pytestmark = pytest.mark.contract("T10")
START = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock() -> SeededEnvironment:
    """A clock that stands at the start of 2030 until the test moves it."""
    return SeededEnvironment(7, start_ns=int(START.timestamp()) * 1_000_000_000)


@pytest.fixture
def table(uri: str, clock: SeededEnvironment) -> conroi.Table:
    """Twenty versions, one an hour: version n was made at n - 1 o'clock and has n rows."""
    table = conroi.create_table(uri, [{"id": 1}], environment=clock)
    for number in range(2, 21):
        clock.sleep(3600)
        table = table.append([{"id": number}])
    return table


def test_every_version_opens_by_number(table: conroi.Table) -> None:
    assert table.versions() == list(range(1, 21))
    for version in (1, 7, 20):
        assert table.at(version).count_rows() == version
        assert table.at(version).to_arrow()["id"].to_pylist() == list(range(1, version + 1))
        assert conroi.open_table(table.uri, version=version).version == version


@pytest.mark.parametrize("number", range(1, 21))
def test_the_newest_version_that_is_not_later_is_found(number: int, table: conroi.Table) -> None:
    moment = START + timedelta(hours=number - 1)
    assert table.at(as_of=moment).version == number
    assert table.at(as_of=moment + timedelta(minutes=59)).version == number
    if number > 1:
        assert table.at(as_of=moment - timedelta(microseconds=1)).version == number - 1


def test_a_moment_may_be_text_or_in_another_time_zone(table: conroi.Table) -> None:
    assert table.at(as_of="2030-01-01T05:30:00+00:00").version == 6
    assert table.at(as_of="2030-01-01T07:30:00+02:00").version == 6
    assert table.at(as_of=datetime(2030, 1, 1, 7, 30, tzinfo=timezone(timedelta(hours=2)))).version == 6
    assert table.at(as_of="2099-01-01").version == 20
    with refused(table, NotFoundError, "no version that old"):
        table.at(as_of="2029-12-31T23:59:59+00:00")


def test_a_look_by_time_reads_few_manifests(table: conroi.Table) -> None:
    from conroi.testing import CountingObjects
    from tests.support.instruments import table_on

    counting = CountingObjects(table._files.objects)
    with counting.measure() as measured:
        table_on(counting).at(as_of="2030-01-01T05:30:00+00:00")
    assert measured.requests("get", "manifest") <= 7  # one to open, five or six to halve twenty


def test_time_never_goes_back_even_if_a_clock_does(uri: str) -> None:
    late, early = SeededEnvironment(1, start_ns=2_000_000_000), SeededEnvironment(2, start_ns=1_000_000_000)
    conroi.create_table(uri, [{"id": 1}], environment=late)
    conroi.open_table(uri, environment=early).append([{"id": 2}])
    table = conroi.open_table(uri, environment=early).append([{"id": 3}])
    stamps = [snapshot._pinned.snapshot.timestamp_ns for snapshot in (table.at(1), table.at(2), table.at(3))]
    assert stamps == [2_000_000_000, 2_000_000_001, 2_000_000_002]


# -------------------------------------------------------------------------------- history


def test_history_says_who_did_what_when_and_why(uri: str, clock: SeededEnvironment) -> None:
    table = conroi.create_table(uri, [{"id": 1}, {"id": 2}], message="first load", environment=clock)
    clock.sleep(60)
    table = table.delete("id = 1", message="clean up", properties={"job": "nightly"})
    lance.write_dataset(pa.table({"id": [3]}), table.uri, mode="append")
    newest, middle, oldest = table.latest().history()
    assert (oldest.version, oldest.operation, oldest.message, oldest.rows) == (1, "Overwrite", "first load", 2)
    assert (middle.version, middle.operation, middle.message, middle.rows) == (2, "Delete", "clean up", 1)
    assert (newest.version, newest.operation, newest.message, newest.rows) == (3, "Append", None, 2)
    assert (oldest.timestamp, middle.timestamp) == (START, START + timedelta(seconds=60))
    assert middle.properties["job"] == "nightly"
    assert (oldest.read_version, middle.read_version) == (0, 1)
    assert (oldest.writer, newest.writer) == (f"conroi {conroi.__version__}", "lance 14.0.2")
    assert len({commit.transaction_uuid for commit in (newest, middle, oldest)}) == 3


def test_history_is_that_of_the_pinned_version(table: conroi.Table) -> None:
    assert [commit.version for commit in table.at(3).history()] == [3, 2, 1]
    assert [commit.version for commit in table.history(2)] == [20, 19]
    assert table.history(0) == []


def test_a_message_is_one_that_pylance_shows_too(uri: str) -> None:
    table = conroi.create_table(uri, [{"id": 1}]).append([{"id": 2}], message="hello")
    transaction = lance.dataset(table.uri).read_transaction(2)
    assert transaction is not None
    assert transaction.transaction_properties is not None
    assert transaction.transaction_properties["__lance_commit_message"] == "hello"


# ----------------------------------------------------------------------------------- tags


def test_a_tag_names_a_version_for_conroi_and_pylance(table: conroi.Table) -> None:
    table.at(5).tags.create("monday")
    table.tags.create("friday", 9)
    assert (table.at(tag="monday").version, conroi.open_table(table.uri, tag="friday").version) == (5, 9)
    assert lance.dataset(table.uri, version="monday").version == 5
    assert [(tag.name, tag.version) for tag in table.tags] == [("friday", 9), ("monday", 5)]
    assert repr(table.tags) == "Tags(friday=9, monday=5)"


def test_a_tag_of_pylance_is_read(table: conroi.Table) -> None:
    lance.dataset(table.uri).tags.create("theirs", 4)
    assert table.at(tag="theirs").version == 4
    assert table.tags.get("theirs").created_at is not None


def test_a_tag_is_moved_and_deleted(table: conroi.Table) -> None:
    made = table.tags.create("here", 2)
    moved = table.tags.move("here", 3)
    assert (made.version, moved.version, moved.created_at) == (2, 3, made.created_at)
    table.tags.delete("here")
    with refused(table, NotFoundError, "here"):
        table.at(tag="here")
    assert list(table.tags) == []


def test_a_damaged_tag_is_named(table: conroi.Table) -> None:
    table.tags.create("here")
    file = Path(table.uri) / "_refs" / "tags" / "here.json"
    for content in (b"{", b"[1]", b'{"version": "x"}', b"\xff"):
        file.write_bytes(content)
        with refused(table, conroi.CorruptionError, "here"):
            table.at(tag="here")


# -------------------------------------------------------------------------------- restore


def test_restore_makes_a_new_version_with_the_old_rows(table: conroi.Table) -> None:
    restored = table.restore(3)
    assert (restored.version, restored.count_rows()) == (21, 3)
    assert restored.at(20).count_rows() == 20
    assert restored.history(1)[0].operation == "Restore"


def test_restore_by_tag_and_by_time(table: conroi.Table) -> None:
    table.tags.create("good", 4)
    assert table.restore(tag="good").count_rows() == 4
    assert table.latest().restore(as_of="2030-01-01T01:00:00+00:00").count_rows() == 2


def test_ids_never_come_back_after_a_restore(uri: str) -> None:
    table = conroi.create_table(uri, [{"id": 1}], stable_row_ids=True).append([{"id": 2}]).restore(1)
    again = table.append([{"id": 3}])
    assert again.to_arrow(with_row_id=True).to_pylist() == [{"id": 1, "_rowid": 0}, {"id": 3, "_rowid": 2}]
    assert [fragment.id for fragment in again._pinned.manifest.fragments] == [0, 2]


def test_the_time_that_a_version_shows_finds_it(tmp_path: Path):
    table = conroi.create_table(tmp_path / "t.lance", [{"id": 0}])
    for number in range(1, 12):  # of nanoseconds a datetime shows only the microsecond, rounded either way
        table = table.append([{"id": number}])
    for commit in table.history():
        assert table.at(as_of=commit.timestamp).version == commit.version
        assert table.at(as_of=commit.timestamp.isoformat()).version == commit.version
