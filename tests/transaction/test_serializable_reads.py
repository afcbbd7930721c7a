"""Serializable: every public reading call inside a transaction × every kind of concurrent change.

A cell says whether the commit is refused. Where it is not, the answer is the same after the change: see `NOT_AFFECTED`.
A public member of a transaction, or of a table in one, that stands in no list here fails the test.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import conroi
from conroi.staged_table import TransactionTable
from conroi.transaction import Transaction
from tests.support.sampling import sampled

pytestmark = pytest.mark.contract("W13")

Read = Callable[[Any], object]
Change = Callable[[conroi.Lake], object]


def ignoring(*errors: type[Exception]) -> Callable[[Read], Read]:
    """A reading call whose answer is an error."""

    def made(read: Read) -> Read:
        def call(tx: Any) -> object:
            with contextlib.suppress(*errors):
                return read(tx)
            return None

        return call

    return made


absent = ignoring(conroi.NotFoundError)
taken = ignoring(conroi.AlreadyExistsError)


class SparkSession:
    """No session: its name is all that the calls look at before the table is opened."""

    def sql(self, *_: object, **__: object) -> None: ...


NO_SPARK: Any = SparkSession()
"""Asked for rows only after the lake has answered."""
without_spark = ignoring(Exception)  # what Spark would say of no session; the table was opened before that

# ------------------------------------------------------------------------------ what others do to the table t


def recreate(lake: conroi.Lake) -> None:
    with lake.begin() as tx:
        tx.drop_table("t")
        tx.create_table("t", rows(1, 2), key="id")


CHANGES: dict[str, Change] = {
    "rows": lambda lake: lake["t"].append(rows(3)),
    "drop": lambda lake: lake.drop_table("t"),
    "rename": lambda lake: lake.rename_table("t", "elsewhere"),
    "column": lambda lake: lake["t"].add_columns({"more": "id + 1"}),
    "setting": lambda lake: lake["t"].set_config({"a": "b"}),
    "metadata": lambda lake: lake["t"].set_metadata({"a": "b"}),
    "tag": lambda lake: lake["t"].tags.create("gold"),
    "moved tag": lambda lake: lake["t"].tags.move("old", 2),
    "re-created": recreate,
    "index": lambda lake: lake["t"].create_index("n"),
    "compaction": lambda lake: lake["t"].compact(),
    "new table": lambda lake: lake.create_table("new", [{"x": 1}]),
}

# ------------------------------------------------------------------------------ what counts as changed

ALL = frozenset(CHANGES)
GONE = frozenset({"drop", "rename"})
LEVELS: dict[str, frozenset[str]] = {
    # Only the name was looked for: another table of the same name gives the same answer.
    "name": GONE,
    # The table was opened; nothing in it was looked at.
    "opened": GONE | {"re-created"},
    # Rows, columns and settings: a compaction and an index leave them as they are.
    "content": GONE | {"re-created", "rows", "column", "setting", "metadata"},
    # Version numbers, indices and row addresses.
    "version": ALL - {"tag", "moved tag", "new table"},
    "tags": GONE | {"re-created", "tag", "moved tag"},
    # The name "new" was looked for and was not there.
    "absent": frozenset({"new table"}),
    "listing": GONE | {"new table"},
    # A fact of the transaction itself.
    "none": frozenset(),
}
NOT_AFFECTED = {level: ALL - changes for level, changes in LEVELS.items()}

# ------------------------------------------------------------------------------ the reading calls, by member

TABLE: dict[str, list[tuple[str, Read]]] = {
    "__len__": [("content", lambda tx: len(tx["t"]))],
    "__arrow_c_stream__": [("content", lambda tx: pa.table(tx["t"]))],
    "__repr__": [("version", lambda tx: repr(tx["t"]))],
    "_repr_html_": [("version", lambda tx: tx["t"]._repr_html_())],
    "at": [
        ("opened", lambda tx: tx["t"].at(1).to_arrow()),
        ("opened", lambda tx: tx["t"].at(2).to_arrow()),
        ("version", absent(lambda tx: tx["t"].at(99))),
        ("version", lambda tx: tx["t"].at(as_of="2999-01-01T00:00:00+00:00").to_arrow()),
        ("tags", lambda tx: tx["t"].at(tag="old").to_arrow()),
        ("tags", absent(lambda tx: tx["t"].at(tag="gold"))),
        ("version", lambda tx: tx["t"].at(1).versions()),
        ("version", lambda tx: tx["t"].at(1).history()),
        ("tags", lambda tx: list(tx["t"].at(1).tags)),
    ],
    "config": [("content", lambda tx: tx["t"].config)],
    "count_rows": [
        ("content", lambda tx: tx["t"].count_rows()),
        ("content", lambda tx: tx["t"].count_rows("id > 1")),
    ],
    "has_stable_row_ids": [("content", lambda tx: tx["t"].has_stable_row_ids)],
    "head": [("content", lambda tx: tx["t"].head())],
    "history": [("version", lambda tx: tx["t"].history()), ("version", lambda tx: tx["t"].history(1))],
    "indices": [("version", lambda tx: tx["t"].indices)],
    "key": [("content", lambda tx: tx["t"].key)],
    "metadata": [("content", lambda tx: tx["t"].metadata)],
    "name": [("opened", lambda tx: tx["t"].name)],
    "naming": [("content", lambda tx: tx["t"].naming)],
    "pinned": [("content", lambda tx: tx["t"].pinned)],
    "sample": [("version", lambda tx: tx["t"].sample(1))],
    "scan": [("content", lambda tx: tx["t"].scan)],
    "search": [("version", ignoring(conroi.InvalidInputError)(lambda tx: tx["t"].search("word")))],
    "stored_rows": [("content", lambda tx: tx["t"].stored_rows().read_all())],
    "take": [("version", lambda tx: tx["t"].take([0]))],
    "schema": [("content", lambda tx: tx["t"].schema)],
    "tags": [
        ("tags", lambda tx: list(tx["t"].tags)),
        ("tags", lambda tx: tx["t"].tags.get("old")),
        ("tags", absent(lambda tx: tx["t"].tags.get("gold"))),
        ("tags", lambda tx: repr(tx["t"].tags)),
    ],
    "to_arrow": [
        ("content", lambda tx: tx["t"].to_arrow()),
        ("content", lambda tx: tx["t"].to_arrow(filter="id = 77")),
        ("content", lambda tx: tx["t"].to_arrow(complete=True)),
        ("version", lambda tx: tx["t"].to_arrow(with_row_id=True)),
        ("version", lambda tx: tx["t"].to_arrow(["id", "_rowaddr"])),
    ],
    "to_batches": [("content", lambda tx: list(tx["t"].to_batches()))],
    "to_duckdb": [("content", lambda tx: tx["t"].to_duckdb().fetchall())],
    "to_lance": [("version", lambda tx: tx["t"].to_lance())],
    "to_pandas": [("content", lambda tx: tx["t"].to_pandas())],
    "to_polars": [("content", lambda tx: tx["t"].to_polars())],
    "to_polars_lazy": [("content", lambda tx: tx["t"].to_polars_lazy().collect())],
    "to_reader": [
        ("content", lambda tx: tx["t"].to_reader().read_all()),
        ("version", lambda tx: tx["t"].to_reader(with_row_id=True).read_all()),
    ],
    "to_spark": [("content", without_spark(lambda tx: tx["t"].to_spark(NO_SPARK)))],
    "unindexed": [("version", lambda tx: tx["t"].unindexed)],
    "uri": [("opened", lambda tx: tx["t"].uri)],
    "version": [("version", lambda tx: tx["t"].version)],
    "versions": [("version", lambda tx: tx["t"].versions())],
    "diff": [("content", lambda tx: tx["t"].diff(1))],
    # Verbs that found nothing to do: that they found nothing is the answer.
    "delete": [("content", lambda tx: tx["t"].delete("id = 77"))],
    "update": [("content", lambda tx: tx["t"].update({"n": "0"}, where="id = 77"))],
    "merge": [
        ("content", lambda tx: tx["t"].merge(rows(77), on="id").when_matched_update_all().execute()),
    ],
}
TRANSACTION: dict[str, list[tuple[str, Read]]] = {
    "__contains__": [
        ("name", lambda tx: "t" in tx),
        ("absent", lambda tx: "new" in tx),
    ],
    "__getitem__": [("opened", lambda tx: tx["t"]), ("absent", absent(lambda tx: tx["new"]))],
    "__repr__": [("none", repr)],
    "base_version": [("none", lambda tx: tx.base_version)],
    "catalog": [("none", lambda tx: tx.catalog)],
    "create_table": [("name", taken(lambda tx: tx.create_table("t", [{"x": 1}])))],
    "drop_table": [("absent", absent(lambda tx: tx.drop_table("new")))],
    "expect": [("absent", absent(lambda tx: tx.expect("new")))],
    "is_done": [("none", lambda tx: tx.is_done)],
    "rename_table": [
        ("absent", absent(lambda tx: tx.rename_table("new", "newer"))),
        ("name", taken(lambda tx: tx.rename_table("spare", "t"))),
    ],
    "query": [
        ("content", lambda tx: tx.query("SELECT * FROM t").to_arrow()),
        # A name that is not there is looked for among all: DuckDB does not distinguish upper and lower case.
        ("listing", ignoring(conroi.InvalidInputError)(lambda tx: tx.query("SELECT * FROM new"))),
    ],
    "sql": [
        ("listing", without_spark(lambda tx: tx.sql(NO_SPARK, "SELECT * FROM nowhere"))),
        ("content", without_spark(lambda tx: tx.sql(NO_SPARK, "SELECT count(*) FROM t"))),
        ("content", without_spark(lambda tx: tx.sql(NO_SPARK, "SELECT id FROM t"))),
    ],
    "table": [("opened", lambda tx: tx.table("t"))],
    "tables": [("listing", lambda tx: tx.tables())],
}
CHANGING = {
    # Checked when the transaction commits by the rules of their operations, as in test_transaction_conflicts.
    *("add_base", "add_columns", "alter_columns", "append", "compact", "create_index", "declare_key", "do"),
    *("drop_columns", "drop_index", "overwrite", "rename_columns", "replace_column_data", "reserve_fragments"),
    *("optimize_indices", "restore", "set_config", "set_metadata", "update_mem_wal_state"),
}
REFUSED = {"begin", "clone", "doctor", "expire", "gc", "insert", "latest", "migrate_manifest_names"}
LIFE = {
    *(
        "amend",
        "arrange",
        "begin_table",
        "bring_table",
        "commit",
        "expect_row",
        "hold",
        "lease",
        "new_row",
        "note",
        "result",
        "rollback",
    ),
    *("row_of", "rows_added", "set_row"),
}
LEASES = {"lease", "leases"}
"""About collection and not about the table: who holds which version, whatever the transaction reads."""
SPECIAL = {"__contains__", "__getitem__", "__iter__", "__len__", "__repr__", "_repr_html_", "__arrow_c_stream__"}

CALLS = [
    (f"{member} {number}", level, read)
    for part in (TABLE, TRANSACTION)
    for member, found in part.items()
    for number, (level, read) in enumerate(found)
]


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "n": [10 * each for each in ids]})


def public(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_") or name in SPECIAL}


def test_every_public_member_is_in_the_table():
    assert public(TransactionTable) - CHANGING - LEASES == TABLE.keys()
    assert not public(TransactionTable) & REFUSED
    assert public(Transaction) - LIFE == TRANSACTION.keys()


def test_what_acts_at_once_is_refused_inside_a_transaction(uri: str):
    tx = made(uri).begin()
    for table in (tx["t"], tx["t"].at(1)):
        for name in REFUSED - {"clone"}:
            with pytest.raises(conroi.InvalidInputError):
                getattr(table, name)(*([[]] if name == "insert" else []))
        for name in ("create", "move", "delete"):
            with pytest.raises(conroi.InvalidInputError, match="not part of a transaction"):
                getattr(table.tags, name)("old")


def made(uri: str) -> conroi.Lake:
    lake = conroi.connect(uri)
    lake.create_table("t", rows(1), key="id")
    lake["t"].append(rows(2)).tags.create("old", 1)
    lake.create_table("spare", [{"x": 1}])
    lake.create_table("sink", [{"who": "start"}])
    return lake


@pytest.mark.parametrize("change", sampled("changes of answers", [(name,) for name in CHANGES], least=6, covers=False))
def test_a_commit_is_refused_if_an_answer_changed(change: str):
    lake = made(f"memory://{uuid.uuid4().hex}")
    begun: list[tuple[str, str, Transaction]] = []
    for name, level, read in CALLS:
        tx = conroi.Lake(lake.catalog).begin(isolation="serializable")
        read(tx)
        tx["sink"].append([{"who": name}])
        begun.append((name, level, tx))
    CHANGES[change](conroi.connect(lake.uri))
    refused: set[str] = set()
    for name, _, tx in begun:
        try:
            tx.commit()
        except conroi.ExpectedVersionMismatch as mismatch:
            refused |= {name} if mismatch.is_retryable else {f"{name} for good"}
    assert refused == {name for name, level, _ in begun if change in LEVELS[level]}
    landed = {str(who) for who in conroi.connect(lake.uri)["sink"].to_arrow()["who"].to_pylist()}
    assert landed == {"start"} | {name for name, level, _ in begun if change in NOT_AFFECTED[level]}


def test_control_nothing_is_refused_under_snapshot(uri: str):
    lake = made(uri)
    begun = [lake.begin() for _ in CALLS]
    for tx, (name, _, read) in zip(begun, CALLS, strict=True):
        read(tx)
        tx["sink"].append([{"who": name}])
    recreate(conroi.connect(uri))
    for tx in begun:
        tx.commit()
    assert lake["sink"].count_rows() == 1 + len(CALLS)


# ------------------------------------------------------------------------------ what is done because of an answer


def test_two_that_each_drop_what_the_other_found_do_not_both_commit(uri: str):
    """F6: each drops one table because the other is there."""
    lake = conroi.connect(uri)
    for name in ("t", "u"):
        lake.create_table(name, [{"id": 1}])
    a = lake.begin(isolation="serializable")
    b = conroi.connect(uri).begin(isolation="serializable")
    if "t" in a:
        a.drop_table("u")
    if "u" in b:
        b.drop_table("t")
    a.commit()
    with pytest.raises(conroi.ExpectedVersionMismatch):
        b.commit()
    assert lake.tables() == ["t"]


ONLY_READ: list[tuple[Read, Change]] = [
    (lambda tx: "t" in tx, CHANGES["drop"]),
    (lambda tx: tx["t"].tags.list(), CHANGES["tag"]),
    (lambda tx: tx["t"].versions(), CHANGES["compaction"]),
]


@pytest.mark.parametrize(("read", "change"), ONLY_READ, ids=["name", "tags", "versions"])
def test_a_transaction_that_only_read_is_checked_too(uri: str, read: Read, change: Change):
    tx = made(uri).begin(isolation="serializable")
    read(tx)
    change(conroi.connect(uri))
    with pytest.raises(conroi.ExpectedVersionMismatch):
        tx.commit()


@pytest.mark.parametrize("act", ["drop", "rename"])
def test_what_was_read_of_a_table_and_then_dropped_or_renamed_counts(uri: str, act: str):
    tx = made(uri).begin(isolation="serializable")
    assert [tag.name for tag in tx["t"].tags] == ["old"]
    tx.drop_table("t") if act == "drop" else tx.rename_table("t", "mine")
    conroi.connect(uri)["t"].tags.create("gold")
    with pytest.raises(conroi.ExpectedVersionMismatch, match="gold"):
        tx.commit()


def test_own_changes_are_no_answers_of_others(uri: str):
    lake = made(uri)
    with lake.begin(isolation="serializable") as tx:
        tx.create_table("mine", [{"x": 1}])
        assert "mine" in tx
        assert tx["mine"].versions() == tx["mine"].history() == []
        assert tx["mine"].tags.list() == []
        tx.rename_table("spare", "other")
        assert "other" in tx
        assert "spare" not in tx
        assert tx["other"].versions() == [1]
    assert lake.tables() == ["mine", "other", "sink", "t"]


# ------------------------------------------------------------------------------ of the beginning, not of now


@pytest.mark.contract("W14")
@pytest.mark.parametrize("begin", ["lake", "table"])
def test_versions_past_versions_and_tags_are_those_of_the_beginning(uri: str, begin: str):
    """F11."""
    lake = made(uri)
    tx = lake.begin() if begin == "lake" else lake["t"].begin()
    table = tx["t"] if isinstance(tx, Transaction) else tx
    other = conroi.connect(uri)["t"].append(rows(3))
    other.tags.create("gold")
    for _ in range(2):
        assert table.versions() == [1, 2]
        assert [commit.version for commit in table.history()] == [2, 1]
        assert [(tag.name, tag.version) for tag in table.tags] == [("old", 1)]
        for missing in (lambda: table.at(3), lambda: table.at(tag="gold"), lambda: table.tags.get("gold")):
            with pytest.raises(conroi.NotFoundError):
                missing()
        assert table.at(as_of="2999-01-01T00:00:00+00:00").version == 2
        assert table.at(tag="old").to_arrow()["id"].to_pylist() == [1]
        assert table.at(1).versions() == [1, 2]
        assert table.at(2).to_arrow()["id"].to_pylist() == [1, 2]
    assert other.versions() == [1, 2, 3]


@pytest.mark.contract("W14")
@pytest.mark.parametrize("change", ["drop", "rename", "re-created"])
def test_the_past_of_a_table_that_is_gone_is_still_that_of_the_beginning(uri: str, change: str):
    tx = made(uri).begin()
    assert tx["t"].count_rows() == 2
    CHANGES[change](conroi.connect(uri))
    assert tx["t"].versions() == [1, 2]
    assert [commit.version for commit in tx["t"].history()] == [2, 1]
    assert tx["t"].at(1).to_arrow()["id"].to_pylist() == [1]
    assert [tag.name for tag in tx["t"].tags] == ["old"]
    assert tx["t"].to_arrow(complete=True)["id"].to_pylist() == [1, 2]


@pytest.mark.contract("W14")
def test_a_tag_that_was_moved_since_the_beginning_is_refused_not_guessed(uri: str):
    tx = made(uri).begin()
    conroi.connect(uri)["t"].tags.move("old", 2)
    with pytest.raises(conroi.RetryableConflict, match="moved since"):
        tx["t"].at(tag="old")


@pytest.mark.contract("W14")
def test_a_tag_that_a_restore_goes_by_is_that_of_the_beginning(uri: str):
    lake = made(uri)
    tx = lake.begin()
    conroi.connect(uri)["t"].append(rows(3)).tags.create("gold")
    with pytest.raises(conroi.NotFoundError, match="gold"):
        tx["t"].restore(tag="gold")


# ------------------------------------------------------------------------------ all expectations are kept


@pytest.mark.contract("W15")
def test_a_second_expectation_does_not_replace_the_first(uri: str):
    """G5."""
    lake = made(uri)
    with pytest.raises(conroi.InvalidInputError, match="expected at version 1 already"):
        lake.begin(expect={"t": 1}).expect("t")
    with pytest.raises(conroi.InvalidInputError, match="expected at version 2 already"):
        lake.begin(expect={"t": 2}).expect("t", 3)
    tx = lake.begin(expect={"t": 2})
    tx.expect("t")
    tx.expect("sink")
    tx["spare"].append([{"x": 2}])
    conroi.connect(uri)["t"].append(rows(3))
    with pytest.raises(conroi.ExpectedVersionMismatch) as caught:
        tx.commit()
    assert (caught.value.table, caught.value.expected, caught.value.actual) == ("t", 2, 3)
