"""The collectors of the publish protocol: expiry of old versions with its watermark, and garbage collection.

Expiry: announce (the watermark), delete manifests of the lake, say that it is done; then the same for each table, whose
versions a retained version of the lake pins or not. Garbage collection: files get old; a fence (an empty version, so
that writers that were paused must look again); announce the sweep; look which files are needed, by pins and by young
transaction files; delete.
"""

from __future__ import annotations

from collections.abc import Iterator

from docs.model.publish_facts import FENCE, NONE, TABLES, Entry, State, pins_at
from docs.model.search import Step


def expiry_steps(state: State, bug: str, *, outlives: bool, finalizes: bool) -> Iterator[Step]:
    head, upto = len(state.history), state.mark[0]
    if state.expiry == 1:
        for version in range(1, head):
            if bug == "deletes_first":
                yield Step(("expiry deletes up to", version), _without_names(state, version, 3, outlives=outlives))
            else:
                announced = state._replace(mark=(version, False), expiry=2)
                yield Step(("expiry announces up to", version), announced)
    elif state.expiry == 2:
        yield Step(("expiry deletes up to", upto), _without_names(state, upto, 3, outlives=outlives))
    elif state.expiry == 3:
        gone = max((n for n, name in enumerate(state.names, 1) if name != "there"), default=upto)
        done = state._replace(mark=(max(gone, upto), True), expiry=4 if finalizes else 0)
        yield Step(("expiry is done with the lake",), done)
    elif state.expiry == 4:
        retained = [e.pins for e, name in zip(state.history, state.names, strict=True) if name == "there"]
        oldest = max if bug == "expires_pinned" else min
        marks = tuple(oldest(pins[table][1] for pins in retained) for table in range(len(TABLES)))
        yield Step(("expiry announces tables below", marks), state._replace(table_marks=marks, expiry=5))
    elif state.expiry == 5:
        finals = tuple(
            tuple(NONE if final and number < mark else final for number, final in enumerate(each, 1))
            for each, mark in zip(state.finals, state.table_marks, strict=True)
        )
        yield Step(("expiry deletes versions of tables",), state._replace(finals=finals, expiry=0))


def _without_names(state: State, upto: int, expiry: int, *, outlives: bool) -> State:
    """Requests that were sent before are not executed after the grace period, unless the store `outlives` it."""
    names = ("gone",) * upto + state.names[upto:]
    net = state.net if outlives else frozenset(put for put in state.net if put[1] > upto)
    return state._replace(names=names, net=net, expiry=expiry)


SWEEP_ANNOUNCED = (4, 5, 6)
"""Values of `State.sweep` at which a writer that looks sees the sweep."""
LOOKED_FIRST = 9
"""Planted: the collector has looked, and not announced the sweep."""


def sweep_steps(state: State, bug: str) -> Iterator[Step]:
    head = len(state.history)
    if state.sweep == 1:
        old = frozenset(manifest[0] for _, manifest in state.staged)
        yield Step(("files get old, of", sorted(old)), state._replace(old=old, sweep=2))
    elif state.sweep == 2 and bug == "no_fence":
        yield Step(("gc goes on without a fence",), state._replace(sweep=3))
    elif state.sweep == 2:
        entry = Entry(FENCE, pins_at(state, head))
        fenced = state._replace(history=(*state.history, entry), names=(*state.names, "there"), sweep=3)
        yield Step(("gc puts a fence as", head + 1), fenced)
    elif state.sweep == 3 and bug == "looks_before_note":
        yield Step(("gc looks first",), state._replace(spared=_needed(state), sweep=LOOKED_FIRST))
    elif state.sweep == 3:
        yield Step(("gc announces the sweep",), state._replace(sweep=4))
    elif state.sweep == 4:
        spared = _needed(state)
        yield Step(("gc looks, and spares the files of", sorted(spared)), state._replace(spared=spared, sweep=5))
    elif state.sweep == LOOKED_FIRST:
        yield Step(("gc announces the sweep",), state._replace(sweep=5))
    elif state.sweep == 5:
        swept = state.old - state.spared
        staged = frozenset(each for each in state.staged if each[1][0] not in swept)
        yield Step(("gc deletes the files of", sorted(swept)), state._replace(swept=swept, staged=staged, sweep=6))


def _needed(state: State) -> frozenset[int]:
    pinned = 0
    for entry, name in zip(state.history, state.names, strict=True):
        for _, _, contents in entry.pins if name == "there" else ():
            pinned |= contents
    return frozenset(who for who in range(len(state.writers)) if pinned >> who & 1) | state.young
