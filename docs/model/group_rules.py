"""Rules of group commit: which requests a leader includes, in which order, and what the version then pins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations

from docs.model.group_facts import (
    BARRIER,
    FOLDED,
    FOREIGN,
    STRANGER,
    TABLES,
    TX,
    WITHDRAWAL,
    Manifest,
    Member,
    State,
    Tx,
    Version,
    pins_at,
)


@dataclass(frozen=True)
class Rules:
    """The rules, for some transactions and bounds; `bug` plants one."""

    txs: tuple[Tx, ...]
    window: int = 2
    """K: a request lands at most so many versions after its w."""
    attempts: int = 2
    crashes: int = 1
    noise: int = 0
    foreign: int = 0
    collects: bool = False
    gives_up: tuple[int, ...] = ()
    in_flight: int = 1
    finalizes: bool = False
    """Whether final names are part of the state."""
    hold_after: int = 0
    """An exact author leaves a hold after so many kills; 0: never. Then listings are complete."""
    hold_window: int = 2
    bug: str = ""

    # ------------------------------------------------------------------------ R2, R3: what a leader includes

    def fits(self, log: Sequence[Version], v: int, who: int, w: int, before: Sequence[Member], start: int = 0) -> bool:
        """R2: whether a leader that builds on v may include the request (who, w) after the members `before`."""
        bug = self.bug
        if w > v or (v + 1 > w + self.window and bug != "no_window"):
            return False
        if bug == "compares_state":
            return self._looks_same(log, v, w, who, before)
        first = max(w, start) if bug == "own_view" else w
        seen = [member for version in log[first:v] for member in version.members]
        if bug == "no_conflict_window":
            seen = [member for member in seen if member.who == who or member.kind != TX]
        batch = [member for member in before if member.who == who or not self._is_unchecked(member)]
        return not any(self._forbids(member, who) for member in (*seen, *batch))

    def _is_unchecked(self, member: Member) -> bool:
        """Planted: members of one batch that are not compared."""
        if self.bug == "folds_exact":
            return member.kind == TX and self.txs[member.who].is_append
        return self.bug == "batch_unchecked"

    def _forbids(self, member: Member, who: int) -> bool:
        kind, bug = member.kind, self.bug
        if kind == TX and member.who == who:
            return bug != "no_id_check"
        if kind == TX and bug == "ignores_key" and self.txs[member.who].key is not None:
            return Tx.kills(_without_key(self.txs[member.who]), self.txs[who])
        if kind == TX:
            return self.txs[member.who].kills(self.txs[who])
        if kind == WITHDRAWAL:
            return member.who == who and bug != "ignores_withdrawal"
        return (kind == FOREIGN and bug != "ignores_foreign") or (kind == BARRIER and bug != "ignores_barrier")

    def _looks_same(self, log: Sequence[Version], v: int, w: int, who: int, before: Sequence[Member]) -> bool:
        """Planted: compares how a name looks (made or dropped), not whether it was changed."""
        if any(m.who == who for version in log[w:v] for m in version.members) or any(m.who == who for m in before):
            return False
        names = self.txs[who].reads + self.txs[who].writes
        return all(self._is_made(log[:v], name, before) == self._is_made(log[:w], name, ()) for name in names)

    def _is_made(self, log: Sequence[Version], name: str, extra: Iterable[Member]) -> bool:
        members = (*(m for version in log for m in version.members), *extra)
        return sum(m.kind == TX and name in self.txs[m.who].writes for m in members) % 2 == 1

    def batches(self, state: State, v: int, own: Member, candidates: Sequence[tuple[int, int]], start: int) -> list[
        tuple[Member, ...]
    ]:  # fmt: skip
        """R3: every batch that a leader could build on v: its own member first, then any that fit, in any order."""
        log = state.log
        fitting = [each for each in candidates if self.fits(log, v, *each, [own], start)]
        if self.hold_after and self.bug != "ignores_hold":
            fitting = [each for each in fitting if not self.is_held(state, v, each[0])]
        found: dict[tuple[Member, ...], None] = {}
        for size in range(len(fitting) + 1):
            for chosen in combinations(fitting, size):
                if len({who for who, _ in chosen}) < size and self.bug != "no_id_check":
                    continue
                for order in permutations(chosen):
                    batch = [own]
                    for who, w in order:
                        if self.fits(log, v, who, w, batch, start):
                            batch.append(Member(TX, who, w))
                    found[tuple(batch)] = None
        if not self.hold_after:
            return list(found)
        most = max(map(len, found))
        return [batch for batch in found if len(batch) == most]

    def is_held(self, state: State, v: int, who: int) -> bool:
        """Whether a hold leaves this append out of the next version."""
        tx = self.txs[who]
        published = {m.who for version in state.log for m in version.members if m.kind == TX}
        return tx.is_append and any(
            holder not in published and v + 1 <= w + self.hold_window and set(self.txs[holder].writes) & set(tx.writes)
            for holder, w in state.holds
        )

    # ------------------------------------------------------------------------ what a version pins

    def built(self, log: tuple[Version, ...], v: int, leader: int, members: tuple[Member, ...]) -> Version:
        """Apply the members in order: exact ones bring their manifest, appends to one table are folded into one."""
        before, pins = pins_at(log, v), list(pins_at(log, v))
        for member in members:
            if member.kind == FOREIGN:
                pins[0] = (STRANGER, before[0][1] + 1, (*pins[0][2], STRANGER))
            for name in self.txs[member.who].writes if member.kind == TX else "":
                table = TABLES.index(name)
                staged = self.staged(log, member, table)
                base = staged[2][:-1] if self.bug == "folds_on_base" else pins[table][2]
                is_alone = pins[table] == before[table] and (member.who, member.w) == (leader, v)
                if not self.txs[member.who].is_append or is_alone:
                    pins[table] = staged
                else:
                    pins[table] = (FOLDED + leader, before[table][1] + 1, (*base, member.who))
        return Version(members, tuple(pins))

    def staged(self, log: tuple[Version, ...], member: Member, table: int) -> Manifest:
        """The manifest that the author of a request has staged itself, on the version w."""
        _, version, contents = pins_at(log, member.w)[table]
        return (member.who, version + 1, (*contents, member.who))

    def finalized(self, state: State, v: int, new: Version) -> State:
        """A leader's wave: of each table that the next version changes, the version before is made final."""
        if not self.finalizes or self.bug == "leader_skips_final":
            return state
        finals = list(state.finals)
        for table, (old, pin) in enumerate(zip(pins_at(state.log, v), new.pins, strict=True)):
            if pin != old and old[1]:
                finals[table] = put_final(finals[table], old)
        return state._replace(finals=tuple(finals))


def put_final(finals: tuple[Manifest | None, ...], manifest: Manifest) -> tuple[Manifest | None, ...]:
    """Put if absent: what is there stays."""
    number = manifest[1]
    longer = finals + (None,) * (number - len(finals))
    return longer if longer[number - 1] is not None else (*longer[: number - 1], manifest, *longer[number:])


@cache
def _without_key(tx: Tx) -> Tx:
    return Tx(tx.is_append, tx.writes, tx.reads, None, tx.rebases)
