"""A worker: a process that does one step after the other, as the driver hands them out; its Spark is a shared server.

    python -m orders.worker NAME LAKE LANDING PLAN

The first line it reads is the address of the Spark Connect server. Each further line is a step's name, and perhaps a
place to wait at, where the driver will kill it.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

import conroi
import conroi.spark

from .events import Event, What, speaker
from .landing import Landing
from .plan import Plan
from .steps import Steps


def main(name: str, lake_uri: str, landing: str, plan_json: str) -> None:
    """Do what is asked until the driver closes our input."""
    tell = speaker()
    plan = Plan.from_json(plan_json)
    steps = {step.name: step for step in plan.steps()}
    lake, files = conroi.connect(lake_uri), Landing(Path(landing))
    spark = conroi.spark.session(name, master=sys.stdin.readline().strip())
    pipeline = Steps(lake, spark, files)
    tell(Event(What.READY, name))

    for line in sys.stdin:
        order: dict[str, str] = json.loads(line)
        step, wait_at = steps[order["step"]], order.get("wait_at")

        def say(note: str, step_name: str = step.name, wait_at: str | None = wait_at) -> None:
            tell(Event(What.NOTE, name, step=step_name, note=note))
            if note == wait_at:
                sys.stdin.readline()  # there is no answer: here we are killed

        try:
            result = pipeline.run(step, name, say)
        except conroi.ConflictError as conflict:
            tell(Event(What.REFUSED, name, step=step.name, note=f"{type(conflict).__name__}: {conflict.message}"))
        except Exception:  # noqa: BLE001 (whatever it is, the driver must hear of it)
            tell(Event(What.FAILED, name, step=step.name, note=traceback.format_exc()))
        else:
            say("published")
            tell(_done(name, step.name, result))
    spark.stop()


def _done(name: str, step: str, result: conroi.TransactionResult) -> Event:
    return Event(
        What.DONE,
        name,
        step=step,
        version=result.version,
        rebased=sum(len(versions) for versions in result.rebased.values()),
        was_done_before=result.was_done_before,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
