"""What every store of records promises, on each of them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from conroi.errors import ExpectedVersionMismatch, InvalidInputError
from conroi.versions import open_records
from conroi.versions.dynamodb_records import LARGEST_BATCH
from conroi.versions.records import Record, RecordStore, RecordTaken
from tests.support.databases import PASSWORD, PASSWORD_IN_URI


@pytest.fixture
def records(empty_store: str) -> Iterator[RecordStore]:
    found = open_records(empty_store)
    yield found
    found.close()


def record(table: str, version: int, who: str = "a") -> Record:
    return Record(table, version, f"_versions/{version}.manifest-{who}", 100 + version)


def names(records: RecordStore, table: str) -> list[tuple[int, str]]:
    return [(found.version, found.path.rpartition("-")[2]) for found in records.all(table)]


# --------------------------------------------------------------------------- one table


def test_a_table_without_records_is_not_there(records: RecordStore) -> None:
    assert (records.newest("t"), records.get("t", 1), records.all("t")) == (None, None, [])


def test_what_was_put_can_be_read_back(records: RecordStore) -> None:
    for version in (1, 2, 3):
        records.put_if_absent([record("t", version)])
    assert records.newest("t") == Record("t", 3, "_versions/3.manifest-a", 103)
    assert records.get("t", 2) == Record("t", 2, "_versions/2.manifest-a", 102)
    assert [found.version for found in records.all("t")] == [1, 2, 3]


def test_versions_are_ordered_as_numbers(records: RecordStore) -> None:
    for version in (9, 10, 100, 2**40):
        records.put_if_absent([record("t", version)])
    assert [found.version for found in records.all("t")] == [9, 10, 100, 2**40]
    newest = records.newest("t")
    assert newest is not None
    assert newest.version == 2**40


@pytest.mark.contract("X5")
def test_the_second_to_put_a_version_hears_who_was_first(records: RecordStore) -> None:
    records.put_if_absent([record("t", 1, "first")])
    with pytest.raises(RecordTaken) as caught:
        records.put_if_absent([record("t", 1, "second")])
    assert (caught.value.table, caught.value.version) == ("t", 1)
    assert caught.value.path == "_versions/1.manifest-first"
    assert names(records, "t") == [(1, "first")]


@pytest.mark.contract("T11")
def test_the_very_same_put_again_is_fine_so_a_lost_answer_can_be_asked_for_again(records: RecordStore) -> None:
    batch = [record("t", 1), record("u", 5)]
    records.put_if_absent(batch, {"t": 0, "u": 0})
    records.put_if_absent(batch, {"t": 0, "u": 0})
    assert names(records, "t") == [(1, "a")]


def test_a_deleted_version_does_not_come_back(records: RecordStore) -> None:
    for version in (1, 2, 3):
        records.put_if_absent([record("t", version)])
    records.forget("t", [1, 2])
    with pytest.raises(RecordTaken) as caught:
        records.put_if_absent([record("t", 2, "late")])
    assert caught.value.path is None
    assert names(records, "t") == [(3, "a")]


def test_a_record_can_be_pointed_to_another_file_if_it_is_there(records: RecordStore) -> None:
    records.put_if_absent([record("t", 1)])
    assert records.point("t", 1, "_versions/1.manifest", 7)
    assert records.get("t", 1) == Record("t", 1, "_versions/1.manifest", 7)
    assert not records.point("t", 2, "_versions/2.manifest", 7)
    assert records.get("t", 2) is None


def test_a_table_whose_records_were_deleted_can_be_put_again(records: RecordStore) -> None:
    records.put_if_absent([record("t", 1)])
    records.put_if_absent([record("t", 2)])
    records.forget("t", [1, 2, 3])
    assert records.newest("t") is None
    records.put_if_absent([record("t", 1, "again")], {"t": 0})
    assert names(records, "t") == [(1, "again")]


ODD = ["s3://bucket/a b/ü%20.lance", "it's", 'a"b', "a;DROP TABLE conroi_records", "%s", "{}", "x" * 900, "T", "t"]


def test_tables_with_odd_names_are_kept_apart(records: RecordStore) -> None:
    records.put_if_absent([record(table, number + 1) for number, table in enumerate(ODD)])
    assert [records.newest(table) for table in ODD] == [record(table, n + 1) for n, table in enumerate(ODD)]


# -------------------------------------------------------------------------- many tables


@pytest.mark.contract("X6")
def test_a_batch_lands_whole(records: RecordStore) -> None:
    records.put_if_absent([record("t", 1), record("u", 4), record("v", 9)])
    assert [names(records, table) for table in "tuv"] == [[(1, "a")], [(4, "a")], [(9, "a")]]


@pytest.mark.contract("X6")
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_batch_with_one_version_that_is_taken_does_not_land_at_all(records: RecordStore, position: int) -> None:
    batch = [record(table, 2, "mine") for table in "tuv"]
    records.put_if_absent([record("tuv"[position], 2, "theirs")])
    with pytest.raises(RecordTaken) as caught:
        records.put_if_absent(batch)
    assert caught.value.table == "tuv"[position]
    found = [names(records, table) for table in "tuv"]
    assert found == [[(2, "theirs")] if at == position else [] for at in range(3)]


@pytest.mark.contract("P6")
def test_one_version_twice_in_a_batch_is_refused(records: RecordStore) -> None:
    with pytest.raises(InvalidInputError) as caught:
        records.put_if_absent([record("t", 1, "a"), record("u", 1), record("t", 1, "b")])
    assert caught.value.table == "t"
    assert (records.all("t"), records.all("u")) == ([], [])


@pytest.mark.parametrize("version", [0, -1, 1 << 63])
def test_a_number_that_is_no_version_is_refused(records: RecordStore, version: int) -> None:
    with pytest.raises(InvalidInputError):
        records.put_if_absent([record("t", version)])


# --------------------------------------------------------------------- expected versions


@pytest.mark.contract("P2")
def test_an_empty_map_of_expected_versions_checks_nothing(records: RecordStore) -> None:
    records.put_if_absent([record("t", 7)], {})
    records.put_if_absent([record("t", 9)])
    assert [version for version, _ in names(records, "t")] == [7, 9]


@pytest.mark.contract("P2")
@pytest.mark.parametrize(("expected", "actual"), [(1, 2), (3, 2), (0, 2), (2, None)])
def test_a_written_table_must_be_where_it_is_expected(records: RecordStore, expected: int, actual: int | None) -> None:
    records.put_if_absent([record("t", 1)])
    records.put_if_absent([record("t", 2)])
    if actual is None:
        records.put_if_absent([record("t", 3)], {"t": expected})
        return
    with pytest.raises(ExpectedVersionMismatch) as caught:
        records.put_if_absent([record("t", expected + 1, "late")], {"t": expected})
    assert (caught.value.table, caught.value.expected, caught.value.actual) == ("t", expected, actual)
    assert names(records, "t") == [(1, "a"), (2, "a")]


@pytest.mark.contract("P2")
@pytest.mark.parametrize("expected", [0, 3, 5])
def test_a_table_that_is_only_expected_must_be_there_too(records: RecordStore, expected: int) -> None:
    for version in (3, 4):
        records.put_if_absent([record("rates", version)])
    with pytest.raises(ExpectedVersionMismatch) as caught:
        records.put_if_absent([record("t", 1)], {"t": 0, "rates": expected})
    assert (caught.value.table, caught.value.expected, caught.value.actual) == ("rates", expected, 4)
    assert records.all("t") == []
    records.put_if_absent([record("t", 1)], {"t": 0, "rates": 4})
    assert [version for version, _ in names(records, "rates")] == [3, 4], "to expect a table does not write it"


@pytest.mark.contract("P2")
def test_an_unknown_table_is_at_version_nought(records: RecordStore) -> None:
    with pytest.raises(ExpectedVersionMismatch) as caught:
        records.put_if_absent([record("t", 1)], {"unknown": 1})
    assert (caught.value.table, caught.value.expected, caught.value.actual) == ("unknown", 1, 0)
    records.put_if_absent([record("t", 1)], {"unknown": 0})
    assert records.newest("unknown") is None


def test_expected_versions_can_be_checked_without_writing_anything(records: RecordStore) -> None:
    records.put_if_absent([record("t", 1)])
    records.put_if_absent([], {"t": 1})
    with pytest.raises(ExpectedVersionMismatch):
        records.put_if_absent([], {"t": 2})


def test_a_negative_expectation_is_refused(records: RecordStore) -> None:
    with pytest.raises(InvalidInputError):
        records.put_if_absent([record("t", 1)], {"t": -1})


# ------------------------------------------------------------------------- how it is used


def test_a_store_that_was_closed_opens_again(records: RecordStore) -> None:
    records.put_if_absent([record("t", 1)])
    records.close()
    assert names(records, "t") == [(1, "a")]


def test_a_store_can_be_sent_to_another_process(records: RecordStore) -> None:
    records.put_if_absent([record("t", 1)])
    again = pickle.loads(pickle.dumps(records))
    assert names(again, "t") == [(1, "a")]
    again.close()


def test_a_store_shows_where_it_is_but_no_secret(records: RecordStore) -> None:
    assert all(secret not in repr(records) for secret in (PASSWORD, PASSWORD_IN_URI, "tester"))


def test_tables_of_one_process_share_a_connection(empty_store: str) -> None:
    assert open_records(empty_store) is open_records(empty_store)


@pytest.mark.contract("X6")
def test_a_big_batch_lands_or_is_refused_with_its_limit(records: RecordStore) -> None:
    batch = [record(f"t{number}", 1) for number in range(LARGEST_BATCH + 1)]
    if "Dynamo" in repr(records):
        with pytest.raises(InvalidInputError, match=f"at most {LARGEST_BATCH}"):
            records.put_if_absent(batch)
        assert records.newest("t0") is None
        batch = batch[:LARGEST_BATCH]
    records.put_if_absent(batch)
    assert all(records.newest(one.table) == one for one in batch)
