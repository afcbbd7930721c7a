"""Does the steps of a history, to a lake and to the model, and compares the two after each."""

from __future__ import annotations

import datetime
import random
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import conroi
from conroi.versions.retention import other_ages
from tests.branches.histories.checking import Difference, check_conflicts, check_state, reported
from tests.branches.histories.generating import Step
from tests.branches.histories.model import Branch, Version, fresh
from tests.branches.histories.statements import NotApplicable
from tests.branches.histories.table_steps import TableSteps
from tests.branches.histories.three_way import Base, Reported, Settling, Side, merged

NO_TIME = datetime.timedelta(0)
CLASSES = {"created": "name", "schema": "rows", "history": "dropped"}
"""Kinds between which the model does not always tell, for functions given as `prefer`."""


def decide(salt: int, kind: str, key: Any) -> Side:
    """The answer of a function given as `prefer`; the same for the same conflict."""
    what = (salt, CLASSES.get(kind, kind), key if kind == "row" else None)
    return "source" if zlib.crc32(repr(what).encode()) & 4 else "target"


class History(TableSteps):
    """All steps: those on one branch, and those on branches, tags and versions."""

    def do(self, step: Step) -> bool:
        """Do a step and look at the branch; whether it had a meaning."""
        work: Callable[..., Branch | None] = getattr(self, f"_{step[0]}")
        written = len(self.code)
        self._touched, self._is_checked = set(), False
        try:
            branch = work(*step[1:])
        except NotApplicable:
            assert len(self.code) == written, step
            return False
        except conroi.ConroiError as error:
            raise Difference(f"{step[0]}: {type(error).__name__}: {error}") from error
        self.counts[f"step {step[0]}"] += 1
        chances = random.Random(zlib.crc32(repr(step).encode()))
        if branch is not None and not self._is_checked:
            only = self._to_be_read(branch)
            self.counts["tables read"] += check_state(self.lakes[branch.id], branch.head.state, only=only)
        self._look_around(chances)
        return True

    def _to_be_read(self, branch: Branch) -> set[str] | None:
        """Tables that the step changed, and one more; None for all."""
        if self._touched is None:
            return None
        others = {entry.name for entry in branch.head.state.tables.values()} - self._touched
        return self._touched | set(sorted(others)[:1])

    # ------------------------------------------------------------------ branches and tags

    def _create_branch(self, name: str, parent_name: str, how: str, what: Any) -> Branch:
        if name in self.world.branches:
            raise NotApplicable
        parent = self._branch(parent_name)
        if how == "tag":
            if what not in self.world.tags:
                raise NotApplicable
            number, version = self.world.tags[what]
            parent, from_ = self.world.by_id(number), what
            origin = parent.versions[version]
            text = f"lake.branches.create({name!r}, from_={what!r})"
        elif how == "version":
            if what not in parent.versions or what in parent.maybe:
                raise NotApplicable
            origin, from_ = parent.versions[what], what
            text = f"{parent_name}.branches.create({name!r}, from_={what})"
        else:
            origin, from_ = parent.head, parent_name
            text = f"lake.branches.create({name!r}, from_={parent_name!r})"
        self._say(f"{text}; {name} = lake.branch({name!r})")
        through = self.lakes[parent.id] if how == "version" else self.lake
        through.branches.create(name, from_=from_)
        branch_id = fresh()
        head = Version(branch_id, origin.number, origin.state, origin.clock)
        branch = Branch(branch_id, name, head, origin, {head.number: head})
        self.world.branches[name] = branch
        self.lakes[branch_id] = self.lake.branch(name)
        self._touched = None
        return branch

    def _delete_branch(self, name: str, drops_tags: bool = False) -> None:
        """Refused if tags name its versions, unless they are to go with it."""
        branch = self._branch(name)
        if name == "main":
            raise NotApplicable
        tags = [tag for tag, (number, _) in self.world.tags.items() if number == branch.id]
        how = "drop" if drops_tags else "refuse"
        self._say(f"lake.branches.delete({name!r}, tags={how!r})")
        try:
            self.lake.branches.delete(name, tags=how)
        except conroi.ConroiError as error:
            if not tags or drops_tags:
                raise
            if not all(tag in str(error) for tag in tags):
                raise Difference(f"refused to delete {name}, but the tags {tags} are not named: {error}") from error
            self.counts["branches not deleted for their tags"] += 1
            return
        if tags and not drops_tags:
            raise Difference(f"{name} was deleted though the tags {tags} name its versions")
        for tag in tags:
            del self.world.tags[tag]
        if sorted(each.name for each in self.lake.tags) != sorted(self.world.tags):
            raise Difference(f"tags are {[each.name for each in self.lake.tags]}, expected {sorted(self.world.tags)}")
        branch.is_deleted = True
        self.world.deleted[branch.id] = self.world.branches.pop(name)
        self._older = [each for each in self._older if each[0] != branch.id]
        self._past = [each for each in self._past if each[0] != branch.id]

    def _rename_branch(self, name: str, new: str) -> Branch:
        branch = self._branch(name)
        if new in self.world.branches or name == "main":
            raise NotApplicable
        self._say(f"lake.branches.rename({name!r}, {new!r}); {new} = {name}")
        self.lake.branches.rename(name, new)
        self.world.branches = {each.name if each is not branch else new: each for each in self.world.branches.values()}
        branch.name = new
        self._touched = None
        return branch

    def _tag(self, branch_name: str, name: str) -> None:
        branch = self._branch(branch_name)
        if name in self.world.tags:
            self._say(f"lake.tags.delete({name!r})")
            self.lake.tags.delete(name)
            del self.world.tags[name]
            return
        if branch.id not in branch.head.clock:
            raise NotApplicable  # nothing of its own yet
        self._say(f"{branch_name}.tags.create({name!r})")
        self.lakes[branch.id].tags.create(name)
        self.world.tags[name] = (branch.id, branch.head.number)

    # ------------------------------------------------------------------ upkeep

    def _compact(self, branch_name: str, name: str) -> Branch:
        branch, tid, table = self._table(branch_name, name)
        self._say(f"{branch_name}[{name!r}].compact()")
        self.lakes[branch.id][name].compact()
        return self._put(branch, tid, table.changed())

    def _index(self, branch_name: str, name: str, column_name: str) -> Branch:
        branch, tid, table, column = self._column(branch_name, name, column_name)
        if column.type not in ("i32", "i64", "str"):
            raise NotApplicable
        self._say(f"{branch_name}[{name!r}].create_index({column_name!r}, replace=True)")
        self.lakes[branch.id][name].create_index(column_name, replace=True)
        return self._put(branch, tid, table.changed())

    def _collect(self) -> Branch:
        main = self.world.branches["main"]
        self._say("with other_ages(0, 0): lake.expire(timedelta(0), keep=1, dry_run=False); "
                  "lake.gc(min_age=timedelta(0), dry_run=False)")  # fmt: skip
        with other_ages(0, 0):
            self.lake.expire(NO_TIME, keep=1, dry_run=False)
            self.lake.gc(min_age=NO_TIME, dry_run=False)
        needed = {(each.origin.branch, each.origin.number) for each in self.world.branches.values() if each.origin}
        needed |= set(self.world.tags.values())
        main.maybe = {number for number in main.versions if number != main.head.number and (0, number) not in needed}
        for branch in self.world.deleted.values():
            branch.maybe = set(branch.versions)
        self._touched = None
        return self._commit(main, main.head.state)

    # ------------------------------------------------------------------ merges

    def _criss_cross(self, first: str, second: str, prefer: str | None, salt: int) -> Branch:
        """Each of the two is merged into the other as it was before."""
        self._branch(first)
        self._branch(second)
        if first == second or "cross" in self.world.branches:
            raise NotApplicable
        self._create_branch("cross", first, "head", None)
        self._merge(second, first, prefer, salt)
        check_state(self.lakes[self._branch(first).id], self._branch(first).head.state)
        branch = self._merge("cross", second, prefer, salt)
        self._is_checked = False
        if not any(number == self.world.branches["cross"].id for number, _ in self.world.tags.values()):
            self._delete_branch("cross")
        return branch

    def _merge(self, source_name: str, target_name: str, prefer: str | None, salt: int) -> Branch:
        source, target = self._branch(source_name), self._branch(target_name)
        if source is target:
            raise NotApplicable
        self._touched = None
        lake, before = self.lakes[target.id], target.head
        how = prefer if prefer != "function" else f"decide({salt})"
        self._say(f"{target_name}.merge({source_name!r}, prefer={how if prefer == 'function' else repr(how)})")
        base = Base(self.world, [source.head, target.head])
        self.counts["merges"] += 1
        self.counts["merges with several bases"] += len(base.candidates) > 1
        try:
            dry = lake.merge(source_name, dry_run=True)
            if target.head.has(source.head):
                self.counts["merges of nothing"] += 1
                return self._merge_nothing(lake, dry, source_name, target)
            listed = [reported(each) for each in dry.conflicts]
            self._check_listed(base, source, target, listed, dry.conflicts)
            asked = list[Any]()
            try:
                self._really_merge(lake, source_name, target_name, prefer, salt, asked)
            except conroi.MergeConflict as error:
                self._check_refusal(error, listed, prefer)
                return target
        except conroi.NotFoundError as error:
            if not self._may_be_lost(base):
                raise
            self.counts["merges refused, base collected"] += 1
            self._say(f"# refused: {type(error).__name__}: {error}")
            return target
        if prefer is None and listed:
            raise Difference(f"merged in spite of {listed}")
        self._take_over(base, source, target, before, prefer, salt, listed)
        return target

    def _merge_nothing(self, lake: conroi.Lake, dry: Any, source_name: str, target: Branch) -> Branch:
        if dry.conflicts:
            raise Difference(f"conflicts although all of the source is in the target: {dry.conflicts}")
        lake.merge(source_name)  # may remember that there was nothing to bring
        number = lake.version
        lake.merge(source_name)  # may do nothing at all
        if lake.version != number:
            raise Difference("merging twice is two commits, although all of the source is in the target")
        return self._commit(target, target.head.state)

    def _really_merge(
        self, lake: conroi.Lake, source: str, target: str, prefer: str | None, salt: int, asked: list[Any]
    ) -> None:
        def answer(conflict: Any) -> Side:
            asked.append(conflict)
            found = reported(conflict)
            return decide(salt, found.kind, found.key)

        how: Any = answer if prefer == "function" else prefer
        if salt % 4 == 0:
            self.lake.merge(source, into=target, prefer=how)
        else:
            lake.merge(source, prefer=how)

    def _settling(self, prefer: str | None, salt: int, listed: list[Reported]) -> Settling:
        def answer(kind: str, key: Any) -> Side | None:
            return decide(salt, kind, key) if prefer == "function" else prefer  # type: ignore[return-value]

        return Settling(answer, listed)

    def _check_listed(self, base: Base, source: Branch, target: Branch, listed: list[Reported], raw: Any) -> None:
        """The dry run lists the conflicts of the model."""
        columns = {entry.name: entry.table for entry in target.head.state.tables.values()}
        settling = self._settling(None, 0, listed)
        merged(base, source.head.state, target.head.state, settling)
        try:
            check_conflicts(raw, settling.conflicts, columns)
        except Difference as difference:
            raise Difference(f"dry run of merge: {difference}") from difference
        for each in listed:
            self.counts[f"conflict {each.kind}"] += 1

    def _check_refusal(self, error: conroi.MergeConflict, listed: list[Reported], prefer: str | None) -> None:
        if prefer is not None:
            raise Difference(f"refused in spite of prefer={prefer}: {error}") from error
        found = Counter(reported(each) for each in error.conflicts)
        if found != Counter(listed):
            raise Difference(f"the merge has conflicts {sorted(map(str, found))}, the dry run {listed}") from error
        self.counts["merges refused"] += 1

    def _may_be_lost(self, base: Base) -> bool:
        """A state of a deleted branch was collected; or of main, where only the base of several bases needs it."""
        deleted = [each for each in base.candidates if self.world.by_id(each.branch).is_deleted]
        deeper = base.needed[len(base.candidates) :]
        return any(each.number in self.world.by_id(each.branch).maybe for each in [*deleted, *deeper])

    def _take_over(
        self, base: Base, source: Branch, target: Branch, before: Version, prefer: str | None, salt: int,
        listed: list[Reported],
    ) -> None:  # fmt: skip
        lake = self.lakes[target.id]
        clock = {
            each: max(before.clock.get(each, 0), source.head.clock.get(each, 0))
            for each in before.clock.keys() | source.head.clock.keys()
        }
        settling = self._settling(prefer, salt, listed)
        state = merged(base, source.head.state, before.state, settling)
        try:
            self.counts["tables read"] += check_state(lake, state)
        except Difference as difference:
            where = f"after merge of {source.name} into {target.name}, prefer={prefer}"
            raise Difference(f"{where}: {difference}") from difference
        self._is_checked = True
        number = lake.version
        if number != before.number:
            target.commit(number, state, clock)
        else:
            target.head = replace(before, state=state, clock=clock)
            target.versions[number] = target.head
        self.counts["conflicts settled"] += len(settling.conflicts)
