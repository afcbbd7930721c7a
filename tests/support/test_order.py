"""The order of tests: Spark first, in two test processes."""

from __future__ import annotations

from tests.support.order_plugin import ordered

TESTS = [
    ("tests/commit/test_races.py", False),
    ("tests/spark/test_java.py", False),
    ("tests/spark/test_reads.py", True),
    ("tests/table/test_rows.py", False),
    ("tests/verbs/test_key_check.py", False),
    ("tests/versions/test_records.py", False),
]


def test_the_shared_session_heads_the_first_part_and_programs_the_second() -> None:
    assert ordered(TESTS, 2) == [2, 0, 3, 1, 4, 5]


def test_one_process_begins_with_both() -> None:
    assert ordered(TESTS, 1) == [2, 1, 0, 3, 4, 5]


def test_every_test_is_there_once_whatever_the_number_of_processes() -> None:
    assert all(sorted(ordered(TESTS, processes)) == list(range(6)) for processes in range(1, 9))
