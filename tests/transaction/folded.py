"""A small lake for each list of statements, and what must be true of it afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import conroi
from conroi.testing import connect_through
from tests.support.instruments import CloudLike
from tests.transaction.model import FIRST, OTHERS, SCHEMA, SECOND, Model, apply, row_of


@dataclass(frozen=True)
class Kind:
    """How the table is made."""

    is_keyed: bool
    is_stable: bool

    def __str__(self) -> str:
        return f"{'keyed' if self.is_keyed else 'plain'}-{'stable' if self.is_stable else 'addresses'}"


KINDS = [Kind(is_keyed, is_stable) for is_keyed in (False, True) for is_stable in (False, True)]


class Lakes:
    """Copies of one lake with one table `t` at version 2."""

    def __init__(self, folder: Path, kind: Kind) -> None:
        self.kind = kind
        self._folder = folder
        self._count = 0
        lake = conroi.connect(folder / "original")
        rows = pa.Table.from_pylist([row_of(i) for i in FIRST], schema=SCHEMA)
        lake.create_table("t", rows, key="id" if kind.is_keyed else None, stable_row_ids=kind.is_stable)
        lake["t"].append([row_of(i) for i in SECOND])

    @cached_property
    def row_ids(self) -> dict[int, int]:
        """The row ids that the base has."""
        return row_ids_of(self._folder / "original" / "t.lance")

    def new(self) -> conroi.Lake:
        """A copy; every other one as if it were far away, where versions get their final names later."""
        self._count += 1
        target = self._folder / f"copy{self._count}"
        shutil.copytree(self._folder / "original", target)
        return connect_through(target, CloudLike) if self._count % 2 else conroi.connect(target)

    # ------------------------------------------------------------------------------------- what must be true

    def check(self, lake: conroi.Lake, model: Model) -> None:
        """The lake, and pylance by path, have what the model has; ids are as they must be."""
        table = lake["t"]
        assert sorted_rows(table.to_arrow()) == model.listed()
        settle(lake)
        dataset = lance.dataset(f"{lake.uri}/t.lance")
        dataset.validate()
        assert dataset.version == table.version
        assert sorted_rows(dataset.to_table()) == model.listed()
        assert {key: value for key, value in dataset.config().items() if key.startswith("k")} == model.config
        assert set(table.indices) == model.indices
        for number in (1, 2, 3, 101, 900):  # through the index, where there is one
            assert dataset.count_rows(filter=f"id = {number}") == (number in model.rows)
        if self.kind.is_stable:
            self._check_row_ids(row_ids_of(Path(lake.uri) / "t.lance"), model)

    def _check_row_ids(self, now: dict[int, int], model: Model) -> None:
        assert len(set(now.values())) == len(now) == len(model.rows)
        highest = max(self.row_ids.values())
        for number, row_id in now.items():
            if number in model.same_as:
                assert row_id == self.row_ids[number], f"row {number} is another one now"
            else:
                assert row_id > highest, f"row {number} got an id that another row had"


def settle(lake: conroi.Lake) -> None:
    """Wait for what is finished off the path."""
    for future in list(lake.catalog.finalizing.values()):
        future.result()


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def row_ids_of(table: Path) -> dict[int, int]:
    """By the column id, the row ids as pylance sees them."""
    rows = lance.dataset(str(table)).scanner(columns=["id"], with_row_id=True).to_table().to_pylist()
    return {row["id"]: row["_rowid"] for row in rows}


def check_alone(lakes: Lakes, names: Sequence[str]) -> None:
    """All statements are there, as one version, and the transaction saw them itself before."""
    lake, model = lakes.new(), Model.base()
    before = lake["t"].version
    with lake.begin("several") as tx:
        apply(tx["t"], model, names)
        assert sorted_rows(tx["t"].to_arrow()) == model.listed()
    lakes.check(lake, model)
    assert lake["t"].version == before + 1
    assert tx.result.tables == {"t": before + 1}


def check_new_table(lakes: Lakes, names: Sequence[str]) -> None:
    """A table that is made and changed in one transaction is there at version 1, with all of it."""
    lake, model = lakes.new(), Model.base()
    rows = pa.Table.from_pylist(model.listed(), schema=SCHEMA)
    with lake.begin("a new table") as tx:
        key = "id" if lakes.kind.is_keyed else None
        tx.create_table("new", rows, key=key, stable_row_ids=lakes.kind.is_stable)
        apply(tx["new"], model, names)
    table = lake["new"]
    assert table.version == 1
    settle(lake)
    assert sorted_rows(table.to_arrow()) == model.listed()
    dataset = lance.dataset(table.uri)
    dataset.validate()
    assert sorted_rows(dataset.to_table()) == model.listed()
    if lakes.kind.is_stable:
        columns = ["id", "_row_created_at_version", "_row_last_updated_at_version"]
        stamps = dataset.scanner(columns=columns, with_row_id=True).to_table()
        assert len(set(stamps["_rowid"].to_pylist())) == len(model.rows)
        assert set(stamps["_row_created_at_version"].to_pylist()) <= {1}
        assert set(stamps["_row_last_updated_at_version"].to_pylist()) <= {1}


def check_with_other(lakes: Lakes, names: Sequence[str], other: str) -> str:
    """A concurrent commit: both are there, or the second is refused, leaves nothing, and its retry works."""
    lake, model = lakes.new(), Model.base()
    tx = lake.begin("several")
    apply(tx["t"], Model.base(), names)
    OTHERS[other](conroi.connect(lake.uri)["t"], model)
    try:
        tx.commit()
    except (conroi.RetryableConflict, conroi.ExpectedVersionMismatch) as refusal:
        lakes.check(conroi.connect(lake.uri), model)
        with lake.begin("several, again") as again:
            apply(again["t"], model, names)
        outcome = type(refusal).__name__
    else:
        apply(NOTHING, model, names)
        outcome = "landed"
    lakes.check(lake, model)
    return outcome


class _Nothing:
    """A table to which nothing happens, for working out what a model would be."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_how: self


NOTHING: Any = _Nothing()
