"""World of one run: its scheduler, bucket, clients and faults, and the trace of all that happened."""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cache, cached_property
from typing import Any, Literal, TypeVar

from conroi.catalog.opening import open_catalog
from conroi.errors import ConroiError, NotFoundError
from conroi.lake import Lake
from conroi.storage import BUCKETS
from conroi.storage.location import CloudLocation
from conroi.storage.objects import ObjectExists, Reach
from conroi.testing.simulation.data_files import StandIn
from conroi.testing.simulation.database import ADDRESS, SimulatedDatabase
from conroi.testing.simulation.faults import LATEST_S, Faults
from conroi.testing.simulation.locks import LockServer, SimulatedLocks
from conroi.testing.simulation.pylance_files import PylanceFiles
from conroi.testing.simulation.scheduler import Client, ClientCrashed, Scheduler, WorkerEnvironment
from conroi.testing.simulation.storage import SimulatedObjects, no_answer, refusal

T = TypeVar("T")
Script = Callable[["Process"], None]
DataFiles = Literal["stand-in", "pylance"]
"""What reads and writes data files."""

START_NS = 1_800_000_000_000_000_000
LATENCY_S = 0.02
"""Mean duration of a request, in seconds."""
HOUR = 3600.0
PAUSES_S = (2.0, 20.0, 90.0, HOUR, 5 * HOUR)
JUMPS_S = (-5 * HOUR, -100.0, -1.0, 1.0, 100.0, 5 * HOUR)
_numbers = itertools.count(1)


@cache
def unlock_cached_properties() -> None:
    """In Python 3.11 a cached_property holds a lock of its class while it is computed, also across requests.

    The scheduler does not see that lock, and later versions of Python do not have it.
    """
    for name, module in list(sys.modules.items()):
        kinds = [kind for kind in vars(module).values() if isinstance(kind, type)] if name.startswith("conroi") else []
        for value in [value for kind in kinds for value in vars(kind).values()]:
            if isinstance(value, cached_property) and hasattr(value, "lock"):
                setattr(value, "lock", nullcontext())  # noqa: B010


