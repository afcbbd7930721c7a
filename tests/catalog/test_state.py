"""What a reader works out from the records of each publication is what is in `__manifest`."""

from __future__ import annotations

import random
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from conroi import history
from conroi import operations as ops
from conroi.catalog.manifest_rows import SCHEMA
from conroi.catalog.manifest_store import ManifestStore
from conroi.catalog.opening import manifest_files, open_catalog
from conroi.catalog.rows import TABLE, Row
from conroi.catalog.state import Changes, CommitMetadata, LakeState
from conroi.catalog.store import CatalogStore, Dependencies
from conroi.environment import SYSTEM, Environment
from conroi.format.keyfilter import bloom_filter, may_intersect
from conroi.format.naming import ManifestNaming
from conroi.snapshots.snapshot import load_transaction
from conroi.storage import open_objects
from conroi.testing import SeededEnvironment, connect_through
from tests.support.instruments import CloudLike
from tests.support.lakes import lake_with
from tests.support.sampling import seeds_of_the_day

pytestmark = pytest.mark.contract("P8", "M5")

NAMES = [f"t{number:03}" for number in range(300)]


def new_heads(uri: str) -> ManifestStore:
    return ManifestStore(manifest_files(open_objects(uri), None, durable=False, environment=SYSTEM))


def publish(heads: CatalogStore, state: LakeState, changes: Changes) -> LakeState:
    attempt = heads.build(state, changes, CommitMetadata(), str(SYSTEM.new_uuid()), Dependencies)
    for task in attempt.tasks:
        task()
    published = attempt.put()
    assert isinstance(published, LakeState)
    return published


def facts(state: LakeState) -> dict[str, object]:
    """All that the next publication is built on."""
    return {
        "version": state.version,
        "rows": dict(state.rows),
        "places": dict(state.places),
        "small": state.small,
        "dead": {fragment: gone for fragment, gone in state.dead.items() if gone},
        "physical": dict(state.physical),
    }


def drawn(chance: random.Random, rows: dict[str, str], step: int) -> dict[str, str | None]:
    """Changes: a few new tables or very many, new versions of some, some dropped, all of them at times."""
    kind = chance.choice(["grow", "many", "move", "move", "move", "drop", "mixed", "empty"])
    if kind == "empty" and chance.random() < 0.8:
        kind = "move"
    free, taken = [name for name in NAMES if name not in rows], list(rows)
    new = {"grow": chance.randint(1, 5), "many": chance.randint(40, 120), "mixed": 2}.get(kind, 0)
    moved = {"move": chance.randint(1, 4), "mixed": chance.choice([3, 80])}.get(kind, 0)
    dropped = {"drop": chance.choice([1, 2, 70]), "mixed": 2, "empty": len(taken)}.get(kind, 0)
    changes: dict[str, str | None] = {}
    for name in chance.sample(free, min(new, len(free))) + chance.sample(taken, min(moved, len(taken))):
        changes[name] = str(step)
    for name in chance.sample(taken, min(dropped, len(taken))):
        changes[name] = None
    return changes or {NAMES[0]: str(step)}


def overwrite_by_pylance(uri: str) -> None:
    """As its directory namespace does when it creates or deregisters a table."""
    rows = lance.dataset(f"{uri}/__manifest").to_table()
    lance.write_dataset(rows, f"{uri}/__manifest", schema=SCHEMA, mode="overwrite")


def play(uri: str, seed: int, steps: int) -> int:
    """A random history with two publishers and a reader that follows; how often everything was written anew."""
    chance = random.Random(seed)
    open_catalog(uri, store=None, storage_options=None, durable=False, environment=SYSTEM)
    publishers = [new_heads(uri), new_heads(uri)]
    states = [heads.newest(None).state for heads in publishers]
    follower = new_heads(uri)
    followed = follower.newest(None).state
    expected: dict[str, str] = {}
    rewritten = 0
    for step in range(steps):
        number = chance.randrange(2)
        if chance.random() < 0.05:  # one that has seen nothing yet
            publishers[number] = new_heads(uri)
            states[number] = publishers[number].newest(None).state
        states[number] = publishers[number].newest(states[number]).state
        changes = drawn(chance, expected, step)
        rows = {
            name: None if value is None else Row(name, TABLE, f"{name}.lance", f'{{"v":"{value}"}}')
            for name, value in changes.items()
        }
        fragments = set(states[number].physical)
        states[number] = publish(publishers[number], states[number], rows)
        rewritten += len(fragments) > 1 and not fragments & set(states[number].physical)
        expected = {k: v for k, v in {**expected, **changes}.items() if v is not None}
        if chance.random() < 0.03:
            overwrite_by_pylance(uri)
        if chance.random() < 0.7:
            followed = follower.newest(followed).state
            full = new_heads(uri).newest(None).state
            assert facts(followed) == facts(full), f"seed {seed}, step {step}"
            assert {key: row.notes["v"] for key, row in full.rows.items()} == expected, f"seed {seed}, step {step}"
    return rewritten


