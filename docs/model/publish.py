"""Model of today's publish protocol: many tables, one conditional put, finalize, expiry, garbage collection.

The lake's log is a row of names 1, 2, 3 …; a put creates a name if it is free. A request that was sent is executed at
any later moment or never, and its answer may be lost. Everybody may stand still for ever between two steps, and some
crash. A writer looks at the newest version, checks its expectations, rebases, stages, confirms that nothing that it
staged was swept, puts; after a lost answer it looks; it confirms that its version was not collected; it finalizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from docs.model.publish_collectors import SWEEP_ANNOUNCED, expiry_steps, sweep_steps
from docs.model.publish_facts import (
    NONE,
    TABLES,
    Entry,
    Manifest,
    State,
    Tx,
    Writer,
    is_free,
    pins_at,
    put_at,
    wrong_state,
    wrong_version,
)
from docs.model.search import Step

NOTICE = 10
"""Added to a table in `Writer.todo`: it is final, and the watermark is still to be looked at."""


@dataclass(frozen=True)
class Publish:
    """The model, for some transactions and bounds; `bug` plants one."""

    txs: tuple[Tx, ...]
    tries: int = 2
    resends: int = 1
    crashes: int = 1
    losses: int = 1
    expires: bool = False
    sweeps: bool = False
    finalizes: bool = True
    """Whether writers finalize after their answer, and tables expire; else the next writer of a table finalizes."""
    outlives: bool = False
    """Whether a request may be executed after the name that it creates was collected: the store is slower than the
    grace period."""
    bug: str = ""

    def first(self) -> State:
        none = frozenset[int]()
        return State(
            history=(),
            names=(),
            mark=(0, True),
            finals=((),) * len(TABLES),
            table_marks=(0,) * len(TABLES),
            staged=frozenset(),
            writers=(Writer(),) * len(self.txs),
            net=frozenset(),
            crashes=self.crashes,
            losses=self.losses,
            expiry=int(self.expires),
            sweep=int(self.sweeps),
            old=none,
            young=none,
            spared=none,
            swept=none,
        )

    def is_final(self, state: State) -> bool:
        return all(writer.answer and not writer.todo for writer in state.writers)

    def wrong(self, state: State) -> str:
        is_calm = (state.crashes, state.losses) == (self.crashes, self.losses)
        return wrong_state(state, is_final=self.is_final(state), is_calm=is_calm)

    def steps(self, state: State) -> Iterator[Step]:
        for put in state.net:
            yield from self._lands(state, put)
        for who, writer in enumerate(state.writers):
            if not writer.answer:
                yield from self._writer_steps(state, who, writer)
            for task in writer.todo:
                yield self._finalizes(state, who, writer, task)
        if self.bug == "follows_reused_names" and any(name.startswith("zombie") for name in state.names):
            wrong = "one history: a version under a collected name is read as a part of it"
            yield Step(("a client that was idle since the beginning follows the versions",), state, wrong)
        yield from expiry_steps(state, self.bug, outlives=self.outlives, finalizes=self.finalizes)
        yield from sweep_steps(state, self.bug)

    # ------------------------------------------------------------------------ the put

    def _lands(self, state: State, put: tuple[int, int, Entry, int]) -> Iterator[Step]:
        """The storage executes a request: the writer hears the outcome, or nobody does."""
        who, version, entry, number = put
        head, after, wrong, outcome = len(state.history), state._replace(net=state.net - {put}), "", "taken"
        entry = self._as_executed(state, version, entry)
        if version == head + 1 or entry != put[2]:
            wrong, outcome = wrong_version(self.txs, state, entry), "landed"
            after = after._replace(history=(*state.history, entry), names=(*state.names, "there"))
        elif self.bug == "put_overwrites":
            wrong = f"put if absent: lake version {version} was overwritten"
        elif state.names[version - 1] == "gone":
            names = (*state.names[: version - 1], f"zombie {who}", *state.names[version:])
            after, outcome = after._replace(names=names), "landed"
        writer = state.writers[who]
        is_awaited = writer.at == "sent" and (version, number) == (writer.seen + 1, writer.sends)
        if not is_awaited:
            yield Step((who, "'s late put of", version, outcome), after, wrong)
        elif state.losses:
            lost = _with(after, who, writer._replace(at="lost", is_unanswered=True))
            yield Step((who, "'s put of", version, outcome, "unheard"), lost._replace(losses=state.losses - 1), wrong)
        if is_awaited:
            heard = _with(after, who, writer._replace(at=outcome))
            yield Step((who, "'s put of", version, outcome), self._rested(heard, who), wrong)

    def _as_executed(self, state: State, version: int, entry: Entry) -> Entry:
        """Planted: the put compares only the rows that it writes, and not the number of the version."""
        if self.bug != "compares_rows" or version > len(state.history) or state.names[version - 1] != "there":
            return entry
        then, now = pins_at(state, version - 1), pins_at(state, len(state.history))
        mine = self.txs[entry.author].writes
        if any(now[table] != then[table] for table in mine):
            return entry
        return Entry(entry.author, tuple(entry.pins[n] if n in mine else pin for n, pin in enumerate(now)))

    def _rested(self, state: State, who: int) -> State:
        """Without collectors a pause between looking, staging and sending is the same as a put that lands later."""
        if self.expires or self.sweeps:
            return state
        writer = state.writers[who]
        while writer.at in ("looked", "staged", "landed"):
            (step,) = self._writer_moves(state, who, writer)
            state = step.state  # pyright: ignore[reportAssignmentType]
            writer = state.writers[who]
        return state

    # ------------------------------------------------------------------------ a writer

    def _writer_steps(self, state: State, who: int, writer: Writer) -> Iterator[Step]:
        if state.crashes and writer.at != "idle":
            dead = Writer("crashed", writer.base, answer="crashed")
            yield Step((who, "crashes"), _with(state, who, dead)._replace(crashes=state.crashes - 1))
        yield from self._writer_moves(state, who, writer)

    def _writer_moves(self, state: State, who: int, writer: Writer) -> Iterator[Step]:
        if writer.at == "idle":
            head = len(state.history)
            begun = _with(state, who, Writer("looked", head, head))
            yield Step((who, "begins at", head), self._rested(begun, who))
        elif writer.at == "looked":
            yield self._stages(state, who, writer)
        elif writer.at == "staged":
            yield self._sends(state, who, writer, writer.seen + 1, 0)
        elif writer.at == "sent":
            # A request that the storage dropped is no further fault.
            is_dropped = not any((put[0], put[3]) == (who, writer.sends) for put in state.net)
            if is_dropped or state.losses:
                lost = _with(state, who, writer._replace(at="lost", is_unanswered=True))
                yield Step((who, "gets no answer"), lost._replace(losses=state.losses - (not is_dropped)))
        elif writer.at == "lost":
            yield from self._after_lost_answer(state, who, writer)
        elif writer.at == "landed":
            yield self._confirms(state, who, writer)
        elif writer.at == "taken":
            yield self._after_taken(state, who, writer)

    def _sends(self, state: State, who: int, writer: Writer, version: int, number: int) -> Step:
        assert writer.entry is not None
        sent = _with(state, who, writer._replace(at="sent", sends=number))
        net = state.net | {(who, version, writer.entry, number)}
        return Step((who, "puts", version, f"({number + 1})"), sent._replace(net=net))

    def _stages(self, state: State, who: int, writer: Writer) -> Step:
        """Check, rebase, build, stage, finalize the predecessors, confirm: on the state that was seen."""
        tx, pins, at_base = self.txs[who], pins_at(state, writer.seen), pins_at(state, writer.base)
        if (writer.tries == 0 or self.bug != "checks_once") and any(pins[n] != at_base[n] for n in tx.unmoved):
            return _answers(state, who, writer, "refused", "finds that a table has moved")
        is_announced = state.sweep in SWEEP_ANNOUNCED
        if who in state.old and is_announced and self.bug != "ignores_sweep":
            return _answers(state, who, writer, "refused", "finds that its files may be swept")
        staged, finals, mine = set(state.staged), list(state.finals), dict[int, Manifest]()
        for table in tx.writes:
            before = pins[table]
            if before[1] and self.bug != "skips_predecessor":
                if (table, before) in staged and is_free(finals[table], before[1]):
                    finals[table] = put_at(finals[table], before, before[1])
                staged.discard((table, before))
            mine[table] = (who, before[1] + 1, before[2] | 1 << who)
            if self.bug == "reuses_manifest" and writer.entry is not None:
                mine[table] = (who, before[1] + 1, writer.entry.pins[table][2])
            staged.add((table, mine[table]))
            if self.bug == "final_before_put" and is_free(finals[table], before[1] + 1):
                finals[table] = put_at(finals[table], mine[table], before[1] + 1)
        entry = Entry(who, tuple(mine.get(n, pin) for n, pin in enumerate(pins)))
        ready = _with(state, who, writer._replace(at="staged", entry=entry, tries=writer.tries + 1, sends=0))
        young = state.young | {who} if who in state.old else state.young
        ready = ready._replace(staged=frozenset(staged), finals=tuple(finals), young=young)
        return Step((who, "stages on", writer.seen), ready)

    # ------------------------------------------------------------------------ after the put

    def _after_lost_answer(self, state: State, who: int, writer: Writer) -> Iterator[Step]:
        version, head = writer.seen + 1, len(state.history)
        if self.bug == "silence_is_failure":
            yield _answers(state, who, writer, "refused", "takes silence for a failure")
        elif self.bug == "cleans_up_unknown":
            staged = frozenset(each for each in state.staged if each[1][0] != who)
            yield _answers(state._replace(staged=staged), who, writer, "unknown", "deletes what it staged")
        elif self.bug == "retries_blindly":
            again = writer._replace(at="looked", seen=head)
            yield Step((who, "tries again on", head, "without a look"), self._rested(_with(state, who, again), who))
        elif _is_mine(state, who, version):
            landed = _with(state, who, writer._replace(at="landed"))
            yield Step((who, "finds its version"), self._rested(landed, who))
        elif version > head or state.names[version - 1] == "gone":
            # A free name may still be filled by the request under way.
            if writer.sends < self.resends:
                yield self._sends(state, who, writer, version, writer.sends + 1)
            yield _answers(state, who, writer, "unknown", "gives up")
        elif version <= state.mark[0] and self.bug != "trusts_reused_name":
            yield _answers(state, who, writer, "unknown", "finds another version below the watermark")
        else:
            yield Step((who, "finds another version"), _with(state, who, writer._replace(at="taken")))

    def _confirms(self, state: State, who: int, writer: Writer) -> Step:
        """The version is there: but was its name collected before, so that it is below the newest?"""
        version, (mark, is_done) = writer.seen + 1, state.mark
        if version > mark or self.bug == "no_watermark":
            todo = tuple(self.txs[who].writes) if self.finalizes else ()
            ended = Writer("done", writer.base, entry=writer.entry if todo else None, todo=todo, answer="committed")
            return Step((who, "finds", version, "above the watermark: committed"), _with(state, who, ended))
        is_there = state.names[version - 1] == f"zombie {who}"
        names = (*state.names[: version - 1], "gone", *state.names[version:]) if is_there else state.names
        answer = "refused" if is_there and is_done and not writer.is_unanswered else "unknown"
        return _answers(state._replace(names=names), who, writer, answer, "finds", version, "below the watermark")

    def _after_taken(self, state: State, who: int, writer: Writer) -> Step:
        """The name has a version; it may be our own, if an answer was lost. Else catch up."""
        version, head = writer.seen + 1, len(state.history)
        if _is_mine(state, who, version) and self.bug != "taken_is_lost":
            landed = _with(state, who, writer._replace(at="landed"))
            return Step((who, "recognises its own version"), self._rested(landed, who))
        is_doubtful = version <= state.mark[0] and self.bug != "trusts_reused_name"
        if writer.is_unanswered and (is_doubtful or state.names[version - 1] == "gone"):
            return _answers(state, who, writer, "unknown", "finds the name collected")
        if writer.tries >= self.tries:
            return _answers(state, who, writer, "refused", "has no try left")
        again = writer._replace(at="looked", seen=head, is_unanswered=False)
        return Step((who, "catches up to", head), self._rested(_with(state, who, again), who))

    def _finalizes(self, state: State, who: int, writer: Writer, task: int) -> Step:
        """Put the manifest under its final name if that is free; then see whether it had been collected before."""
        assert writer.entry is not None
        todo = tuple(each for each in writer.todo if each != task)
        table, finals, staged = task % NOTICE, list(state.finals), state.staged
        manifest = writer.entry.pins[table]
        if task >= NOTICE:
            if manifest[1] < state.table_marks[table] and finals[table][manifest[1] - 1] == manifest:
                finals[table] = put_at(finals[table], NONE, manifest[1])
        elif is_free(finals[table], manifest[1]):
            finals[table] = put_at(finals[table], manifest, manifest[1])
            staged -= {(table, manifest)}
            todo += (table + NOTICE,) if self.expires and self.bug != "no_second_look" else ()
        done = writer._replace(todo=tuple(sorted(todo)), entry=writer.entry if todo else None)
        what = "looks at the watermark of" if task >= NOTICE else "finalizes"
        return Step((who, what, TABLES[table]), _with(state, who, done)._replace(finals=tuple(finals), staged=staged))


def _with(state: State, who: int, writer: Writer) -> State:
    return state._replace(writers=(*state.writers[:who], writer, *state.writers[who + 1 :]))


def _answers(state: State, who: int, writer: Writer, answer: str, *what: object) -> Step:
    ended = Writer("done", writer.base, answer=answer)
    return Step((who, *what, "and says", answer), _with(state, who, ended))


def _is_mine(state: State, who: int, version: int) -> bool:
    if version > len(state.history):
        return False
    name = state.names[version - 1]
    return name == f"zombie {who}" or (name == "there" and state.history[version - 1].author == who)
