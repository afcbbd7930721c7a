"""Configurations of the model of the publish protocol, and planted bugs with the configuration that finds each.

Named for what they are about. `SMALL` runs with the tests; `FULL` has three writers, two tables and one crash each.
"""

from __future__ import annotations

from collections.abc import Mapping

from docs.model.publish import Publish
from docs.model.publish_facts import Tx

_A, _B = Tx("a"), Tx("b")

SMALL: Mapping[str, Publish] = {
    "write skew": Publish((Tx("a", expects="b"), Tx("b", expects="a"))),
    "rewrites": Publish((Tx(rewrites="a"), _A, Tx(rewrites="ab")), crashes=0),
    "expiry": Publish((_A, _A, _B), crashes=0, losses=0, expires=True, finalizes=False),
    "expiry of tables": Publish((_A, _A), crashes=0, expires=True),
    "collection": Publish((_A, _B), losses=0, crashes=0, sweeps=True),
}

FULL: Mapping[str, Publish] = {
    "three writers": Publish((Tx("ab"), Tx("a", expects="b"), _B)),
    "write skew over three": Publish((Tx("a", expects="b"), Tx("b", expects="a"), Tx("ab")), tries=3),
    "rewrites": Publish((Tx(rewrites="a"), _A, Tx(rewrites="ab")), losses=2),
    "expiry, lost answers": Publish((_A, _A, _B), crashes=0, expires=True, finalizes=False),
    "expiry, requests older than the grace period": Publish(
        (_A, _A, _B), crashes=0, expires=True, finalizes=False, outlives=True
    ),
    "expiry, a crash": Publish((_A, _A, _B), losses=0, expires=True, finalizes=False),
    "expiry, one table": Publish((_A, _A, _A), crashes=0, losses=0, expires=True),
    "collection, a crash": Publish((_A, Tx("ab")), sweeps=True),
    "collection, three writers": Publish((_A, _B, _A), tries=1, crashes=0, losses=0, sweeps=True, finalizes=False),
}

BUGS: Mapping[str, tuple[str, str]] = {
    "put_overwrites": ("rewrites", "the put does not require that its name is free"),
    "checks_once": ("write skew", "expectations are checked at the beginning, and not after a lost race"),
    "compares_rows": ("write skew", "the put compares the rows that it writes, not the version that was checked"),
    "silence_is_failure": ("write skew", "a lost answer is taken for a refusal"),
    "cleans_up_unknown": ("write skew", "what was staged is deleted although the outcome is unknown"),
    "retries_blindly": ("write skew", "after a lost answer the next version is tried without a look"),
    "taken_is_lost": ("write skew", "a name that is taken is a lost race, without a look at whose version it is"),
    "reuses_manifest": ("rewrites", "after a lost race the manifest that was staged is published unchanged"),
    "final_before_put": ("rewrites", "the manifest gets its final name before the put"),
    "skips_predecessor": ("rewrites", "a version is published while the one before it is not final"),
    "no_watermark": ("expiry", "after the put nobody looks whether the name had been collected"),
    "deletes_first": ("expiry", "expiry deletes first, and writes the watermark afterwards"),
    "expires_pinned": ("expiry of pins", "expiry deletes table versions that a retained version of the lake pins"),
    "no_second_look": ("expiry of tables", "who finalizes does not look whether the version was collected meanwhile"),
    "trusts_reused_name": ("expiry of names", "another version under the name proves that ours never had it"),
    "follows_reused_names": ("expiry", "a reader follows a version under a name that was collected"),
    "no_fence": ("collection", "garbage collection puts no empty version before it deletes"),
    "ignores_sweep": ("collection", "a writer does not look whether its files may have been swept"),
    "looks_before_note": ("collection", "garbage collection looks which files are needed before it announces itself"),
}
"""By name: the configuration that finds it, and what is wrong."""

SEARCHED: Mapping[str, Publish] = {
    **FULL,
    **SMALL,
    "expiry of pins": Publish((_A, _A, _A), crashes=0, losses=0, expires=True),
    "expiry of names": Publish((_A, _A, _B), resends=0, crashes=0, expires=True, finalizes=False),
}
"""The configurations in which the planted bugs are searched for."""
