"""Two questions that come before the matrix, and do not care who was first."""

from __future__ import annotations

from conroi.conflicts import facts
from conroi.conflicts.rule import Finding, Rule, found
from conroi.conflicts.rules.settings import changes_schema
from conroi.conflicts.staged import Staged
from conroi.operations import Append, DataOverlay, DataReplacement, Merge, Update
from conroi.operations.base import Operation

BRINGS_VALUES = (Append, Update, DataReplacement, DataOverlay)


def _null_promise(mine: Staged, theirs: Operation) -> Finding | None:
    one = mine.operation
    if (facts.may_break_null_promise(one) and isinstance(theirs, BRINGS_VALUES)) or (
        isinstance(one, BRINGS_VALUES) and facts.may_break_null_promise(theirs)
    ):
        return found("columns/nulls")
    return None


def _schema_metadata(mine: Staged, theirs: Operation) -> Finding | None:
    one = mine.operation
    if (isinstance(one, Merge) and changes_schema(theirs)) or (changes_schema(one) and isinstance(theirs, Merge)):
        return found("columns/metadata")
    return None


NULL_PROMISE = Rule(
    "Retried if one changes columns without promising that no value has to be there, and the other brings values.",
    ("columns/nulls",),
    _null_promise,
)
SCHEMA_METADATA = Rule(
    "Retried if one adds columns and the other changes metadata of the schema or its columns.",
    ("columns/metadata",),
    _schema_metadata,
)
PRECHECKS = (NULL_PROMISE, SCHEMA_METADATA)
