"""Steps of the model of group commit: puts that land, other leaders, a collector, and the authors."""

from __future__ import annotations

from collections.abc import Iterator

from docs.model.group_facts import (
    BARRIER,
    COLLECTOR,
    FOREIGN,
    NOBODY,
    OTHER,
    STRANGER,
    TABLES,
    TX,
    WITHDRAWAL,
    Author,
    Member,
    State,
    Version,
    wrong_version,
)
from docs.model.group_rules import Rules, put_final
from docs.model.search import Step


def all_steps(model: Rules, state: State) -> Iterator[Step]:
    for put in state.net:
        yield _lands(model, state, put)
    yield from _others(model, state)
    if model.collects:
        yield from _collector(model, state)
    for who, author in enumerate(state.authors):
        if not author.answer:
            yield from _author(model, state, who, author)


def _lands(model: Rules, state: State, put: tuple[int, int, Version]) -> Step:
    """The condition of a put: its version is the next one. Puts that can never land any more are left out."""
    who, number, version = put
    wrong = wrong_version(model.txs, state, version)
    if number <= len(state.log):
        wrong = f"put if absent: version {number} is overwritten"
    log = (*state.log, version)
    is_checked = model.bug != "put_overwrites"
    net = frozenset(each for each in state.net if each != put and not (is_checked and each[1] <= len(log)))
    return Step((who, "'s put of", number, version, "lands"), state._replace(log=log, net=net), wrong)


def _others(model: Rules, state: State) -> Iterator[Step]:
    """Other leaders, who may take requests along and may then stand still; and commits that say nothing (R2 d)."""
    head = len(state.log)
    if state.noise:
        for members in model.batches(state, head, Member(OTHER), sorted(state.requests), head):
            step = _sends(model, state, STRANGER, head, members)
            yield step._replace(state=step.state._replace(noise=state.noise - 1))  # pyright: ignore[reportAttributeAccessIssue]
    if state.foreign:
        version = model.built(state.log, head, STRANGER, (Member(FOREIGN),))
        after = model.finalized(state, head, version)
        net = frozenset(each for each in state.net if each[1] > head + 1)
        yield Step(("a foreign commit",), after._replace(log=(*state.log, version), net=net, foreign=state.foreign - 1))


def _sends(model: Rules, state: State, who: int, v: int, members: tuple[Member, ...]) -> Step:
    version = model.built(state.log, v, who, members)
    after = model.finalized(state, v, version)
    return Step((who, "sends", v + 1, version), after._replace(net=after.net | {(who, v + 1, version)}))


def _collector(model: Rules, state: State) -> Iterator[Step]:
    """R7: a barrier, then note, look, delete."""
    head = len(state.log)
    has_barrier = any(m.kind == BARRIER for version in state.log for m in version.members)
    if state.gc == 0:
        authors = tuple(a._replace(is_old=True) if a.known >= 0 else a for a in state.authors)
        yield Step(("all staged files get old",), state._replace(gc=1, authors=authors))
    elif state.gc == 1 and model.bug == "no_barrier":
        yield Step(("gc goes on without a barrier",), state._replace(gc=3))
    elif state.gc == 1 and has_barrier:
        yield Step(("gc sees its barrier",), state._replace(gc=3))
    elif state.gc == 1 and not any(put[0] == COLLECTOR for put in state.net):
        yield _sends(model, state, COLLECTOR, head, (Member(BARRIER),))
    elif state.gc == 3:
        there = {m.who for version in state.log for m in version.members if m.kind == TX}
        gone = frozenset(n for n, author in enumerate(state.authors) if author.is_old and n not in there)
        yield Step(("gc deletes the files of", sorted(gone)), state._replace(gc=4, gone=gone))


# ---------------------------------------------------------------------------- an author, who also leads


def _with(state: State, who: int, author: Author) -> State:
    return state._replace(authors=(*state.authors[:who], author, *state.authors[who + 1 :]))


def _author(model: Rules, state: State, who: int, author: Author) -> Iterator[Step]:
    if author.known < 0:
        yield from _begins(model, state, who)
        return
    if state.crashes:
        crashed = _with(state, who, author._replace(answer="crashed"))
        yield Step((who, "crashes"), crashed._replace(crashes=state.crashes - 1))
    if author.known < len(state.log):
        yield from _reads(model, state, who, author)
    if who in model.gives_up and not author.is_giving_up:
        yield _gives_up(model, state, who, author)
    if not author.is_old or model.bug == "old_goes_on" or author.is_giving_up:
        yield from _asks(model, state, who, author)
        yield from _leads(model, state, who, author)


def _begins(model: Rules, state: State, who: int) -> Iterator[Step]:
    head, tx = len(state.log), model.txs[who]
    members = [m for version in state.log for m in version.members if m.kind == TX]
    if tx.needs_made and sum(bool(set(model.txs[m.who].writes) & set(tx.writes)) for m in members) % 2 == 0:
        return
    if tx.key is not None and any(model.txs[m.who].key == tx.key for m in members):
        yield Step((who, "finds its key done"), _with(state, who, Author(head, answer="no")))
    else:
        yield Step((who, "begins at", head), _with(state, who, Author(head, mark=head * (model.bug == "own_view"))))


