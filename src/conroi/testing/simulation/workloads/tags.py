"""Tags: a tagged version is kept whole by expiry and garbage collection, and of two moves of a tag one succeeds.

Clients make transfers (bank), tag versions under names of their own, read tagged versions again after hours, and move
one common tag by compare-and-swap: to a version that they made themselves, so every version is its target only once.
"""

from __future__ import annotations

from conroi.errors import AlreadyExistsError, ConroiError, ExpectedVersionMismatch, NotFoundError
from conroi.lake import Lake
from conroi.testing.simulation.workloads.base import EXPECTED
from conroi.testing.simulation.workloads.upkeep import Upkeep
from conroi.testing.simulation.world import Process

COMMON = "released"


class Tags(Upkeep):
    """See the module."""

    name = "tags"

    def set_up(self, process: Process) -> None:
        super().set_up(process)
        self.tagged: dict[str, int] = {}
        """Acknowledged tags, which are never moved."""
        self.moves: dict[int, int] = {}
        """Acknowledged moves of the common tag: from a version, to a version."""
        lake = process.connect()
        lake.tags.create(COMMON, lake.version)

    def step(self, process: Process, lake: Lake, number: int) -> None:
        action = process.chance.choice(("transfer", "transfer", "create", "move", "read"))
        try:
            if action == "create":
                self._create(process, lake, f"{process.client.name}-{number}")
            elif action == "move":
                self._move(lake)
            elif action == "read" and self.tagged:
                self._read(lake, process.chance.choice(sorted(self.tagged)))
            else:
                super().step(process, lake, number)
        except (*EXPECTED, AlreadyExistsError, NotFoundError) as error:
            self.world.note(f"{action} of a tag ended with {error!r}"[:160])
        except ConroiError as error:
            self.problem(f"{action} of a tag raised {error!r}")

    def _create(self, process: Process, lake: Lake, name: str) -> None:
        """Of the version that is the newest now; it may be an old one when the tag is written."""
        version = lake.version
        if process.chance.random() < 0.5:
            process.sleep(process.chance.choice((0.1, 70.0, 4000.0)))
        self.tagged[lake.tags.create(name, version).name] = version

    def _move(self, lake: Lake) -> None:
        expected = lake.tags.get(COMMON).version
        lake["journal"].set_config({"simulation": "moved"})
        version = lake.version
        if version in self.moves.values() or version == expected:
            return
        try:
            lake.tags.move(COMMON, version, expect=expected)
        except ExpectedVersionMismatch:
            return
        if expected in self.moves:
            self.problem(f"the tag was moved from version {expected} twice: to {self.moves[expected]} and {version}")
        self.moves[expected] = version

    def _read(self, lake: Lake, name: str) -> None:
        version = self.tagged[name]
        found = lake.tags.get(name).version
        if found != version:
            self.problem(f"tag {name} is at version {found}, not {version}")
        self._audit(lake.at(version))

    def check(self, process: Process) -> None:
        super().check(process)
        lake = process.connect()
        for name in sorted(self.tagged):
            try:
                self._read(lake, name)
            except ConroiError as error:
                self.problem(f"the tagged version {self.tagged[name]} cannot be read: {error!r}")
        self._audit(lake.at(lake.tags.get(COMMON).version))
