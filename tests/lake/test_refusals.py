"""Handles that have fewer verbs: a snapshot of a lake, and tables inside a transaction."""

from __future__ import annotations

from typing import Any

import pytest

import conroi
from conroi.refusals import IN_TRANSACTION, PAST_IN_TRANSACTION, PAST_LAKE
from conroi.staged_table import PastTable, StagedTable

INTERNAL = {"do"}


def public(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")} - INTERNAL


@pytest.mark.parametrize(
    ("whole", "part", "refused"),
    [
        (conroi.Lake, conroi.LakeSnapshot, PAST_LAKE),
        (conroi.Table, StagedTable, IN_TRANSACTION),
        (conroi.Table, PastTable, PAST_IN_TRANSACTION),
    ],
)
def test_every_verb_exists_or_is_refused_with_a_hint(whole: type, part: type, refused: dict[str, object]):
    wrong = (public(whole) - public(part)) ^ refused.keys()
    assert not wrong, f"add to src/conroi/refusals.py, or remove there: {wrong}"
    assert not public(part) - public(whole)


def test_a_snapshot_has_no_verb_that_writes(uri: str):
    lake = conroi.connect(uri)
    lake.create_table("t", [{"id": 1}])
    past: Any = lake.at(1)
    for name in PAST_LAKE:
        with pytest.raises(conroi.InvalidInputError, match="at version 1; it can only be read") as caught:
            getattr(past, name)("t")
        assert caught.value.hint
    assert lake.version == 2
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = past.nonsense


def test_a_past_version_inside_a_transaction_has_no_verb_that_writes(uri: str):
    lake = conroi.connect(uri)
    lake.create_table("t", [{"id": 1}])
    past: Any = lake.begin()["t"].at(1)
    for name in PAST_IN_TRANSACTION:
        with pytest.raises(conroi.InvalidInputError) as caught:
            getattr(past, name)()
        assert caught.value.hint
        assert caught.value.table == "t"
