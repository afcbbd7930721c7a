"""The folder of a lake whose history is in a SQL database: its id, its copies, and storage without conditions."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import conroi
from conroi.catalog.sql_tables import open_lake_tables
from conroi.storage.objects import Objects, UnsupportedByStorage
from conroi.stores import attach, detach
from conroi.testing import FaultyObjects, call_before, connect_through
from conroi.versions.retention import other_ages
from tests.support.databases import PostgresServer, sql_address
from tests.support.instruments import CloudLike
from tests.support.lakes import Dies, dies, settle
from tests.support.servers import S3Server


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> str:
    return sql_address(request.param, request)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def ids(table: conroi.Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())  # pyright: ignore[reportArgumentType]


def new_lake(uri: str, store: str) -> conroi.Lake:
    lake = conroi.connect(uri, store=store)
    lake.create_table("t", [{"id": 1}])
    lake["t"].append([{"id": 2}])
    return lake


def contents(lake: conroi.Lake) -> dict[str, list[int]]:
    return {name: ids(lake[name]) for name in lake.tables()}


def lakes_in(store: str) -> list[tuple[object, ...]]:
    return open_lake_tables(store).ask("SELECT version, root FROM conroi_lakes ORDER BY root", [])


def all_files(folder: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


# ------------------------------------------------------------------------------------ the id


@pytest.mark.contract("X11")
def test_a_store_that_does_not_know_the_lake_is_refused(
    store: str, uri: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """G2: never an empty lake, and nothing is made in that store."""
    new_lake(uri, store)
    other = sql_address("sqlite" if store.startswith("sqlite") else "postgresql", request)
    with pytest.raises(conroi.InvalidInputError, match="does not have the lake") as refused:
        conroi.connect(uri, store=other)
    assert refused.value.hint
    assert lakes_in(other) == []
    with pytest.raises(conroi.InvalidInputError, match="not in this one"):
        conroi.connect(
            uri, store=f"sqlite:///{tmp_path}/x.db" if not store.startswith("sqlite") else "postgresql://h/d"
        )
    assert contents(conroi.connect(uri, store=store)) == {"t": [1, 2]}


@pytest.mark.contract("X11")
def test_a_moved_folder_is_refused_until_it_is_attached(store: str, uri: str, tmp_path: Path) -> None:
    before = new_lake(uri, store)
    moved = str(tmp_path / "moved")
    shutil.copytree(uri, moved)  # so that a process with the old folder open goes on
    with pytest.raises(conroi.InvalidInputError, match="in another folder"):
        conroi.connect(moved, store=store)
    assert attach(moved, store) == 2
    assert attach(moved, store) == 2, "twice is fine"
    lake = conroi.connect(moved, store=store)
    lake["t"].append([{"id": 3}])
    assert contents(lake) == {"t": [1, 2, 3]}
    assert [commit.version for commit in lake.history()] == [3, 2, 1]
    # Of two copies under one id only one publishes: also a process that had the old one open is refused.
    with pytest.raises(conroi.InvalidInputError, match="in another folder"):
        before["t"].append([{"id": 4}])
    with pytest.raises(conroi.InvalidInputError, match="in another folder"):
        conroi.connect(uri, store=store)
    assert contents(conroi.connect(moved, store=store)) == {"t": [1, 2, 3]}


@pytest.mark.contract("X11")
def test_an_old_copy_is_not_attached_in_place_of_the_lake(store: str, uri: str, tmp_path: Path) -> None:
    lake = new_lake(uri, store)
    copy = str(tmp_path / "copy")
    shutil.copytree(uri, copy)
    lake["t"].append([{"id": 3}])
    with pytest.raises(conroi.InvalidInputError, match="up to version 2, and the store up to 3"):
        attach(copy, store)
    assert contents(conroi.connect(uri, store=store)) == {"t": [1, 2, 3]}


@pytest.mark.contract("X11")
def test_a_copy_becomes_a_lake_of_its_own(store: str, uri: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    lake = new_lake(uri, store)
    copies = [str(tmp_path / name) for name in ("one", "two")]
    for copy in copies:
        shutil.copytree(uri, copy)
    other = sql_address("sqlite", request)
    assert attach(copies[0], store, as_new=True) == 2
    assert attach(copies[1], other) == 2, "a store that does not know the lake can only have it as a new one"
    stores = {uri: store, copies[0]: store, copies[1]: other}
    for number, (folder, address) in enumerate(stores.items()):
        conroi.connect(folder, store=address)["t"].append([{"id": 10 + number}])
    found = [contents(conroi.connect(folder, store=address)) for folder, address in stores.items()]
    assert found == [{"t": [1, 2, 10]}, {"t": [1, 2, 11]}, {"t": [1, 2, 12]}]
    assert contents(lake) == found[0]
    for folder, address in stores.items():
        assert conroi.connect(folder, store=address).doctor().is_healthy
        assert contents(conroi.connect(folder)) == contents(conroi.connect(folder, store=address)), "without its store"


@pytest.mark.contract("X11")
def test_a_detached_lake_is_read_without_a_store_and_attached_to_another(
    store: str, uri: str, request: pytest.FixtureRequest
) -> None:
    lake = new_lake(uri, store)
    assert detach(uri, store) == 2
    assert lakes_in(store) == []
    with pytest.raises(conroi.NotFoundError, match="does not have"):
        lake["t"].append([{"id": 3}])
    assert contents(conroi.connect(uri)) == {"t": [1, 2]}
    other = sql_address("sqlite", request)
    assert attach(uri, other) == 2
    conroi.connect(uri, store=other)["t"].append([{"id": 3}])
    assert contents(conroi.connect(uri, store=other)) == {"t": [1, 2, 3]}


@pytest.mark.contract("X11")
def test_of_many_that_make_a_lake_at_once_all_get_the_same(store: str, uri: str) -> None:
    def work(number: int) -> None:
        conroi.connect(uri, store=store).create_table(f"t{number}", [{"id": number}])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert contents(conroi.connect(uri, store=store)) == {f"t{number}": [number] for number in range(6)}
    assert len(lakes_in(store)) == 1


@pytest.mark.contract("X11", "P10")
@pytest.mark.parametrize("verb", ["get", "put_if_absent"])
def test_a_maker_that_died_on_the_way_is_followed_by_the_next(store: str, uri: str, verb: str) -> None:
    def wrap(objects: Objects) -> Objects:
        return FaultyObjects(objects, [call_before(dies, verb, "__conroi.json")])

    with pytest.raises(Dies):
        connect_through(uri, wrap, store=store)
    assert contents(new_lake(uri, store)) == {"t": [1, 2]}
    assert len(lakes_in(store)) == 1


OLD_SCHEMA = """
CREATE TABLE conroi_schema (component TEXT PRIMARY KEY, version BIGINT NOT NULL);
INSERT INTO conroi_schema VALUES ('lakes', 1);
CREATE TABLE conroi_lakes (lake TEXT PRIMARY KEY, version BIGINT NOT NULL);
CREATE TABLE conroi_lake_commits (lake TEXT NOT NULL, version BIGINT NOT NULL, timestamp_ns BIGINT NOT NULL,
    uuid TEXT NOT NULL, idempotency_key TEXT, notes TEXT NOT NULL, changes TEXT NOT NULL,
    PRIMARY KEY (lake, version), UNIQUE (lake, idempotency_key));
