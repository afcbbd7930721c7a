"""Compares a lake with the journals of its clients.

Each row is changed by one client, in the order of its journal, so for every row the set of values that it may have is
known: one after an acknowledged operation, two or more after operations of unknown outcome.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import lance

import conroi
from tests.mixed.journal import Effect, Operation

TABLES = ("t", "k", "a", "b", "p")
PAIR = ("a", "b")
APART = ("path", "compactor", "runner")
"""Clients that do not compete for versions of the tables: no share is computed for them."""


@dataclass
class Report:
    """What was done and what was found; no anomaly means that the lake kept its promise."""

    operations: int = 0
    by_client: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    errors: Counter[str] = field(default_factory=Counter[str])
    versions: int = 0
    pairs_compared: int = 0
    anomalies: list[str] = field(default_factory=list[str])

    def shares(self) -> dict[str, float]:
        """Acknowledged operations of each competing client, as a part of an equal share."""
        done = {name: counts["ok"] for name, counts in self.by_client.items() if name.split("-")[0] not in APART}
        fair = sum(done.values()) / max(1, len(done))
        return {name: round(count / fair, 2) if fair else 0.0 for name, count in sorted(done.items())}

    def __str__(self) -> str:
        lines = [f"{self.operations} operations, {self.versions} lake versions, {self.pairs_compared} pairs compared"]
        lines += [f"  {name}: {dict(counts)}" for name, counts in sorted(self.by_client.items())]
        lines += [f"  shares: {self.shares()}"]
        lines += [f"  error {count} x {text}" for text, count in self.errors.most_common(20)]
        lines += [f"  ANOMALY {text}" for text in self.anomalies[:30]] or ["  no anomaly"]
        return "\n".join(lines)


def judge(lake: conroi.Lake, operations: Iterable[Operation]) -> Report:
    """Everything that can be said from the journals and the lake."""
    done = list(operations)
    report = Report(operations=len(done))
    _count(done, report)
    rows = {table: _rows(lake, table, report) for table in TABLES if table in lake}
    _compare_rows(done, rows, report)
    _compare_parts(done, rows, report)
    _compare_pairs(lake, report)
    diagnosis = lake.doctor(deep=True)
    report.anomalies += [f"doctor: {finding}" for finding in diagnosis.findings]
    return report


def _count(operations: list[Operation], report: Report) -> None:
    for each in operations:
        counts = report.by_client.setdefault(each.client, Counter())
        counts[each.outcome if each.is_ended else "killed"] += 1
        if each.error:
            report.errors[f"{each.client}, {each.what}, {each.outcome}: {each.error[:160]}"] += 1
        report.anomalies += [f"{each.client}: {problem}" for problem in each.problems]


def _rows(lake: conroi.Lake, table: str, report: Report) -> dict[int, list[str]]:
    """The values of each id, as conroi reads them; pylance by path must see the same."""
    ours: dict[int, list[str]] = defaultdict(list)
    for row in lake[table].to_arrow().to_pylist():
        ours[row["id"]].append(row["v"])
    theirs = lance.dataset(lake[table].uri).to_table().to_pylist()
    if sorted((row["id"], row["v"]) for row in theirs) != sorted((id_, v) for id_, vs in ours.items() for v in vs):
        report.anomalies.append(f"{table}: pylance by path reads other rows than conroi")
    return ours


def _compare_rows(operations: list[Operation], rows: dict[str, dict[int, list[str]]], report: Report) -> None:
    possible: dict[tuple[str, int], set[str | None]] = defaultdict(lambda: {None})
    for operation in operations:
        if operation.outcome == "refused":
            continue
        for effect in operation.effects:
            before = possible[effect.table, effect.id]
            after = {_after(effect, value) for value in before}
            possible[effect.table, effect.id] = after if operation.outcome == "ok" else before | after
    for table, found in rows.items():
        report.anomalies += [f"{table}: row {id_} is there {len(vs)} times" for id_, vs in found.items() if len(vs) > 1]
        unheard = [id_ for id_ in found if (table, id_) not in possible]
        report.anomalies += [f"{table}: row {id_} is there, which was refused or never written" for id_ in unheard]
    for (table, id_), values in possible.items():
        if table not in rows:
            continue
        found = rows[table].get(id_, [None])
        if found[0] not in values:
            report.anomalies.append(f"{table}: row {id_} is {found[0]!r}, not one of {sorted(map(str, values))}")


def _after(effect: Effect, value: str | None) -> str | None:
    if effect.act == "put":
        return effect.value
    return effect.value if effect.act == "update" and value is not None else None


def _compare_parts(operations: list[Operation], rows: dict[str, dict[int, list[str]]], report: Report) -> None:
    """Of an operation of unknown outcome that only put rows which nothing changed later: all are there, or none."""
    touched = Counter((effect.table, effect.id) for each in operations for effect in each.effects)
    for each in operations:
        puts = [effect for effect in each.effects if effect.act == "put"]
        if each.outcome != "unknown" or any(touched[effect.table, effect.id] > 1 for effect in puts):
            continue
        there = {effect.id in rows.get(effect.table, {}) for effect in puts}
        if len(there) > 1:
            report.anomalies.append(f"{each.client}: {each.what} is half visible: {puts}")


def _compare_pairs(lake: conroi.Lake, report: Report) -> None:
    """Both tables of the pair at every version of the lake; a version that changes neither shows what was compared."""
    history = lake.history()
    report.versions = len(history)
    there: set[str] = set()
    for commit in reversed(history):
        changed = [table for table in PAIR if table in commit.tables]
        there.update(changed)
        if not changed or len(there) < len(PAIR):
            continue
        past = lake.at(commit.version)
        first, second = (sorted((row["id"], row["v"]) for row in past[table].to_arrow().to_pylist()) for table in PAIR)
        report.pairs_compared += 1
        if first != second:
            differ = sorted(set(first) ^ set(second))[:4]
            report.anomalies.append(f"the pair differs at lake version {commit.version}: {differ}")
