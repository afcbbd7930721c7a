"""Config, metadata and storage locations, set by two at once."""

from __future__ import annotations

from typing import Any

import pytest

from conroi import operations as ops
from conroi.conflicts.reason import Reason
from conroi.conflicts.rebase import Rebase
from conroi.conflicts.rules import Outcome
from conroi.format import lance_pb2 as pb
from tests.conflicts.builders import B, C, schema, settings, staged, winner


def reason(mine: ops.Operation, theirs: ops.Operation) -> Reason | None:
    return Rebase(staged(mine)).over(winner(theirs)).verdict.reason


def replacing(**changes: dict[str, str | None]) -> ops.UpdateConfig:
    maps: dict[str, Any] = {name: ops.update_map(change, replace=True) for name, change in changes.items()}
    return ops.UpdateConfig(**maps)


def on_columns(*columns: int) -> ops.UpdateConfig:
    return ops.UpdateConfig(field_metadata={column: ops.update_map({"x": "1"}) for column in columns})


OVERWRITE = ops.Overwrite(schema=tuple(schema()), config_upsert_values={"k": "1"})
MERGE = ops.Merge(fragments=(), schema=tuple(schema()), preserves_nullability=True)
RESTORE = ops.Restore(version=1)
EMPTY = ops.update_map({})


@pytest.mark.parametrize(
    ("mine", "theirs", "names"),
    [
        (settings(config={"k": "1", "x": "1"}), settings(config={"k": "2", "y": "1"}), ("k",)),
        (settings(config={"k": None}), settings(config={"k": "2"}), ("k",)),
        (settings(config={"k": None}), settings(config={"k": None}), None),
        # to empty the config is no clash, as long as no key is set by both
        (replacing(config={"j": "1"}), settings(config={"k": "2"}), None),
        (settings(table_metadata={"t": "1"}), settings(table_metadata={"t": None}), ("t",)),
        (settings(table_metadata={"t": None}), settings(table_metadata={"t": None}), ("t",)),
        (settings(table_metadata={"t": "1"}), settings(table_metadata={"u": "1"}), None),
        (settings(table_metadata={"t": "1"}), replacing(table_metadata={"u": "1"}), ("the table's metadata",)),
        (settings(config={"k": "1"}), settings(table_metadata={"k": "1"}), None),
        (settings(schema_metadata={"s": "1"}), settings(schema_metadata={"u": "1"}), ("the schema's metadata",)),
        (on_columns(B, C), on_columns(C), ("metadata of column c",)),
        (on_columns(B), on_columns(C), None),
        (OVERWRITE, settings(config={"k": None}), ("k",)),
        (settings(config={"k": None}), OVERWRITE, ("k",)),
        (OVERWRITE, settings(table_metadata={"k": "1"}), None),
    ],
)
def test_same_setting_is_incompatible_and_named(
    mine: ops.Operation, theirs: ops.Operation, names: tuple[str, ...] | None
) -> None:
    found = reason(mine, theirs)
    if names is None:
        assert found is None
    else:
        assert found is not None
        assert (found.outcome, found.names) == (Outcome.INCOMPATIBLE, names)


@pytest.mark.parametrize(
    "nothing", [ops.UpdateConfig(schema_metadata=EMPTY), ops.UpdateConfig(field_metadata={B: EMPTY})]
)
def test_metadata_that_is_named_but_not_changed(nothing: ops.UpdateConfig) -> None:
    """As with pylance: it does not matter to a merge or a restore, but an overwrite takes the schema it names."""
    assert reason(nothing, MERGE) is reason(MERGE, nothing) is None
    assert reason(nothing, RESTORE) is reason(RESTORE, nothing) is None
    found = reason(nothing, OVERWRITE)
    assert found is not None
    assert found.outcome is Outcome.INCOMPATIBLE


def test_metadata_that_is_emptied_is_changed() -> None:
    found = reason(RESTORE, replacing(schema_metadata={}))
    assert found is not None
    assert found.outcome is Outcome.INCOMPATIBLE


def test_metadata_of_a_dropped_column_is_incompatible() -> None:
    without_b = ops.Project(schema=(schema()[0], schema()[2]), preserves_nullability=True)
    found = reason(on_columns(B), without_b)
    assert found is not None
    assert (found.rule, found.names, found.outcome) == ("settings/column-gone", ("b",), Outcome.INCOMPATIBLE)
    assert reason(on_columns(C), without_b) is None


def bases(*new: pb.BasePath) -> ops.UpdateBases:
    return ops.UpdateBases(new_bases=new)


@pytest.mark.parametrize(
    ("theirs", "is_same"),
    [
        (pb.BasePath(id=3, path="/other"), True),
        (pb.BasePath(name="n", path="/other"), True),
        (pb.BasePath(path="/p"), True),
        (pb.BasePath(id=4, name="m", path="/other"), False),
        (pb.BasePath(path="/other"), False),
    ],
    ids=["id", "name", "path", "all other", "no id and no name"],
)
def test_storage_locations_clash_by_id_name_or_path(theirs: pb.BasePath, is_same: bool) -> None:
    mine = bases(pb.BasePath(id=3, name="n", path="/p"))
    assert (reason(mine, bases(theirs)) is not None) == is_same
    assert (reason(bases(theirs), mine) is not None) == is_same


def test_two_locations_that_want_any_id_do_not_clash_by_it() -> None:
    assert reason(bases(pb.BasePath(path="/p")), bases(pb.BasePath(path="/q"))) is None