CREATE TABLE conroi_lake_rows (lake TEXT NOT NULL, object_id TEXT NOT NULL, since BIGINT NOT NULL,
    until BIGINT, content TEXT NOT NULL, PRIMARY KEY (lake, object_id, since));
CREATE INDEX conroi_lake_rows_newest ON conroi_lake_rows (lake) WHERE until IS NULL
"""


def as_an_older_conroi_left_it(uri: str, store: str) -> None:
    """The same history under schema 1: a lake is known by its folder, commits have the times of their writers."""
    tables = open_lake_tables(store)
    key = f"file://{Path(uri).resolve()}"
    commits = tables.ask("SELECT version, uuid, idempotency_key, notes, changes FROM conroi_lake_commits", [])
    rows = tables.ask("SELECT object_id, since, until, content FROM conroi_lake_rows", [])
    names = ("conroi_schema", "conroi_lakes", "conroi_lake_commits", "conroi_lake_rows")
    statements = [f"DROP TABLE {name}" for name in names] + OLD_SCHEMA.split(";")
    values: list[tuple[str, tuple[object, ...]]] = [(statement, ()) for statement in statements]
    values.append(("INSERT INTO conroi_lakes VALUES (?, ?)", (key, len(commits))))
    for version, uuid, once, notes, changes in commits:
        old_ns = int(version) * 10**9  # in 1970
        insert = "INSERT INTO conroi_lake_commits VALUES (?, ?, ?, ?, ?, ?, ?)"
        values.append((insert, (key, version, old_ns, uuid, once, notes, changes)))
    values += [("INSERT INTO conroi_lake_rows VALUES (?, ?, ?, ?, ?)", (key, *row)) for row in rows]
    if store.startswith("sqlite"):
        with sqlite3.connect(store.removeprefix("sqlite:///")) as connection:
            for sql, parameters in values:
                connection.execute(sql, parameters)
    else:
        import psycopg

        with psycopg.connect(store) as connection:
            for sql, parameters in values:
                connection.execute(sql.replace("?", "%s"), parameters)  # type: ignore[arg-type]
    shutil.rmtree(f"{uri}/_conroi")
    Path(f"{uri}/__conroi.json").write_text(json.dumps({"history": store.partition(":")[0]}))


@pytest.mark.contract("X11", "X9")
def test_lakes_of_an_older_conroi_are_brought_up_to_date(store: str, uri: str, tmp_path: Path) -> None:
    new_lake(uri, store)
    as_an_older_conroi_left_it(uri, store)
    copy = str(tmp_path / "copy")
    shutil.copytree(uri, copy)
    with pytest.raises(conroi.InvalidInputError, match="no copy of it"):
        conroi.connect(uri)
    lake = conroi.connect(uri, store=store)
    assert (lake.version, contents(lake), ids(lake.at(version=1)["t"])) == (2, {"t": [1, 2]}, [1])
    assert lake.at(as_of="1970-01-01T00:00:01.5+00:00").version == 1, "their times stay as they were"
    # Their real age is unknown, so they count as made now.
    assert lake.expire("60s", keep=1, dry_run=False).removed == ()
    lake["t"].append([{"id": 3}])
    assert contents(conroi.connect(uri)) == {"t": [1, 2, 3]}
    with pytest.raises(conroi.InvalidInputError, match="does not have"):
        conroi.connect(copy, store=store)


# ------------------------------------------------------------------------------------ without the store


@pytest.mark.contract("X12", "X4")
def test_the_folder_alone_has_every_version_as_soon_as_it_is_committed(store: str, uri: str, tmp_path: Path) -> None:
    writers = [conroi.connect(uri, store=store) for _ in range(2)]
    writers[0].create_table("t", [{"id": 0}])
    expected: dict[str, list[int]] = {"t": [0]}
    for number in range(1, 40):
        lake = writers[number % 3 == 0]
        if number % 10 == 0:
            lake.create_table(f"n{number}", [{"id": number}])
            expected[f"n{number}"] = [number]
        elif number == 25:
            lake.drop_table("n10")
            del expected["n10"]
        else:
            lake["t"].append([{"id": number}])
            expected["t"].append(number)
        if number % 7 == 0 or 14 <= number <= 18:
            read = conroi.connect(uri)
            assert (read.version, contents(read)) == (number + 1, expected)
    copy = str(tmp_path / "copy")
    shutil.copytree(uri, copy)
    shutil.rmtree(uri)
    read = conroi.connect(copy)
    assert contents(read) == expected
    assert read.history(1)[0].tables == {"t": 36}
    assert len(list(Path(copy, "_conroi/lake").iterdir())) <= 32, "old files are deleted"
    assert read.at(version=40).version == 40
    with pytest.raises(conroi.NotFoundError, match="only its store"):
        read.at(version=1)


@pytest.mark.contract("X12")
def test_a_lake_without_its_store_can_only_be_read(store: str, uri: str) -> None:
    new_lake(uri, store)
    read, before = conroi.connect(uri), set(all_files(uri))
    calls: list[Callable[[], object]] = [
        lambda: read.create_table("x", [{"id": 1}]),
        lambda: read.begin(),
        lambda: read.drop_table("t"),
        lambda: read.expire(dry_run=False),
        lambda: read.gc(dry_run=False),
        lambda: read.run(lambda tx: tx["t"].append([{"id": 3}])),
        lambda: read.doctor(fix=True),
    ]
    for call in calls:
        with pytest.raises(conroi.InvalidInputError, match="it can only be read"):
            call()
    assert set(all_files(uri)) == before
    with pytest.raises(conroi.InvalidInputError, match="it can only be read"):
        read["t"].append([{"id": 3}])
    assert contents(conroi.connect(uri)) == contents(conroi.connect(uri, store=store)) == {"t": [1, 2]}


@pytest.mark.contract("X12", "P10")
@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])
def test_a_publisher_that_died_before_the_copy_leaves_the_folder_one_behind(
    store: str, uri: str, is_cloud: bool
) -> None:
    new_lake(uri, store)

    def wrap(objects: Objects) -> Objects:
        near = CloudLike(objects) if is_cloud else objects
        return FaultyObjects(near, [call_before(dies, "put", "_conroi/lake/*3.json")])

    dying = connect_through(uri, wrap, store=store)
    try:
        dying["t"].append([{"id": 3}])
        settle(dying)
    except Dies:
        pass
    assert contents(conroi.connect(uri)) == {"t": [1, 2]}
    lake = conroi.connect(uri, store=store)
    assert contents(lake) == {"t": [1, 2, 3]}
    lake.create_table("u", [{"id": 1}])
    assert contents(conroi.connect(uri)) == {"t": [1, 2, 3], "u": [1]}


@pytest.mark.contract("X12")
def test_expire_never_takes_what_the_folder_alone_shows(store: str, uri: str) -> None:
    new_lake(uri, store)

    def wrap(objects: Objects) -> Objects:
        return FaultyObjects(objects, [call_before(dies, "put", "_conroi/lake/*3.json")])

    with pytest.raises(Dies):
        connect_through(uri, wrap, store=store)["t"].append([{"id": 3}])
    with other_ages(0, 0):
        lake = conroi.connect(uri, store=store)
        assert lake.expire("0s", keep=1, dry_run=False).removed == (1, 2)
    assert contents(conroi.connect(uri)) == {"t": [1, 2, 3]}


@pytest.mark.contract("X12")
def test_a_table_of_the_lake_is_read_by_its_path_without_the_store(store: str, uri: str) -> None:
    new_lake(uri, store)
    assert ids(conroi.open_table(f"{uri}/t.lance")) == [1, 2]


# ------------------------------------------------------------------------------------ storage without conditions


class Refusing(CloudLike):
    """An object store that answers 501 to conditions."""

    def put_if_absent(self, path: str, data: bytes) -> None:
        raise UnsupportedByStorage(f"Conditions are not implemented ({path}, {len(data)}).")

    def rename_if_absent(self, source: str, target: str) -> None:
        raise UnsupportedByStorage(f"No conditions ({source}, {target}).")

    copy_if_absent = rename_if_absent


def use(connect: Callable[[], conroi.Lake]) -> conroi.Lake:
    """Create, commit several tables at once, rename, drop, from two clients."""
    one, two = connect(), connect()
    one.create_table("t", [{"id": 1}])
    two.create_table("u", [{"id": 1}], key="id")
    for number in (2, 3, 4):
        with (one if number % 2 else two).begin() as tx:
            tx["t"].append([{"id": number}])
            tx["u"].merge([{"id": number}], on="id").when_not_matched_insert_all().execute()
    one["t"].delete("id = 1")
    two.rename_table("u", "v")
    two.create_table("w", [{"id": 1}])
    one.drop_table("w")
    for lake in (one, two):
        settle(lake)
    lake = connect()
    assert contents(lake) == {"t": [2, 3, 4], "v": [1, 2, 3, 4]}
    return lake


@pytest.mark.contract("X6", "P1")
def test_a_lake_on_storage_that_refuses_conditions(store: str, uri: str) -> None:
    """G2: such storage is what a store is for; single tables have the same fallback."""
    use(lambda: connect_through(uri, Refusing, store=store))
    assert contents(conroi.connect(uri)) == {"t": [2, 3, 4], "v": [1, 2, 3, 4]}


@pytest.mark.contract("X6", "P1")
def test_a_lake_on_storage_that_ignores_conditions(rclone: S3Server, postgres: PostgresServer) -> None:
    uri, address = rclone.new_uri("lake"), postgres.new_address()
    lake = use(lambda: conroi.connect(uri, store=address, storage_options=rclone.options))
    assert contents(conroi.connect(uri, storage_options=rclone.options)) == contents(lake)
