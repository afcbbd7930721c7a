"""The main example: several Spark workers load, correct, cancel, close and compact four tables of one lake at once.

Each step is one transaction over several tables. Readers audit the lake all the time, workers are killed on the way
and started again, and in the end every row is compared with the plan by plain pylance. `make demo` runs it. The
transactions are in orders/steps.py, and that is the part to copy from.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from orders.checker import Found
from orders.driver import Driver, PipelineFailed
from orders.events import Event
from orders.landing import Landing, write_landing
from orders.page import page_of
from orders.plan import Plan, WrongChoice
from orders.progress import Progress
from orders.report import Report, make_report, print_report
from orders.tables import create_tables
from orders.timeline import Recorder, Timeline
from rich.console import Console
from rich.text import Text

import conroi

MARK = "made-by-orders-pipeline"


def options() -> argparse.Namespace:
    """What can be chosen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter, prog="orders_pipeline.py"
    )
    parser.add_argument("--orders", type=int, default=250_000, help="orders; with their items, four times as many rows")
    parser.add_argument("--customers", type=int, default=20_000, help="customers")
    parser.add_argument("--days", type=int, default=8, help="days; each is loaded region by region")
    parser.add_argument("--regions", type=int, default=4, help="regions")
    parser.add_argument("--seed", type=int, default=7, help="all data follow from it")
    parser.add_argument("--workers", type=int, default=3, help="processes, all clients of one Spark Connect server")
    parser.add_argument("--readers", type=int, default=1, help="processes that audit all the time")
    parser.add_argument(
        "--kills", type=int, default=2, help="workers that are killed: in the middle of a load, after a load, and so on"
    )
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="where everything goes; emptied first")
    chosen = parser.parse_args()
    if chosen.workers < 1 or chosen.readers < 1 or chosen.kills < 0:
        parser.error("There must be a worker and a reader, and no less than 0 kills.")
    return chosen


def main() -> int:
    """Run it all; 0 if everything is as it must be."""
    console, chosen = Console(), options()
    try:
        plan = Plan(chosen.orders, chosen.days, chosen.regions, chosen.customers, chosen.seed)
        folder = emptied(chosen.out)
        timeline = pipeline(console, plan, folder, chosen.workers, chosen.readers, chosen.kills)
        console.print("Comparing every row with the plan, with plain pylance …")
        found = checked(folder / "lake", plan)
    except (WrongChoice, PipelineFailed) as error:
        console.print(Text(f"It did not work. {error}", style="red"), soft_wrap=True)
        return 2
    history = conroi.connect(folder / "lake").history()
    landing = Landing(folder / "landing")
    report = make_report(plan, timeline, found, [commit.message for commit in history], landing)
    print_report(console, report)
    console.print(f"The timeline: {write_results(folder, report, timeline).as_uri()}", soft_wrap=True)
    return 0 if report.is_right else 1


def pipeline(console: Console, plan: Plan, folder: Path, workers: int, readers: int, kills: int) -> Timeline:
    """Make the data and the tables, and let the workers do all steps of the plan."""
    recorder = Recorder(time.time())
    progress = Progress(console, recorder, len(plan.steps()))
    with (folder / "events.jsonl").open("w", encoding="utf-8") as events:

        def hear(event: Event) -> None:
            events.write(event.to_json() + "\n")
            progress.hear(event)

        with Driver(plan, folder, hear, workers=workers, readers=readers, kills=kills) as driver:
            console.print(f"Generating {plan.orders:,} orders with their items and customers …")
            write_landing(plan, folder / "landing")
            create_tables(conroi.connect(folder / "lake"))
            console.print(
                f"{len(plan.steps())} transactions, {workers} Spark workers, {readers} readers, {kills} kills …"
            )
            with progress.shown():
                driver.run()
    return recorder.finished()


def emptied(folder: Path) -> Path:
    """A folder for the results; an earlier run's are deleted, and nothing else."""
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise WrongChoice(f"{folder} has files that are not ours. Name another folder with --out.")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "logs").mkdir(parents=True)
    (folder / MARK).write_text("examples/orders_pipeline.py made this folder, and empties it when it runs again.\n")
    return folder.resolve()


def checked(lake: Path, plan: Plan) -> dict[str, Found]:
    """Let the checker look, in a process that knows nothing of conroi."""
    command = [sys.executable, "-m", "orders.checker", str(lake), plan.to_json()]
    answer = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise PipelineFailed(f"The checker failed:\n{answer.stderr}")
    return {name: Found(**facts) for name, facts in json.loads(answer.stdout).items()}


def write_results(folder: Path, report: Report, timeline: Timeline) -> Path:
    """report.json and the page with the picture."""
    (folder / "report.json").write_text(json.dumps(report.to_dict(), indent=1) + "\n", encoding="utf-8")
    page = folder / "index.html"
    page.write_text(page_of(report, timeline), encoding="utf-8")
    return page


if __name__ == "__main__":
    sys.exit(main())