class World:
    """One run. All that happens in it follows from the seed."""

    def __init__(
        self,
        seed: int,
        *,
        faults: Faults | None = None,
        keeps_story: bool = False,
        data_files: DataFiles = "stand-in",
        folder: str | None = None,
    ) -> None:
        self.seed = seed
        self.chance = random.Random(f"{seed} world")  # noqa: S311  # to be repeatable is the point
        self.scheduler = Scheduler(seed)
        self.faults = Faults.drawn(seed) if faults is None else faults
        self.is_listing_ordered = self.chance.random() < 0.75
        self.data_files = PylanceFiles(self, folder) if data_files == "pylance" else StandIn(self)
        self.bucket = self.data_files.bucket
        self.database: SimulatedDatabase | None = None
        """The SQL store of the lake; None: it is in the lake's folder."""
        self.lock_server: LockServer | None = None
        """Where the lake has its insert locks; None: it has none."""
        self.clients: dict[str, Client] = {}
        self.requests = 0
        self.story: list[str] | None = [] if keeps_story else None
        self._trace = hashlib.blake2b(digest_size=16)
        self._latency = random.Random(f"{seed} latency")  # noqa: S311
        # A name of its own in this process, since caches are by name; it is not part of the trace.
        self._name = f"simulation-{next(_numbers):012d}"
        self.uri = f"s3://{self._name}/lake"

    def __enter__(self) -> World:
        BUCKETS["s3", self._name] = self.objects
        return self

    def __exit__(self, *_: object) -> None:
        BUCKETS.pop(("s3", self._name), None)
        self.data_files.close()

    @property
    def trace(self) -> str:
        """Hash of all requests, their times and outcomes."""
        return self._trace.hexdigest()

    def now_ns(self) -> int:
        """The storage's clock."""
        return START_NS + round(self.scheduler.now * 1e9)

    def objects(self, location: CloudLocation, reach: Reach | None = None) -> SimulatedObjects:
        """The files at a location in the bucket."""
        return SimulatedObjects(self, location, reach)

    def shuffle(self, items: list[Any]) -> None:
        """In an order that the seed decides."""
        self.chance.shuffle(items)

    def note(self, text: str) -> None:
        """A line of the story, which is part of the trace."""
        actor = self.scheduler.current
        line = f"{self.scheduler.now:12.4f} {'-' if actor is None else actor.name:<14} {text}"
        self._trace.update(line.encode())
        if self.story is not None:
            self.story.append(line)

    # ------------------------------------------------------------------------ clients

    def client(self, name: str, *, is_faulty: bool = True) -> Client:
        """A process with clocks, speed and randomness of its own."""
        chance = random.Random(f"{self.seed} {name}")  # noqa: S311
        client = Client(name, chance, is_faulty=is_faulty)
        if is_faulty:
            client.offset_s = chance.choice((0.0, 0.0, chance.uniform(-2, 2), chance.uniform(-300, 300)))
            client.rate = chance.choice((1.0, 1.0, chance.uniform(0.99, 1.01)))
            client.speed = math.exp(chance.uniform(-1.2, 1.2))
        self.clients[name] = client
        return client

    def run(self, scripts: Mapping[str, Script], *, with_faults: bool = True) -> None:
        """Clients that do this concurrently; one that crashes starts its script again, as a new process."""
        unlock_cached_properties()
        self.faults.is_active = with_faults
        for name, script in scripts.items():
            self._begin(name, script, 0, is_faulty=with_faults)
        self.scheduler.run()
        self.faults.is_active = False

    def _begin(self, name: str, script: Script, life: int, *, is_faulty: bool, after_s: float = 0.0) -> None:
        client = self.client(f"{name}.{life}" if life else name, is_faulty=is_faulty)
        process = Process(self, client, name, life)

        def work() -> None:
            try:
                script(process)
            except ClientCrashed:
                self.scheduler.at(
                    0.5, lambda: self._begin(name, script, life + 1, is_faulty=is_faulty, after_s=self._wait_s())
                )
                raise

        self.scheduler.spawn(client, work, after_s=after_s, name=client.name)

    def _wait_s(self) -> float:
        return self._latency.uniform(0.0, 5.0)

    # ------------------------------------------------------------------------ requests

    def request(
        self,
        verb: str,
        key: str,
        table: str,
        effect: Callable[[], T],
        *,
        size: int = 0,
        is_write: bool = False,
        may_repeat: bool = False,
        decides: bool = False,
        is_reliable: bool = False,
    ) -> T:
        """One request of the current client: it takes time, and may meet a fault."""
        scheduler = self.scheduler
        actor = scheduler.current
        if actor is None:
            return effect()
        client = actor.client
        if client.is_dead:
            raise ClientCrashed(client.name)
        self.requests += 1
        fault = None
        if client.is_faulty and not is_reliable:
            fault = self.faults.choose(is_write=is_write, may_repeat=may_repeat, decides=decides)
            if fault is not None:
                self.note(f"{verb} {key}: {fault}")
                self._befall(client, fault)
            if self.faults.is_active and scheduler.now < self.faults.out_until:
                fault = "outage"
        latency_s = self._latency.expovariate(1 / LATENCY_S) * client.speed
        if fault == "slow":
            latency_s *= 100
        try:
            scheduler.pause(latency_s / 2)
        except ClientCrashed:
            if is_write and self._latency.random() < 0.5:
                self._land_later(verb, key, effect)
            raise
        if fault in ("lost_before", "lost_read", "outage"):
            scheduler.pause(latency_s)
            raise no_answer(verb, key, table)
        if fault == "refused":
            raise refusal(verb, key, table)
        if fault == "late":
            self._land_later(verb, key, effect)
            scheduler.pause(self._latency.choice((0.1, 1.0, 5.0)))
            raise no_answer(verb, key, table)
        if fault == "crash" and (not is_write or self._latency.random() < 0.5):
            self._crash(client)  # otherwise it is executed, and its client dies before the answer
        try:
            answer = effect()
        except (ObjectExists, NotFoundError):
            self._answered(verb, key, size, "no", fault, client)
            scheduler.pause(latency_s / 2)
            if fault == "lost_after":
                raise no_answer(verb, key, table) from None
            raise
        self._answered(verb, key, size, "yes", fault, client)
        if fault == "repeated":
            self._land_later(verb, key, effect)
        scheduler.pause(latency_s / 2)
        if fault == "lost_after":
            raise no_answer(verb, key, table)
        return answer

    def _answered(self, verb: str, key: str, size: int, outcome: str, fault: str | None, client: Client) -> None:
        scheduler = self.scheduler
        actor = scheduler.current
        assert actor is not None
        self._trace.update(f"{scheduler.now:.9f} {actor.name} {verb} {key} {size} {outcome}".encode())
        if self.story is not None:
            self.story.append(f"{scheduler.now:12.4f} {actor.name:<14} {verb} {key} {'' if outcome == 'yes' else 'no'}")
        if fault == "crash":
            self._crash(client)

    def _crash(self, client: Client) -> None:
        self.note("crashes")
        self.scheduler.crash(client)
        raise ClientCrashed(client.name)

    def _befall(self, client: Client, fault: str) -> None:
        """What happens to the client as a whole."""
        if fault == "pause":
            client.paused_until = self.scheduler.now + self._latency.choice(PAUSES_S)
        elif fault == "clock_jump":
            client.offset_s += self._latency.choice(JUMPS_S)
        elif fault == "outage":
            self.faults.out_until = max(self.faults.out_until, self.scheduler.now + self._latency.uniform(0.1, 10.0))

    def _land_later(self, verb: str, key: str, effect: Callable[[], object]) -> None:
        """The request reaches the storage when its client has given up on it, or is gone."""

        def land() -> None:
            try:
                effect()
                self.note(f"{verb} {key} lands late")
            except (ObjectExists, ConroiError):
                self.note(f"{verb} {key} lands late, without effect")

        longest_s = self._latency.choice((0.1, 1.0, LATEST_S))
        self.scheduler.at(self._latency.uniform(0.0, longest_s), land)


class Process:
    """What a script has: a client of the world, in one life of its process."""

    def __init__(self, world: World, client: Client, name: str, life: int) -> None:
        self.world = world
        self.client = client
        self.name = name
        self.life = life
        self.environment = WorkerEnvironment(world.scheduler, client, START_NS)
        self.chance = random.Random(f"{world.seed} {name} {life} script")  # noqa: S311

    def connect(self) -> Lake:
        """A connection of this process, with nothing in memory."""
        database, lock_server = self.world.database, self.world.lock_server
        catalog, manifest = open_catalog(
            self.world.uri,
            store=None if database is None else ADDRESS,
            storage_options=None,
            durable=False,
            environment=self.environment,
            wrap_store=lambda tables: database or tables,
        )
        if lock_server is not None:
            catalog.locks = SimulatedLocks(catalog, lock_server.client(self.client))
        return Lake(catalog, manifest)

    def patiently(self, work: Callable[[], T], *, attempts: int = 50) -> T:
        """Repeat work that changes nothing while the storage does not answer."""
        for attempt in range(attempts):
            try:
                return work()
            except ConroiError:
                if attempt == attempts - 1:
                    raise
                self.world.scheduler.pause(1.0)
        raise AssertionError("unreachable")

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.world.scheduler.pause(seconds)
