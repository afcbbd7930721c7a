"""What a commit is asked to do: texts, guards, detached versions, and the choice of an overwrite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

import conroi
from conroi.commit.change import Guard, all_of, checked_texts, detached_version, must_not_move
from conroi.commit.execution import run
from conroi.conflicts import ConcurrentCommit
from conroi.errors import InvalidInputError, UnsupportedError
from conroi.format.naming import DETACHED_BIT, ManifestNaming
from conroi.snapshots.snapshot import Snapshot


@pytest.mark.parametrize("texts", [{"a": 1}, {1: "a"}, {"a": None}, {"a": "b", "c": b"d"}])
def test_only_text_is_kept_with_a_commit(texts: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match="is not text"):
        checked_texts(texts)
    assert checked_texts({"a": "b"}) == {"a": "b"}


def test_an_overwrite_fails_or_wins() -> None:
    assert (must_not_move("fail", "t"), must_not_move("win", "t")) == (True, False)
    with pytest.raises(InvalidInputError, match="if_moved='other' is not known"):
        must_not_move("other", "t")


def test_guards_are_asked_in_their_order() -> None:
    asked: list[tuple[str, object, object]] = []

    def guard(name: str) -> Guard:
        return lambda head, winners: asked.append((name, head, winners))

    assert all_of([]) is None
    both = all_of([guard("one"), guard("two")])
    assert both is not None
    head, winners = cast("Snapshot", object()), cast("Sequence[ConcurrentCommit]", object())
    both(head, winners)
    assert asked == [("one", head, winners), ("two", head, winners)]


def test_a_detached_version_needs_a_table_with_names_of_the_newer_kind(tmp_path: Path) -> None:
    table = conroi.create_table(tmp_path / "t", [{"id": 1}])
    files, base = table._files, table._pinned.snapshot
    numbers = {detached_version(base, files) for _ in range(20)}
    assert len(numbers) == 20
    assert all(DETACHED_BIT <= number < 2 * DETACHED_BIT for number in numbers)
    with pytest.raises(InvalidInputError, match="first version"):
        detached_version(None, files)
    older = conroi.create_table(tmp_path / "old", [{"id": 1}], naming=ManifestNaming.V1)
    with pytest.raises(UnsupportedError, match="newer kind"):
        older.append([{"id": 2}], detached=True)


@pytest.mark.parametrize("expect", [True, "1", 1.0])
def test_an_expected_version_is_a_whole_number(expect: int, tmp_path: Path) -> None:
    table = conroi.create_table(tmp_path / "t", [{"id": 1}])
    with pytest.raises(InvalidInputError, match="is not a version number"):
        run(table._files, table._pinned.snapshot, lambda _head: None, {"expect": expect})
    done = run(table._files, table._pinned.snapshot, lambda _head: None, {"expect": 1})
    assert (done.snapshot.version, done.result) == (1, None)
