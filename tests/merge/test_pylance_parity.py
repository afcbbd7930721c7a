"""The clauses that pylance has too: the same rows come out."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, cast

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import conroi
from tests.merge.model import Row, as_set
from tests.merge.test_model import FREE, KEYED, SCHEMA, SOURCE

pytestmark = pytest.mark.contract("T15")
CONDITIONS = [None, "source.n > target.n", "source.s = 'x' OR target.n IS NULL", "target.s IS NOT NULL"]
OLD = ["n > 4", "s IS NULL", None]


def _by_pylance(root: str, source: pa.Table, clauses: dict[str, Any]) -> tuple[int, int, int]:
    merge = lance.dataset(root).merge_insert("id")
    if "update" in clauses:
        merge = merge.when_matched_update_all(clauses["update"])
    if "delete" in clauses:
        merge = merge.when_matched_delete()
    if "insert" in clauses:
        merge = merge.when_not_matched_insert_all()
    if "old" in clauses:
        merge = merge.when_not_matched_by_source_delete(clauses["old"])
    done = merge.execute(source)
    return done["num_inserted_rows"], done["num_updated_rows"], done["num_deleted_rows"]


def _by_conroi(root: str, source: pa.Table, clauses: dict[str, Any]) -> tuple[int, int, int]:
    merge = conroi.open_table(root).merge(source, on="id")
    if "update" in clauses:
        merge = merge.when_matched_update_all(clauses["update"])
    if "delete" in clauses:
        merge = merge.when_matched_delete()
    if "insert" in clauses:
        merge = merge.when_not_matched_insert_all()
    if "old" in clauses:
        merge = merge.when_not_matched_by_source_delete(clauses["old"])
    done = merge.execute()
    return done.rows_inserted, done.rows_updated, done.rows_deleted


CLAUSES = st.one_of(
    st.fixed_dictionaries(
        {"update": st.sampled_from(CONDITIONS)}, optional={"insert": st.just(None), "old": st.sampled_from(OLD)}
    ),
    st.fixed_dictionaries({"insert": st.just(None)}, optional={"old": st.sampled_from(OLD)}),
    st.just({"delete": None}),
)


@settings(max_examples=40, deadline=None, suppress_health_check=cast("list[HealthCheck]", [*HealthCheck]))
@given(target=st.one_of(KEYED, FREE).filter(bool), source=SOURCE.filter(bool), clauses=CLAUSES)
def test_the_same_merge_gives_the_same_rows(target: list[Row], source: list[Row], clauses: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        roots = [str(Path(folder) / name) for name in ("pylance", "conroi")]
        for root in roots:
            lance.write_dataset(pa.Table.from_pylist(target, schema=SCHEMA), root, max_rows_per_file=3)
        rows = pa.Table.from_pylist(source, schema=SCHEMA)
        told = [_by_pylance(roots[0], rows, clauses), _by_conroi(roots[1], rows, clauses)]
        theirs, ours = (as_set(lance.dataset(root).to_table().to_pylist()) for root in roots)
        assert ours == theirs
        assert told[1] == told[0]


@pytest.mark.parametrize("columns", [["id", "n"], ["id", "s"], ["s", "id"]])
def test_sources_with_some_columns_only(columns: list[str], tmp_path: Path) -> None:
    target = pa.table({"id": [1, 2, 3], "n": [10, 20, 30], "s": ["a", "b", "c"]}, schema=SCHEMA)
    source = pa.table({"id": [2, 3], "n": [7, 8], "s": ["x", "y"]}, schema=SCHEMA).select(columns)
    for name, merge in (("pylance", _by_pylance), ("conroi", _by_conroi)):
        lance.write_dataset(target, str(tmp_path / name))
        merge(str(tmp_path / name), source, {"update": None})
    theirs, ours = (
        as_set(lance.dataset(str(tmp_path / name)).to_table().to_pylist()) for name in ("pylance", "conroi")
    )
    assert ours == theirs


def test_where_the_two_differ_zeros_of_both_signs(tmp_path: Path) -> None:
    """For us they are one key, as they are equal numbers; pylance joins by their bits."""
    for name, merge, expected in (("pylance", _by_pylance, (1, 0, 0)), ("conroi", _by_conroi, (0, 1, 0))):
        lance.write_dataset(pa.table({"id": [0.0], "n": [1]}), str(tmp_path / name))
        told = merge(str(tmp_path / name), pa.table({"id": [-0.0], "n": [2]}), {"update": None, "insert": None})
        assert told == expected
