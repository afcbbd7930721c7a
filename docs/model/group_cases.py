"""Configurations of the model of group commit, and planted bugs with the configuration that finds each."""

from __future__ import annotations

from collections.abc import Mapping

from docs.model.group_commit import GroupCommit
from docs.model.group_facts import Tx


def _append(tables: str, key: int | None = None, *, rebases: bool = False) -> Tx:
    return Tx(True, tables, key=key, rebases=rebases)


def _exact(tables: str, reads: str = "", *, rebases: bool = False, needs_made: bool = False) -> Tx:
    return Tx(False, tables, reads, rebases=rebases, needs_made=needs_made)


_A, _B = _append("a"), _append("b")

SMALL: Mapping[str, GroupCommit] = {
    "two appends": GroupCommit((_A, _A), attempts=1, noise=1, gives_up=(0,)),
    "skew": GroupCommit((_exact("a", "b"), _exact("b", "a")), gives_up=(0,)),
    "fold": GroupCommit((_A, _A, _A), attempts=1, crashes=0, finalizes=True),
    "hold": GroupCommit((_exact("a", rebases=True), _A, _A), attempts=2, hold_after=1),
}

FULL: Mapping[str, GroupCommit] = {
    "appends": GroupCommit((_A, _A, _B), attempts=1, noise=1, gives_up=(0,)),
    "mixed": GroupCommit((_A, _exact("a", rebases=True), _exact("b")), crashes=2, gives_up=(0, 1)),
    "write skew": GroupCommit((_exact("a", "b"), _exact("b", "a"), _A), noise=1, gives_up=(0,)),
    "two tables": GroupCommit(
        (_exact("ab", rebases=True), _exact("a", rebases=True), _exact("b")), crashes=2, gives_up=(0, 2)
    ),
    "keys": GroupCommit((_append("a", 1), _append("a", 1), _B), crashes=2, noise=1, gives_up=(0,)),
    "windows": GroupCommit((_A, _B), noise=2, gives_up=(0, 1)),
    "foreign": GroupCommit((_append("a", rebases=True), _exact("b"), _A), attempts=1, foreign=1, gives_up=(0,)),
    "made and dropped": GroupCommit(
        (_exact("b", "a"), _exact("a"), _exact("a", needs_made=True)), window=3, noise=1, gives_up=(0,)
    ),
    "collection": GroupCommit((_A, _B), window=3, attempts=1, noise=1, collects=True, gives_up=(0, 1)),
    "two in flight": GroupCommit((_A, _exact("a", rebases=True)), noise=2, in_flight=2, gives_up=(0, 1)),
    "all give up": GroupCommit((_A, _exact("a"), _exact("b", "a")), gives_up=(0, 1, 2)),
    "fold": GroupCommit((_A, _A, _append("ab")), attempts=1, noise=1, finalizes=True),
    "fold and exact": GroupCommit((_A, _A, _exact("ab", rebases=True)), finalizes=True),
    "hold": GroupCommit((_exact("a", rebases=True), _A, _A), noise=1, hold_after=1, gives_up=(0,)),
}

BUGS: Mapping[str, tuple[str, str]] = {
    "no_id_check": ("two appends", "R2 a: a leader does not look for the id in the versions since the request"),
    "own_view": ("two appends", "R2: it looks only at the versions since it connected itself"),
    "early_no": ("two appends", 'R4: "not committed" as soon as the request is deleted'),
    "one_more_version": ("windows", 'R4: "not committed" after deleting the request and one more version'),
    "no_window": ("short window", "R2: requests have no window, and the author believes that they have one"),
    "ignores_withdrawal": ("two appends", "R2 b"),
    "forgets_own_put": ("two appends", "R4: the author forgets a put of its own that is still under way"),
    "batch_unchecked": ("skew", "R2: members are checked against versions, and not against each other"),
    "no_conflict_window": ("mixed", "R2 f: a member is checked against its base only"),
    "compares_state": ("made and dropped", "R2 f: a leader compares how a name looks, not whether it was changed"),
    "ignores_key": ("keys", "R2 e: two requests with one idempotency key"),
    "ignores_foreign": ("foreign", "R2 d"),
    "no_barrier": ("collection", "R7: files are deleted without a barrier"),
    "ignores_barrier": ("collection", "R2 c"),
    "put_overwrites": ("two appends", "the put is not conditional"),
    "folds_on_base": ("fold", "an append is folded onto the manifest that its author had read"),
    "folds_exact": ("fold and exact", "an exact member and an append to its table are in one batch"),
    "finalizes_own": ("fold", "R8: the author finalizes the manifest that it staged itself"),
    "reports_own_rows": ("fold", "R8: the author reports the row ids that it staged itself"),
    "leader_skips_final": ("fold", "a leader publishes a table whose version before is not final"),
    "hold_binds_leader": ("hold of the dead", "the hold of a dead author stops the leaders' own appends"),
}
"""By name: the configuration that finds it, and the rule that it breaks."""

SEARCHED: Mapping[str, GroupCommit] = {
    **FULL,
    **SMALL,
    "short window": GroupCommit((_A, _B), window=1, attempts=1, crashes=0, noise=2, gives_up=(0,)),
    "hold of the dead": GroupCommit((_exact("a", rebases=True), _A, _A), attempts=1, hold_after=1),
}
"""The configurations in which the planted bugs are searched for."""

STUCK = frozenset({"hold_binds_leader"})
"""Planted bugs that break no invariant: a writer waits for ever (starvation)."""
