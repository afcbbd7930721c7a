"""An error a user can act on, and a table that is exactly as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path

import pytest

import conroi


@contextlib.contextmanager
def refused(
    table: conroi.Table, kind: type[conroi.ConroiError], *mentions: str
) -> Generator[pytest.ExceptionInfo[conroi.ConroiError]]:
    """The work inside is refused by this very type of error, with a hint, and leaves no trace in the table."""
    before = state_of(table)
    with pytest.raises(kind) as caught:
        yield caught
    assert_helpful(caught.value, kind, *mentions)
    assert caught.value.table == table.name
    assert state_of(table) == before


def assert_helpful(error: conroi.ConroiError, kind: type[conroi.ConroiError], *mentions: str) -> None:
    """The very type, with a sentence of what happened and one of what to do, in words that are not Rust's."""
    assert type(error) is kind, f"{type(error).__name__} instead of {kind.__name__}: {error}"
    assert error.message
    assert error.hint
    for mention in mentions:
        assert mention in str(error)
    assert ".rs:" not in str(error)


def state_of(table: conroi.Table) -> tuple[list[int], object, list[dict[str, object]]]:
    """All that others can see: the versions, the schema and the rows."""
    newest = table.latest()
    return newest.versions(), newest.schema, newest.to_arrow().to_pylist()


def files_of(folder: Path) -> set[str]:
    """Every file below a folder, by its path."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
