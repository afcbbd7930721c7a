"""What every verb takes: a message, properties, strict, expect, retries, detached; and if_moved where it matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
import pytest

import conroi
from conroi import ExpectedVersionMismatch, ManifestNaming, NotFoundError, RetryableConflict, UnsupportedError
from conroi.writer import Writer
from tests.support.arrow import column_values
from tests.support.instruments import interrupted
from tests.support.refusals import refused
from tests.support.transactions import reserve_fragments


@pytest.fixture
def table(uri: str) -> conroi.Table:
    return conroi.create_table(uri, [{"id": 1, "v": 10}, {"id": 2, "v": 20}])


def ids(table: conroi.Table) -> list[int]:
    return sorted(column_values(table.to_arrow(["id"])["id"]))


def merged(table: conroi.Table, **how: Any) -> conroi.Table:
    return table.merge([{"id": 1, "v": 11}], on="id").when_matched_update_all().execute(**how).table


EVERY_VERB: dict[str, Callable[..., conroi.Table]] = {
    "append": lambda t, **how: t.append([{"id": 3, "v": 30}], **how),
    "overwrite": lambda t, **how: t.overwrite([{"id": 3, "v": 30}], **how),
    "overwrite where": lambda t, **how: t.overwrite([{"id": 3, "v": 20}], where="v = 20", **how),
    "delete": lambda t, **how: t.delete("id = 1", **how),
    "update": lambda t, **how: t.update({"v": "0"}, **how),
    "add_columns": lambda t, **how: t.add_columns({"w": "v"}, **how),
    "drop_columns": lambda t, **how: t.drop_columns(["v"], **how),
    "rename_columns": lambda t, **how: t.rename_columns({"v": "w"}, **how),
    "alter_columns": lambda t, **how: t.alter_columns({"v": {"type": pa.int32()}}, **how),
    "replace_column_data": lambda t, **how: t.replace_column_data({"v": "1"}, **how),
    "set_config": lambda t, **how: t.set_config({"a": "b"}, **how),
    "set_metadata": lambda t, **how: t.set_metadata({"a": "b"}, **how),
    "add_base": lambda t, **how: t.add_base("/elsewhere", **how),
    "reserve_fragments": lambda t, **how: t.reserve_fragments(1, **how),
    "create_index": lambda t, **how: t.create_index("id", **how),
    "compact": lambda t, **how: t.compact("id", **how),
    "restore": lambda t, **how: t.restore(1, **how),
    "merge": lambda t, **how: merged(t, **how),
}


ELSEWHERE = {
    "declare_key": "tests/verbs/test_key_declaration.py",
    "drop_index": "needs an index: tests/interop/test_indices.py",
    "optimize_indices": "needs an index: tests/interop/test_optimize_indices.py",
    "update_mem_wal_state": "tests/table/test_low_level_verbs.py",
}
"""Verbs that are tested with their options in another place."""


def test_every_verb_is_here_or_elsewhere() -> None:
    writing = {name for name in vars(Writer) if not name.startswith("_")}
    assert writing == {verb.partition(" ")[0] for verb in EVERY_VERB} | ELSEWHERE.keys(), (
        "add the new verb to EVERY_VERB"
    )


@pytest.mark.parametrize("verb", EVERY_VERB)
def test_every_verb_keeps_a_message_and_properties(verb: str, table: conroi.Table) -> None:
    done = EVERY_VERB[verb](table, message="because", properties={"job": "7"})
    commit = done.history(1)[0]
    assert (commit.version, commit.message, commit.properties["job"]) == (2, "because", "7")


@pytest.mark.contract("W3")
@pytest.mark.parametrize("verb", EVERY_VERB)
def test_every_verb_refuses_when_the_version_is_not_the_expected_one(verb: str, table: conroi.Table) -> None:
    table.append([{"id": 9, "v": 9}])
    with refused(table, ExpectedVersionMismatch) as caught:
        EVERY_VERB[verb](table, expect=1)
    error = caught.value
    assert isinstance(error, ExpectedVersionMismatch)
    assert (error.expected, error.actual) == (1, 2)
    assert EVERY_VERB[verb](table, expect=2).version == 3


@pytest.mark.contract("W3")
@pytest.mark.parametrize("how", [{"strict": True}, {"expect": 1}], ids=["strict", "expect"])
@pytest.mark.parametrize("verb", EVERY_VERB)
def test_every_verb_refuses_when_the_table_moves_while_it_works(
    verb: str, how: dict[str, object], table: conroi.Table
) -> None:
    writer = interrupted(table, lambda: table.set_metadata({"by": "another writer"}))
    with pytest.raises(ExpectedVersionMismatch) as caught:
        EVERY_VERB[verb](writer, **how)
    assert (caught.value.expected, caught.value.actual, caught.value.table) == (1, 2, table.uri)
    assert caught.value.hint
    assert table.versions() == [1, 2]
    assert table.latest().history(1)[0].operation == "UpdateConfig"


@pytest.mark.contract("W3")
@pytest.mark.parametrize("verb", ["append", "delete", "update", "set_config", "reserve_fragments"])
def test_control_without_strict_both_changes_land(verb: str, table: conroi.Table) -> None:
    writer = interrupted(table, lambda: table.set_metadata({"by": "another writer"}))
    done = EVERY_VERB[verb](writer)
    assert (done.version, done.metadata) == (3, {"by": "another writer"})


# -------------------------------------------------------------------------------- if_moved

OVERWRITERS: dict[str, tuple[Callable[..., conroi.Table], list[int]]] = {
    "overwrite": (lambda t, **how: t.overwrite([{"id": 7, "v": 7}], **how), [7]),
    "restore": (lambda t, **how: t.restore(1, **how), [1, 2]),
}


@pytest.mark.contract("W3")
@pytest.mark.parametrize("verb", OVERWRITERS)
def test_an_overwrite_does_not_silently_lose_the_rows_of_another_writer(verb: str, table: conroi.Table) -> None:
    writer = interrupted(table, lambda: table.append([{"id": 3, "v": 30}]))
    with pytest.raises(ExpectedVersionMismatch) as caught:
        OVERWRITERS[verb][0](writer)
    assert 'if_moved="win"' in str(caught.value)
    assert ids(table.latest()) == [1, 2, 3]


@pytest.mark.contract("W3")
@pytest.mark.parametrize("verb", OVERWRITERS)
def test_an_overwrite_wins_if_it_is_told_to(verb: str, table: conroi.Table) -> None:
    writer = interrupted(table, lambda: table.append([{"id": 3, "v": 30}]))
    do, expected = OVERWRITERS[verb]
    done = do(writer, if_moved="win")
    assert (ids(done), done.version) == (expected, 3)
    assert ids(done.at(2)) == [1, 2, 3]


def test_a_stream_cannot_be_overwritten_with_twice(table: conroi.Table) -> None:
    """The other overwrite makes ours start again, and a stream that was read is empty: that must not be written."""
    writer = interrupted(table, lambda: table.overwrite([{"id": 8, "v": 8}]))
    reader = pa.table({"id": [7], "v": [7]}).to_reader()
    with pytest.raises(RetryableConflict, match="only once"):
        writer.overwrite(reader, if_moved="win")
    assert ids(table.latest()) == [8]
    again = interrupted(table, lambda: table.overwrite([{"id": 9, "v": 9}]))
    assert ids(again.overwrite(pa.table({"id": [7], "v": [7]}), if_moved="win")) == [7]


# -------------------------------------------------------------------------------- detached


@pytest.mark.contract("T5")
@pytest.mark.parametrize("verb", EVERY_VERB)
def test_every_verb_can_be_detached(verb: str, table: conroi.Table) -> None:
    done = EVERY_VERB[verb](table, detached=True)
    assert done.version >= 1 << 63
    assert table.latest().version == 1
    assert table.versions() == [1]
    assert lance.dataset(table.uri).version == 1
    assert table.at(done.version).to_arrow() == done.to_arrow()
    assert lance.dataset(table.uri, version=done.version).to_table() == done.to_arrow()


def test_a_detached_version_is_made_on_the_pinned_one_and_can_be_stacked(table: conroi.Table) -> None:
    table.append([{"id": 3, "v": 30}])
    first = table.append([{"id": 4, "v": 40}], detached=True, message="try")
    second = first.delete("id = 1", detached=True)
    assert (ids(first), ids(second), ids(table.latest())) == ([1, 2, 4], [2, 4], [1, 2, 3])
    assert [commit.version for commit in second.history()] == [second.version, first.version, 1]
    assert first.history(1)[0].message == "try"


def test_a_verb_on_a_detached_table_goes_on_from_the_newest_version(table: conroi.Table) -> None:
    detached = table.append([{"id": 4, "v": 40}], detached=True)
    assert ids(detached.append([{"id": 5, "v": 50}])) == [1, 2, 5]


def test_a_detached_version_becomes_the_newest_by_restore(table: conroi.Table) -> None:
    detached = table.append([{"id": 4, "v": 40}], detached=True)
    restored = table.restore(detached.version)
    assert (restored.version, ids(restored)) == (2, [1, 2, 4])
    assert ids(restored.append([{"id": 5, "v": 50}])) == [1, 2, 4, 5]
    assert sorted(column_values(lance.dataset(table.uri).to_table()["id"])) == [1, 2, 4, 5]


def test_a_detached_version_of_pylance_is_read(table: conroi.Table) -> None:
    fragment = lance.fragment.LanceFragment.create(table.uri, pa.table({"id": [4], "v": [40]}))
    operation = lance.LanceOperation.Append([fragment])
    theirs = lance.LanceDataset.commit(table.uri, operation, read_version=1, detached=True)
    assert ids(table.at(theirs.version)) == [1, 2, 4]
    assert ids(table.at(theirs.version).delete("id = 4", detached=True)) == [1, 2]


def test_a_transaction_can_be_committed_detached(table: conroi.Table) -> None:
    result = conroi.commit(table.uri, reserve_fragments(read_version=1), detached=True)
    assert result.version >= 1 << 63
    assert table.latest().version == 1


def test_detached_versions_need_the_newer_manifest_names(uri: str) -> None:
    old = conroi.create_table(uri, [{"id": 1}], naming=ManifestNaming.V1)
    with refused(old, UnsupportedError, "migrate_manifest_names"):
        old.append([{"id": 2}], detached=True)
    assert old.migrate_manifest_names().append([{"id": 2}], detached=True).count_rows() == 2


def test_a_detached_version_that_does_not_exist_is_not_found(table: conroi.Table) -> None:
    with refused(table, NotFoundError):
        table.at(1 << 63)