@pytest.mark.parametrize("seed", seeds_of_the_day("followed states", 0, 3))
def test_followed_states_are_the_states_read_in_full(seed: int, tmp_path: Path) -> None:
    play(str(tmp_path / "lake"), seed, 120)


@pytest.mark.soak
def test_followed_states_are_the_states_read_in_full_for_long(tmp_path: Path) -> None:
    rewritten = sum(play(str(tmp_path / f"lake-{seed}"), seed, 2000) for seed in range(100, 104))
    assert rewritten, "the histories are long enough for everything to be written anew"


def heads_of_lake(uri: str, environment: Environment = SYSTEM, *, is_cloud: bool = False) -> ManifestStore:
    objects = CloudLike(open_objects(uri)) if is_cloud else open_objects(uri)
    return ManifestStore(manifest_files(objects, None, durable=False, environment=environment))


def table_row(name: str, number: int) -> Row:
    return Row(name, TABLE, f"{name}.lance", f'{{"v":"{number}"}}')


@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])
def test_a_reader_follows_the_commits_since_its_state(is_cloud: bool, tmp_path: Path) -> None:
    uri = lake_with(tmp_path / "lake").uri
    writer, reader = heads_of_lake(uri), heads_of_lake(uri, is_cloud=is_cloud)
    known = reader.newest(None)
    assert (known.commits, known.is_complete) == ((), True)
    state = writer.newest(None).state
    published = [state]
    for number in range(5):
        published.append(publish(writer, published[-1], {"t": table_row("t", number)}))
    seen = reader.newest(known.state)
    assert [each.version for each in seen.commits] == [each.version for each in published[1:]]
    assert (seen.is_complete, facts(seen.state)) == (True, facts(published[-1]))
    assert reader.newest(seen.state).state is seen.state
    other = heads_of_lake(uri).newest(known.state)
    assert (other.commits, other.is_complete, facts(other.state)) == ((), False, facts(published[-1]))


def test_rows_that_are_deleted_in_a_large_fragment_are_read_back(tmp_path: Path) -> None:
    uri = lake_with(tmp_path / "lake").uri
    heads = heads_of_lake(uri)
    many = publish(heads, heads.newest(None).state, {name: table_row(name, 0) for name in NAMES})
    after = publish(heads, many, {NAMES[7]: table_row(NAMES[7], 1), NAMES[9]: None})
    assert [list(gone) for gone in after.dead.values()] == [[7, 9]]
    assert facts(heads_of_lake(uri).newest(None).state) == facts(after)


def test_times_of_versions_grow_whatever_the_clock_says(tmp_path: Path) -> None:
    uri = lake_with(tmp_path / "lake").uri
    heads = heads_of_lake(uri, SeededEnvironment(1, start_ns=1_000))
    before = heads.newest(None).state
    after = publish(heads, before, {"t": table_row("t", 1)})
    assert after.timestamp_ns == before.timestamp_ns + 1


def test_a_publication_says_which_names_are_new_for_a_merge_by_pylance(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", "t")
    lake["t"].append([{"n": 1}])
    lake.create_table("u", [{"n": 1}])
    files = manifest_files(open_objects(lake.uri), None, durable=False, environment=SYSTEM)
    found: list[ops.Operation] = []
    for version in (lake.version, lake.version - 1):
        transaction = load_transaction(files.objects, history.find(files, version))
        assert transaction is not None
        found.append(ops.of(transaction))
    created, appended = found
    assert isinstance(created, ops.Update)
    assert isinstance(appended, ops.Update)
    assert appended.inserted_rows is None
    assert created.inserted_rows is not None
    key = next(field.id for field in files.head().manifest.fields if field.name == "object_id")
    assert list(created.inserted_rows.field_ids) == [key]
    for name, is_new in (("u", True), ("v", False)):
        wanted = bloom_filter([key], [pa.array([name], pa.string())])
        assert may_intersect(wanted, created.inserted_rows) is is_new


@pytest.mark.parametrize("idle_s", [0.0, 61.0])
def test_versions_that_were_collected_hide_no_newer_one(idle_s: float, tmp_path: Path) -> None:
    """A reader looks for the version after the one it knows; what is younger than a minute is never collected."""
    environment = SeededEnvironment(1)
    lake = lake_with(tmp_path / "lake", "t")
    reader = connect_through(lake.uri, lambda objects: objects, environment=environment)
    known = reader.version
    for number in range(4):
        lake["t"].append([{"n": number}])
    for version in (known + 1, known + 2):
        (tmp_path / "lake/__manifest" / ManifestNaming.V2.path(version)).unlink()
    environment.sleep(idle_s)
    assert reader.version == (lake.version if idle_s else known), "the control is who did not wait"