def _reads(model: Rules, state: State, who: int, author: Author) -> Iterator[Step]:
    """The next version: is the own id in it, or does it kill the own attempts (R4, R5)?"""
    members, now = state.log[author.known].members, author.known + 1
    tx, horizon, kills, answer = model.txs[who], author.horizon, author.kills, ""
    if any(m.kind == TX and m.who == who for m in members):
        yield from _is_committed(model, state, who, author, now)
        return
    is_dead = any(m.kind == FOREIGN or (m.kind == TX and model.txs[m.who].kills(tx)) for m in members)
    if any(m.kind == WITHDRAWAL and m.who == who for m in members):
        answer = "no"
    elif is_dead and tx.rebases and not author.is_old and not author.is_giving_up:
        horizon, kills = now, min(kills + 1, model.hold_after)
    elif is_dead:
        answer = "no"
    elif any(m.kind == BARRIER for m in members):
        horizon = now
    if not answer and author.is_giving_up and now >= horizon:
        answer = "no"
    if model.bug == "one_more_version" and author.is_giving_up and now > author.mark:
        answer = "no"
    read = author._replace(known=now, horizon=horizon, kills=kills, answer=answer)
    yield Step((who, "reads", now, f"and says {answer}" if answer else ""), _with(state, who, read))


def _is_committed(model: Rules, state: State, who: int, author: Author, now: int) -> Iterator[Step]:
    """R8: version, row ids and the manifest to finalize are those of the log, never those of the own staging."""
    version, tx = state.log[author.known], model.txs[who]
    member = next(m for m in version.members if m.kind == TX and m.who == who)
    table, row = TABLES.index(tx.writes[0]), NOBODY
    if model.finalizes:
        own = model.staged(state.log, member, table)
        contents = own[2] if model.bug == "reports_own_rows" else version.pins[table][2]
        row = contents.index(who) if who in contents else NOBODY
    ended = _with(state, who, author._replace(known=now, answer="ok", row=row))
    yield Step((who, "reads", now, "and says ok"), ended)
    if model.finalizes:
        finals = list(state.finals)
        for name in tx.writes:
            n = TABLES.index(name)
            own = model.staged(state.log, member, n)
            finals[n] = put_final(finals[n], own if model.bug == "finalizes_own" else version.pins[n])
        yield Step((who, "reads", now, "finalizes, and says ok"), ended._replace(finals=tuple(finals)))


def _gives_up(model: Rules, state: State, who: int, author: Author) -> Step:
    """R6, R4: "no" only if nothing of its own is under way."""
    mine = [w + model.window for each, w in state.requests if each == who]
    horizon = max(mine, default=0) if model.bug == "forgets_own_put" else author.horizon
    is_over = author.known >= horizon and model.bug != "one_more_version"
    answer = "no" if is_over or model.bug == "early_no" else ""
    mark = len(state.log) if model.bug == "one_more_version" else author.mark
    giving = author._replace(is_giving_up=True, answer=answer, mark=mark)
    return Step((who, "gives up", f"and says {answer}" if answer else ""), _with(state, who, giving))


def _asks(model: Rules, state: State, who: int, author: Author) -> Iterator[Step]:
    """R1: leave a request; an exact author that was killed often enough leaves a hold."""
    mine = [each for each in state.requests if each[0] == who]
    if author.is_giving_up or len(mine) >= model.attempts or (who, author.known) in state.requests:
        return
    asked = _with(state, who, author._replace(horizon=max(author.horizon, author.known + model.window)))
    asked = asked._replace(requests=state.requests | {(who, author.known)})
    yield Step((who, "leaves a request at", author.known), asked)
    if model.hold_after and author.kills >= model.hold_after and not model.txs[who].is_append:
        held = asked._replace(holds=state.holds | {(who, author.known)})
        yield Step((who, "leaves a request and a hold at", author.known), held)


def _leads(model: Rules, state: State, who: int, author: Author) -> Iterator[Step]:
    """Its own transaction, or its withdrawal, and what fits of the others."""
    v = author.known
    if v != len(state.log) or sum(put[0] == who for put in state.net) >= model.in_flight:
        return
    if model.bug == "hold_binds_leader" and model.is_held(state, v, who) and not author.is_giving_up:
        return
    own = Member(WITHDRAWAL, who) if author.is_giving_up else Member(TX, who, v)
    others = [each for each in sorted(state.requests) if each[0] != who]
    led = _with(state, who, author._replace(horizon=max(author.horizon, v + 1)))
    for members in model.batches(state, v, own, others, author.mark if model.bug == "own_view" else 0):
        yield _sends(model, led, who, v, members)
