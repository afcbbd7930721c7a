"""A lake beside its model, and the handles through which it is looked at."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import conroi
from conroi.lake_snapshot import LakeReader
from tests.branches.histories.checking import Difference, bag_of, check_state
from tests.branches.histories.model import Branch, State, Table, Version, World
from tests.branches.histories.statements import NotApplicable


class Observed:
    """A lake and its model."""

    def __init__(self, uri: str, counts: Counter[str] | None = None) -> None:
        self.uri, self.counts = uri, Counter[str]() if counts is None else counts
        self.code = [f"lake = main = conroi.connect({uri!r})"]
        self.lake = conroi.connect(uri)
        head = Version(0, self.lake.version, State(), {0: self.lake.version})
        self.world = World({"main": Branch(0, "main", head, None, {head.number: head})})
        self.lakes: dict[int, conroi.Lake] = {0: self.lake}
        self.spark: Any = None
        """A Spark session that does the statements on single tables, if there is one."""
        self._older: list[tuple[int, conroi.Lake]] = []
        """Handles that were opened some time ago."""
        self._past: list[tuple[int, int, LakeReader]] = []
        """Past states that were opened some time ago."""
        self._touched: set[str] | None = None
        """Tables that the step changed; None for all."""
        self._is_checked = False
        """Whether the step itself looked at the whole branch."""

    # ------------------------------------------------------------------ looking

    def _look_around(self, chances: random.Random) -> None:
        what = chances.randrange(20)
        branch = chances.choice(list(self.world.branches.values()))
        if what == 0:
            self._older.append((branch.id, conroi.connect(self.uri, branch=branch.name)))
        elif what == 1:
            self._check("a new handle", conroi.connect(self.uri, branch=branch.name), branch.head.state)
        elif what in (2, 3) and self._older:
            number, lake = chances.choice(self._older)
            if number not in self.world.deleted:
                self._check("a handle that was opened before", lake, self.world.by_id(number).head.state)
        elif what in (4, 5):
            self._check_past(branch, chances.choice(sorted(branch.versions)), self.lakes[branch.id], keep=what == 4)
        elif what == 6 and self._past:
            number, version, lake = chances.choice(self._past)
            owner = self.world.by_id(number)
            if not owner.is_deleted:
                self._check_expired(owner, version, lake, "a past state that was opened before")
        elif what == 7:
            self._check("the branch", self.lakes[branch.id], branch.head.state)
        elif what == 8 and chances.randrange(3) == 0:
            self.check_health(deep=False)

    def _check(self, where: str, lake: LakeReader, state: State) -> None:
        try:
            self.counts["tables read"] += check_state(lake, state)
        except Difference as difference:
            raise Difference(f"through {where} of {lake.branch_name}: {difference}") from difference
        except conroi.ConroiError as error:
            raise Difference(f"through {where}: {type(error).__name__}: {error}") from error

    def _check_past(
        self, branch: Branch, version: int, lake: conroi.Lake, *, keep: bool = False, only: list[str] | None = None
    ) -> None:
        try:
            past = lake.at(version)
        except conroi.NotFoundError as error:
            if version in branch.maybe:
                self.counts["past states that were collected"] += 1
                return
            raise Difference(f"{branch.name} at {version}: {error}") from error
        if keep:
            self._past.append((branch.id, version, past))
        self._check_expired(branch, version, past, f"at({version})", only)

    def _check_expired(
        self, branch: Branch, version: int, past: LakeReader, where: str, only: list[str] | None = None
    ) -> None:
        try:
            self.counts["tables read"] += check_state(past, branch.versions[version].state, only=only)
            self.counts["past states"] += 1
        except conroi.ConroiError as error:
            if version not in branch.maybe or not isinstance(error, conroi.NotFoundError):
                raise Difference(f"{branch.name}, {where}: {type(error).__name__}: {error}") from error
        except Difference as difference:
            if version not in branch.maybe or not isinstance(difference.__cause__, conroi.NotFoundError):
                raise Difference(f"{branch.name}, {where}: {difference}") from difference

    def check_health(self, *, deep: bool) -> None:
        diagnosis = self.lake.doctor(deep=deep)
        self.counts["doctor"] += 1
        if not diagnosis.is_healthy:
            raise Difference(f"doctor: {[str(each) for each in diagnosis.findings if each.severity == 'error']}")

    def finish(self, *, deep: bool) -> None:
        """Look at everything: all branches in two handles, past states, tags, doctor, forks through pylance."""
        for branch in self.world.branches.values():
            self._check("its own handle", self.lakes[branch.id], branch.head.state)
            again = conroi.connect(self.uri, branch=branch.name)
            self._check("a new handle", again, branch.head.state)
            self._check_all_past(branch, again)
            self._check_forks(again, branch)
        for name, (number, version) in self.world.tags.items():
            self._check(f"tag {name}", self.lake.at(tag=name), self.world.version(number, version).state)
        self.check_health(deep=deep)

    def _check_all_past(self, branch: Branch, lake: conroi.Lake) -> None:
        """Every version; of each, the tables that are not what they were in the version before."""
        seen = set[tuple[str, int]]()
        for version in sorted(branch.versions):
            entries = branch.versions[version].state.tables.values()
            self._check_past(
                branch, version, lake, only=[e.name for e in entries if (e.name, e.table.version) not in seen]
            )
            seen = {(entry.name, entry.table.version) for entry in entries}

    def _check_forks(self, lake: conroi.Lake, branch: Branch) -> None:
        """pylance by path: a table that was forked is the branch's version in its own folder."""
        lance_name = next((each.lance_name for each in lake.branches if each.name == branch.name), None)
        if lance_name is None:
            return
        for entry in list(branch.head.state.tables.values())[:1]:
            table = lake[entry.name]
            manifest = f"_versions/{2**64 - 1 - table.version:020}.manifest"
            if f"/tree/{lance_name}" not in table.uri or not Path(table.uri, manifest).is_file():
                continue  # not written on this branch
            try:
                rows = _by_path(table.uri, lance_name, table.version)
            except (ValueError, OSError) as error:
                raise Difference(f"pylance by path, {entry.name} on {branch.name}: {error}") from error
            self.counts["forks through pylance"] += 1
            if bag_of(rows, entry.table.columns) != entry.table.content[2]:
                raise Difference(f"pylance by path: {entry.name} on {branch.name} has other rows")

    # ------------------------------------------------------------------ helpers

    def _branch(self, name: str) -> Branch:
        if name not in self.world.branches:
            raise NotApplicable
        return self.world.branches[name]

    def _table(self, branch: str, name: str) -> tuple[Branch, int, Table]:
        found = self._branch(branch)
        tid = found.head.state.named(name)
        if tid is None:
            raise NotApplicable
        return found, tid, found.head.state.tables[tid].table

    def _commit(self, branch: Branch, state: State) -> Branch:
        number = self.lakes[branch.id].version
        if number != branch.head.number:
            branch.commit(number, state)
        elif state is not branch.head.state:
            branch.head = replace(branch.head, state=state)
            branch.versions[number] = branch.head
        return branch

    def _put(self, branch: Branch, tid: int, table: Table, name: str | None = None) -> Branch:
        state = branch.head.state
        name = name or state.tables[tid].name
        if self._touched is not None:
            self._touched.add(name)
        return self._commit(branch, state.having(tid, name, table))

    def _say(self, text: str) -> None:
        self.code.append(text)


def _by_path(uri: str, branch: str, version: int) -> pa.Table:
    """What pylance reads of a forked table as a branch; or as a folder, if it was made on the branch."""
    root = uri.split("/tree/")[0]
    if Path(root, "_versions").is_dir():
        try:
            return lance.dataset(root).checkout_version((branch, version)).to_table()
        except OSError as error:
            if "belonging to branch 'main'" not in str(error):
                raise
    return lance.dataset(uri, version=version).to_table()
