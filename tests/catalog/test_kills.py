"""A transaction over three tables is there as a whole or not at all, whenever its process is killed."""

from __future__ import annotations

import random
from itertools import count, takewhile
from pathlib import Path

import pytest

from tests.catalog.kills import Checker, Job, Options, connect, killed_at_random, new_lake, transact, was_killed
from tests.support.cloud_servers import BucketServer
from tests.support.databases import sql_address
from tests.support.lakes import settle
from tests.support.sampling import sampled, seed

pytestmark = pytest.mark.contract("P1", "P10", "W10")

SEED = 20261116


def kill_at_each(
    uri: str, *, step: int = 1, is_cloud: bool = False, options: Options = None, store: str | None = None
) -> set[int]:
    """Kill a publisher before its first request, before its second, …; how far behind readers by path were.

    With `step`, only before every so many requests until one dies after the publication, others each day. Then before
    each request from the last one that died before it.
    """
    new_lake(uri, options, store)
    checker = Checker(uri, options, store)
    survivor = connect(uri, is_cloud=is_cloud, options=options, store=store)
    numbers = count(1)

    def outcome(request: int) -> int | None:
        """How many transactions the killed publisher left, 0 or 1; None if it was not killed."""
        before = checker.check()
        job = Job(uri, next(numbers), 1, request, is_cloud=is_cloud, options=options, store=store)
        if not was_killed(job):
            return None
        found = checker.check() - before
        transact(survivor, next(numbers))  # a killed writer blocks no other
        settle(survivor)
        assert checker.check() == before + found + 1
        return found

    first = 1 + random.Random(f"{seed()} kills").randrange(step)
    unpublished = list(takewhile(lambda request: outcome(request) == 0, count(first, step)))
    assert unpublished, "some died before the publication"
    outcomes: list[int] = []
    while (found := outcome(unpublished[-1] + 1 + len(outcomes))) is not None:
        outcomes.append(found)
    assert 1 in outcomes, "some died after the publication"
    if options is None:  # a server may want a request again, so that the numbers of two jobs differ a little
        assert outcomes == sorted(outcomes), "from one request on it is published"
    return checker.behind


@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])
def test_killed_before_any_request(is_cloud: bool, tmp_path: Path) -> None:
    behind = kill_at_each(str(tmp_path / "lake"), step=9 if is_cloud else 6, is_cloud=is_cloud)
    assert behind == {0, 1}, "some died between the publication and the final name"


@pytest.mark.soak
@pytest.mark.parametrize("is_cloud", [False, True], ids=["local", "cloud"])
def test_killed_before_each_request(is_cloud: bool, tmp_path: Path) -> None:
    assert kill_at_each(str(tmp_path / "lake"), is_cloud=is_cloud) == {0, 1}


DATABASES = [("sqlite", False, 9), ("postgresql", False, 12), ("postgresql", True, 12)]


@pytest.mark.contract("X6", "X12")
@pytest.mark.parametrize(
    ("kind", "is_cloud", "step"),
    [
        *sampled("databases of kills", DATABASES, least=2, covers=False, label=str),
        pytest.param("sqlite", False, 1, marks=pytest.mark.soak),
        pytest.param("postgresql", False, 1, marks=pytest.mark.soak),
        pytest.param("postgresql", True, 1, marks=pytest.mark.soak),
    ],
)
def test_killed_before_any_request_or_statement_of_a_lake_in_a_database(
    kind: str, is_cloud: bool, step: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = sql_address(kind, request)
    behind = kill_at_each(str(tmp_path / "lake"), step=step, is_cloud=is_cloud, store=store)
    assert 0 in behind


def test_killed_on_an_object_store(bucket_of_the_day: BucketServer) -> None:
    kill_at_each(bucket_of_the_day.new_uri("lake"), step=15, options=bucket_of_the_day.options)


def play(uri: str, kills: int, seed: int, store: str | None = None) -> int:
    """Kill one or two publishers again and again; how many transactions were published."""
    chance = random.Random(seed)
    new_lake(uri, store=store)
    checker = Checker(uri, store=store)
    killed = 0
    while killed < kills:
        crew = chance.choice([1, 1, 2])
        jobs = [
            Job(uri, 1000 * (killed + n + 1), 900, is_cloud=chance.random() < 0.3, store=store) for n in range(crew)
        ]
        killed_at_random(jobs, chance, 0.3 if store is None else 1.0)
        killed += crew
        checker.check()
    return checker.check()


def test_killed_at_random(tmp_path: Path) -> None:
    assert play(str(tmp_path / "lake"), 8, SEED) > 8


@pytest.mark.contract("X6", "X12")
@pytest.mark.parametrize("kind", sampled("database of the day", [("sqlite",), ("postgresql",)], least=1, covers=False))
def test_killed_at_random_with_the_history_in_a_database(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert play(str(tmp_path / "lake"), 4, SEED, sql_address(kind, request)) > 0


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_at_random_for_long_with_the_history_in_a_database(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    published = [play(str(tmp_path / f"lake-{part}"), 50, SEED + part, sql_address(kind, request)) for part in range(4)]
    print(f"{kind}, seeds {SEED} to {SEED + 3}: {sum(published)} transactions published, 200 kills")


@pytest.mark.soak
def test_killed_at_random_a_thousand_times(tmp_path: Path) -> None:
    published = [play(str(tmp_path / f"lake-{part}"), 50, SEED + part) for part in range(20)]
    print(f"seeds {SEED} to {SEED + 19}: {sum(published)} transactions published by processes that were all killed")


def kill_until_it_shows(uri: str) -> None:
    """Kill a publisher that puts final names too early, at one request after the other."""
    checker = Checker(uri)
    survivor = connect(uri)
    for request in count(1):
        assert was_killed(Job(uri, 2 * request, 1, request, is_final_before_published=True)), "it was whole"
        transact(survivor, 2 * request + 1)
        checker.check()


def test_control_final_names_before_the_publication_show_half_a_transaction(tmp_path: Path) -> None:
    uri = str(tmp_path / "lake")
    new_lake(uri)
    with pytest.raises(AssertionError, match="lake version"):
        kill_until_it_shows(uri)
