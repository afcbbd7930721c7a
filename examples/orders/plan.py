"""What there is to do: the sizes, the steps of the pipeline, and which step waits for which."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from enum import StrEnum

FIRST_DAY = date(2026, 11, 2)
KEYS = {
    "customers": ["customer_id"],
    "orders": ["order_id"],
    "items": ["order_id", "line"],
    "daily_totals": ["day", "region"],
}
REGION_NAMES = ("north", "south", "east", "west", "centre", "islands", "coast", "hills")


class WrongChoice(ValueError):
    """Sizes or a folder with which the pipeline cannot run."""


class Kind(StrEnum):
    """What a step does."""

    LOAD = "load"
    CORRECT = "correct"
    CANCEL = "cancel"
    CLOSE = "close"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction. Its name is also its idempotency key: however often it is tried, it lands once."""

    name: str
    kind: Kind
    day: date | None = None
    region: str | None = None
    needs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes and the seed, from which all data and all steps follow."""

    orders: int = 250_000
    days: int = 8
    regions: int = 4
    customers: int = 20_000
    seed: int = 7

    def __post_init__(self) -> None:
        if not 1 <= self.regions <= len(REGION_NAMES):
            raise WrongChoice(f"There are 1 to {len(REGION_NAMES)} regions, not {self.regions}.")
        if self.days < 1 or self.orders < 20 * self.days * self.regions:
            raise WrongChoice(f"{self.orders} orders are too few: give 20 or more for each region and day.")
        if self.customers < self.regions:
            raise WrongChoice("Each region needs a customer.")

    def to_json(self) -> str:
        """As text, for another process."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Plan:
        """The plan that to_json() wrote."""
        return Plan(**json.loads(text))

    @property
    def region_names(self) -> tuple[str, ...]:
        """The regions that take part."""
        return REGION_NAMES[: self.regions]

    @property
    def all_days(self) -> list[date]:
        """The days, ascending."""
        return [FIRST_DAY + timedelta(days=n) for n in range(self.days)]

    def batches(self) -> Iterator[tuple[date, str, range]]:
        """Each day of each region, with the ids of its orders."""
        count = self.days * self.regions
        for number in range(count):
            ids = range(number * self.orders // count, (number + 1) * self.orders // count)
            day, region = divmod(number, self.regions)
            yield self.all_days[day], self.region_names[region], ids

    def steps(self) -> list[Step]:
        """All steps, in the order in which they are best begun: loads first, the work on a day behind the next load."""
        steps: list[Step] = []
        for number, day in enumerate(self.all_days):
            steps += self._loads(day)
            if number:
                steps += self._after(self.all_days[number - 1])
            if number % 3 == 2:
                steps.append(Step(f"compact {day}", Kind.COMPACT, needs=frozenset(s.name for s in self._loads(day))))
        steps += self._after(self.all_days[-1])
        everything = frozenset(step.name for step in steps)
        return [*steps, Step("compact at the end", Kind.COMPACT, needs=everything)]

    def _loads(self, day: date) -> list[Step]:
        return [Step(f"load {day} {region}", Kind.LOAD, day, region) for region in self.region_names]

    def _after(self, day: date) -> list[Step]:
        """A day's orders can be changed when they are there, and closed when nothing is left to change."""
        loaded = frozenset(step.name for step in self._loads(day))
        correct = Step(f"correct {day}", Kind.CORRECT, day, needs=loaded)
        cancel = Step(f"cancel {day}", Kind.CANCEL, day, needs=loaded)
        close = Step(f"close {day}", Kind.CLOSE, day, needs=frozenset({correct.name, cancel.name}))
        return [correct, cancel, close]
