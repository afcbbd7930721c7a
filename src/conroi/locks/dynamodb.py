"""Commit lock in DynamoDB: a lease item, created conditionally, renewed by its holder, taken over when it expires.

The clocks of two hosts are never compared. The holder keeps writing a new `beat`. A waiter that has seen the same beat
for the length of the lease, by its own clock, may replace exactly that beat with its own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from conroi.environment import LONG_AGO, SYSTEM, Environment, moment, seconds_since
from conroi.errors import InvalidInputError, StoreUnavailable, TooMuchContention
from conroi.storage.dynamodb import HASH_KEY, RANGE_KEY, ConditionFailed, DynamoClient, dynamo_table

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.25
_BEATS_PER_LEASE = 4
_MARGIN = 0.75
"""Fraction of the lease for which a holder trusts its lock after its last beat; a waiter waits for the whole lease."""


class DynamoLock:
    """Mutual exclusion over all hosts that name the same lock in the same DynamoDB table.

    A crashed holder blocks the others for `lease_s` seconds.
    """

    def __init__(
        self, address: str, name: str, *, timeout_s: float = 30.0, lease_s: float = 10.0,
        environment: Environment = SYSTEM,
    ) -> None:  # fmt: skip
        if lease_s <= 0:
            raise InvalidInputError("A lease must last some time.", hint="Give lease_s in seconds, such as 10.")
        self.name, self.timeout_s, self.lease_s = name, timeout_s, lease_s
        self._address = address
        self._client = DynamoClient(dynamo_table(address))
        self._environment = environment

    def __repr__(self) -> str:
        return f"DynamoLock({self._client.table.place!r}, {self.name!r}, lease_s={self.lease_s})"

    def __reduce__(self) -> tuple[Callable[[str, str], DynamoLock], tuple[str, str]]:
        again = partial(DynamoLock, timeout_s=self.timeout_s, lease_s=self.lease_s)
        return again, (self._address, self.name)

    @contextlib.contextmanager
    def __call__(self, version: int = 0) -> Generator[HeldLease]:
        """Hold the lock while inside; every version of the table shares the one lock."""
        lease = HeldLease(self, self._environment)
        self._wait_for(lease, version)
        lease.keep()
        try:
            yield lease
        finally:
            lease.release()

    def replace_beat(self, old: str | None, new: str) -> bool:
        """Replace the old beat by ours, or create ours if there is no old one; False if the condition fails."""
        item = {**self._key, "beat": {"S": new}}
        condition: dict[str, Any] = {"ConditionExpression": f"attribute_not_exists({HASH_KEY})"}
        if old is not None:
            condition = {"ConditionExpression": "beat = :old", "ExpressionAttributeValues": {":old": {"S": old}}}
        try:
            self._client.call("put_item", Item=item, **condition)
        except ConditionFailed:
            return self._beat() == new  # the client may have sent it twice
        return True

    def remove_beat(self, beat: str) -> bool:
        """Release the lock; False if it was no longer ours."""
        ours = {"ConditionExpression": "beat = :ours", "ExpressionAttributeValues": {":ours": {"S": beat}}}
        try:
            self._client.call("delete_item", Key=self._key, **ours)
        except ConditionFailed:
            return False
        return True

    @property
    def _key(self) -> dict[str, Any]:
        # No table is called so, and version 0 is none.
        return {HASH_KEY: {"S": f"conroi-lock:{self.name}"}, RANGE_KEY: {"N": "0"}}

    def _beat(self) -> str | None:
        item = self._client.call("get_item", Key=self._key, ConsistentRead=True).get("Item")
        return None if item is None else item["beat"]["S"]

    def _wait_for(self, lease: HeldLease, version: int) -> None:
        started = seen_since = self._environment.monotonic()
        seen, pause = None, _FIRST_PAUSE_S
        while True:
            now = self._environment.monotonic()
            is_dead = seen is not None and now - seen_since >= self.lease_s
            if lease.take(seen if is_dead else None):
                return
            beat = self._beat()
            if beat != seen:
                seen, seen_since = beat, self._environment.monotonic()
            if now - started >= self.timeout_s:
                raise self._too_long(version)
            self._environment.sleep(self._environment.uniform(pause / 2, pause))
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _too_long(self, version: int) -> TooMuchContention:
        return TooMuchContention(
            f"Waited {self.timeout_s:g} s for the commit lock {self.name!r} in {self._client.table.place}.",
            version=version or None,
            hint="Nothing was committed; try again, or raise timeout_s.",
        )


class HeldLease:
    """The lock while it is held: a thread renews the lease, and `confirm` says whether that worked."""

    def __init__(self, lock: DynamoLock, environment: Environment) -> None:
        self._lock = lock
        self._environment = environment
        self._beat = ""
        self._beaten_at = LONG_AGO
        """When the last successful beat was sent."""
        self._is_over = threading.Event()
        self._beating = threading.Lock()

    def take(self, old: str | None) -> bool:
        """Acquire the lock, in place of no holder or of an expired beat; whether that succeeded."""
        return self._write(old)

    def confirm(self) -> None:
        """Raise StoreUnavailable if the last beat is too long ago to be sure; sends no request."""
        if seconds_since(self._environment, self._beaten_at) >= _MARGIN * self._lock.lease_s:
            raise StoreUnavailable(
                f"The commit lock {self._lock.name!r} could not be kept.",
                hint="Nothing was written under it; try again, or take a longer lease_s.",
            )

    def keep(self) -> None:
        """Renew the lease until it is released."""
        threading.Thread(target=self._keep, name="conroi-lease", daemon=True).start()

    def release(self) -> None:
        """Release the lock; StoreUnavailable if it was lost: the commit then checks the outcome of its write."""
        self._is_over.set()
        with self._beating:
            was_ours = self._lock.remove_beat(self._beat)
        if not was_ours:
            raise StoreUnavailable(
                f"The commit lock {self._lock.name!r} was lost while it was held.",
                hint="Whether the write under it counts is found by looking; the commit does that by itself.",
            )

    def _keep(self) -> None:
        while not self._is_over.wait(self._lock.lease_s / _BEATS_PER_LEASE):
            with self._beating, contextlib.suppress(StoreUnavailable):
                if self._is_over.is_set() or not self._write(self._beat):
                    return

    def _write(self, old: str | None) -> bool:
        # Counted from before the request: it may have reached the server at once and the answer taken long.
        sent_at, beat = moment(self._environment), str(self._environment.new_uuid())
        if not self._lock.replace_beat(old, beat):
            return False
        self._beat, self._beaten_at = beat, sent_at
        return True


def dynamodb_lock(address: str, name: str, *, timeout_s: float = 30.0, lease_s: float = 10.0) -> DynamoLock:
    """A lock for `commit_lock=`, in the DynamoDB table at `address`; all writers of a table must give the same name."""
    return DynamoLock(address, name, timeout_s=timeout_s, lease_s=lease_s)
