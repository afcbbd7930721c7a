"""Model of group commit by request objects: rules R1 to R8, with folded appends, holds and finalize.

The log can grow only by a put of the next version. A put that was sent lands at any later moment or never: that is a
lost answer, a late request and a crash of the sender in one. Everybody may stand still for ever between two steps. A
listing of requests is any part of all requests ever left, also of those that are published, withdrawn or deleted:
nothing may depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from docs.model.group_facts import TABLES, Author, State, wrong_state
from docs.model.group_rules import Rules
from docs.model.group_steps import all_steps
from docs.model.search import Step


@dataclass(frozen=True)
class GroupCommit(Rules):
    """The model."""

    def first(self) -> State:
        return State(
            log=(),
            net=frozenset(),
            requests=frozenset(),
            holds=frozenset(),
            authors=(Author(),) * len(self.txs),
            finals=((),) * len(TABLES),
            crashes=self.crashes,
            noise=self.noise,
            foreign=self.foreign,
            gc=0,
            gone=frozenset(),
        )

    def wrong(self, state: State) -> str:
        return wrong_state(state, has_finals=self.finalizes)

    def is_final(self, state: State) -> bool:
        return all(author.answer or author.known < 0 for author in state.authors)

    def steps(self, state: State) -> Iterator[Step]:
        for step in all_steps(self, state):
            yield Step(step.what, self._normal(step.state), step.wrong)  # pyright: ignore[reportArgumentType]

    def _normal(self, state: State) -> State:
        """The same state without what can make no difference any more, so that equal futures are one state."""
        head = len(state.log)
        authors = tuple(
            Author(0, answer=a.answer, row=a.row, is_old=a.is_old and state.gc < 4)
            if a.answer
            else a._replace(horizon=a.horizon if a.horizon > a.known else 0)
            for a in state.authors
        )
        requests = state.requests
        if not self.bug:  # R2 is monotone: what does not fit on the newest version never fits again
            requests = frozenset(each for each in requests if self.fits(state.log, head, *each, ()))
        return state._replace(authors=authors, requests=requests)
