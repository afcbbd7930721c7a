"""A reader: audits one version of the lake after the other while the workers write, each of them pinned.

    python -m orders.auditor NAME LAKE

It goes on until its input is closed; then it audits the newest version and ends.
"""

from __future__ import annotations

import select
import sys
import time

import conroi

from .events import Event, What, speaker
from .invariants import COLUMNS, INVARIANTS

FORWARD, STAYS = "versions move forward", "an old version stays as it was"
SHORTEST_PAUSE_S = 0.2
CHECKS = [*INVARIANTS, FORWARD, STAYS]


class Auditor:
    """Remembers what it saw last."""

    def __init__(self, name: str, lake: conroi.Lake) -> None:
        self.name = name
        self.lake = lake
        self._before: tuple[int, dict[str, int], dict[str, int]] | None = None

    def audit(self) -> Event:
        """Read all tables of one version of the lake and check what must hold."""
        started = time.time()
        version = self.lake.version
        snapshot = self.lake.at(version=version)
        tables = {name: snapshot[name] for name in COLUMNS}
        rows = {name: table.to_arrow(COLUMNS[name]) for name, table in tables.items()}
        broken = {claim: check(rows) for claim, check in INVARIANTS.items()}
        problems = [f"{claim}: {count} rows" for claim, count in broken.items() if count]
        counts = {name: found.num_rows for name, found in rows.items()}
        versions = {name: table.version for name, table in tables.items()}
        problems += self._compared(version, versions)
        self._before = version, versions, counts
        return Event(
            What.AUDIT,
            self.name,
            version=version,
            rows=counts,
            checks=len(CHECKS),
            problems=[f"version {version}: {problem}" for problem in problems],
            seconds=time.time() - started,
        )

    def _compared(self, version: int, versions: dict[str, int]) -> list[str]:
        """With what was seen at the audit before."""
        if self._before is None:
            return []
        old_version, old_versions, old_counts = self._before
        problems: list[str] = []
        if version < old_version or any(versions[name] < old for name, old in old_versions.items()):
            problems.append(f"{FORWARD}: {old_version} {old_versions} became {version} {versions}")
        again = self.lake.at(version=old_version)
        if any(again[name].count_rows() != count for name, count in old_counts.items()):
            problems.append(f"{STAYS}: version {old_version} has other rows now")
        return problems


def main(name: str, lake_uri: str) -> None:
    """Audit every version that we meet, with breaks, so that the workers have the machine too."""
    tell = speaker()
    lake = conroi.connect(lake_uri)
    auditor = Auditor(name, lake)
    tell(Event(What.READY, name))
    seen, pause_s, must_end = 0, 0.0, False
    while not must_end:
        asked_to_stop, _, _ = select.select([sys.stdin], [], [], pause_s)
        must_end = bool(asked_to_stop)
        if lake.version != seen or must_end:
            audit = auditor.audit()
            tell(audit)
            seen, pause_s = audit.version, max(SHORTEST_PAUSE_S, 2 * audit.seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])
