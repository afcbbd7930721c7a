"""Merges with any clauses, against the same merge in plain Python."""

from __future__ import annotations

import uuid
from typing import Any, cast

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import conroi
from tests.merge.model import Row, Text, When, as_set, merged

EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=cast("list[HealthCheck]", [*HealthCheck]))
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("s", pa.string())])


def _null_safe(work: Any, *values: Any) -> Any:
    return None if None in values else work(*values)


ON_SOURCE = [
    Text("source.n > 4", lambda s, t: _null_safe(lambda n: n > 4, s["n"])),
    Text("source.s IS NULL OR source.s = 'it''s'", lambda s, t: s["s"] is None or s["s"] == "it's"),
    Text("true", lambda s, t: True),
    Text("NULL", lambda s, t: None),
    Text("source.id IS NOT NULL", lambda s, t: s["id"] is not None),
]
ON_TARGET = [
    Text("target.n > 4", lambda s, t: _null_safe(lambda n: n > 4, t["n"])),
    Text("target.s = 'it''s target.s'", lambda s, t: _null_safe(lambda x: x == "it's target.s", t["s"])),
    Text("target.n IS NULL", lambda s, t: t["n"] is None),
    Text("true", lambda s, t: True),
]
ON_BOTH = [
    Text("source.n > target.n", lambda s, t: _null_safe(lambda a, b: a > b, s["n"], t["n"])),
    Text("source.s IS NULL AND target.n IS NOT NULL", lambda s, t: s["s"] is None and t["n"] is not None),
]
N_OF_SOURCE = [
    Text("source.n", lambda s, t: s["n"]),
    Text("source.n * 2 + 1", lambda s, t: _null_safe(lambda n: n * 2 + 1, s["n"])),
    Text("7", lambda s, t: 7),
    Text("NULL", lambda s, t: None),
]
N_OF_TARGET = [
    Text("target.n + 100", lambda s, t: _null_safe(lambda n: n + 100, t["n"])),
    Text("coalesce(target.n, -1)", lambda s, t: -1 if t["n"] is None else t["n"]),
    Text("7", lambda s, t: 7),
]
N_OF_BOTH = [Text("target.n + source.n", lambda s, t: _null_safe(lambda a, b: a + b, s["n"], t["n"]))]
S_OF_SOURCE = [
    Text("source.s", lambda s, t: s["s"]),
    Text("upper(source.s)", lambda s, t: _null_safe(str.upper, s["s"])),
    Text("'a -- (b'", lambda s, t: "a -- (b"),
]
S_OF_TARGET = [Text("concat('<', target.s, '>')", lambda s, t: f"<{t['s'] or ''}>"), Text("NULL", lambda s, t: None)]
ID = [Text("source.id", lambda s, t: s["id"])]


def _conditions(*texts: Text) -> st.SearchStrategy[Text | None]:
    return st.one_of(st.none(), st.sampled_from(texts))


def _values(n: list[Text], s: list[Text]) -> st.SearchStrategy[dict[str, Text]]:
    parts = st.fixed_dictionaries({}, optional={"n": st.sampled_from(n), "s": st.sampled_from(s)})
    return parts.filter(bool)


MATCHED_CONDITIONS = _conditions(*ON_SOURCE, *ON_TARGET, *ON_BOTH)
NEW_VALUES = st.fixed_dictionaries(
    {"id": st.sampled_from(ID)}, optional={"n": st.sampled_from(N_OF_SOURCE), "s": st.sampled_from(S_OF_SOURCE)}
)
CLAUSES = st.one_of(
    st.builds(When, st.just("when_matched_update_all"), st.none(), MATCHED_CONDITIONS),
    st.builds(
        When,
        st.just("when_matched_update"),
        _values(N_OF_SOURCE + N_OF_TARGET + N_OF_BOTH, S_OF_SOURCE + S_OF_TARGET),
        MATCHED_CONDITIONS,
    ),
    st.builds(When, st.just("when_matched_delete"), st.none(), MATCHED_CONDITIONS),
    st.builds(When, st.just("when_not_matched_insert_all"), st.none(), _conditions(*ON_SOURCE)),
    st.builds(When, st.just("when_not_matched_insert"), NEW_VALUES, _conditions(*ON_SOURCE)),
    st.builds(
        When, st.just("when_not_matched_by_source_update"), _values(N_OF_TARGET, S_OF_TARGET), _conditions(*ON_TARGET)
    ),
    st.builds(When, st.just("when_not_matched_by_source_delete"), st.none(), _conditions(*ON_TARGET)),
)

IDS = st.integers(0, 9)
NS = st.one_of(st.none(), st.integers(0, 9))
TEXTS = st.one_of(st.none(), st.sampled_from(["", "x", "it's", "it's target.s", "Ä 1"]))


def _rows(ids: st.SearchStrategy[Any]) -> st.SearchStrategy[Row]:
    return st.fixed_dictionaries({"id": ids, "n": NS, "s": TEXTS})


def _unique(row: Row) -> Any:
    return object() if row["id"] is None else row["id"]  # nulls are never the same


KEYED = st.lists(_rows(IDS), max_size=8, unique_by=_unique)
FREE = st.lists(_rows(st.one_of(st.none(), IDS)), max_size=8)
SOURCE = st.lists(_rows(st.one_of(st.none(), IDS)), max_size=8, unique_by=_unique)


def _table(rows: list[Row], *, key: str | None, stable_row_ids: bool, pieces: int) -> conroi.Table:
    """The rows, spread over several fragments."""
    uri = f"memory://{uuid.uuid4().hex}"
    table = conroi.create_table(uri, SCHEMA, key=key, stable_row_ids=stable_row_ids)
    for piece in range(pieces):
        part = rows[piece::pieces]
        table = table.append(pa.Table.from_pylist(part, schema=SCHEMA)) if part else table
    return table


@pytest.mark.parametrize("key", ["id", None])
@EXAMPLES
@given(data=st.data())
def test_any_clauses_do_what_they_say(key: str | None, data: st.DataObject) -> None:
    target = data.draw(KEYED if key else FREE, "target")
    source = data.draw(KEYED if key else SOURCE, "source")
    clauses = data.draw(st.lists(CLAUSES, min_size=1, max_size=5), "clauses")
    table = _table(target, key=key, stable_row_ids=data.draw(st.booleans()), pieces=data.draw(st.integers(1, 3)))
    builder = table.merge(pa.Table.from_pylist(source, schema=SCHEMA), on="id")
    for clause in clauses:
        builder = clause.added_to(builder)

    done = builder.execute()
    expected = merged(target, source, ["id"], clauses)
    assert as_set(done.table.to_arrow().to_pylist()) == as_set(expected.rows)
    assert (done.rows_inserted, done.rows_updated, done.rows_deleted) == expected.counts()
    assert done.version == table.version + any(expected.counts()), "nothing to do makes no version"
    assert as_set(lance.dataset(table.uri).to_table().to_pylist()) == as_set(expected.rows), "and pylance agrees"
