"""Conflicts of inserts under a primary key, decided by the key filters in the transactions.

These rules only know the filters, as pylance does. conroi's own commits compare the keys themselves instead
(`Staged.keys_checked_exactly`), so for them the rules have nothing to add.
"""

from __future__ import annotations

from conroi.conflicts.rule import Finding, Rule, found
from conroi.conflicts.staged import Staged
from conroi.format import lance_pb2 as pb
from conroi.operations import Update
from conroi.operations.base import Operation


def _my_filter(mine: Staged) -> pb.KeyExistenceFilter | None:
    if mine.keys_checked_exactly or not isinstance(mine.operation, Update):
        return None
    return mine.operation.inserted_rows


def _append(mine: Staged, _theirs: Operation) -> Finding | None:
    return found("keys/append") if _my_filter(mine) is not None else None


def _update(mine: Staged, theirs: Operation) -> Finding | None:
    my_keys = _my_filter(mine)
    if my_keys is None:
        # The other side's filter alone is not asked: without one of my own I insert no declared key.
        return None
    their_keys = theirs.inserted_rows if isinstance(theirs, Update) else None
    if their_keys is None:
        return found("keys/unlisted")
    if my_keys.field_ids != their_keys.field_ids:
        return found("keys/other-columns")
    return found("keys/maybe-same") if _may_share_a_key(my_keys, their_keys) else None


def _may_share_a_key(mine: pb.KeyExistenceFilter, theirs: pb.KeyExistenceFilter) -> bool:
    # Imported here: most commits never see a filter.
    from conroi.format.keyfilter import may_intersect

    return may_intersect(mine, theirs)


KEYS_APPENDED = Rule("Retried if you insert rows under a declared key.", ("keys/append",), _append)
KEYS_INSERTED = Rule(
    "Retried if you insert rows under a declared key, unless the key filters of both show that no key is the same.",
    ("keys/unlisted", "keys/other-columns", "keys/maybe-same"),
    _update,
)
