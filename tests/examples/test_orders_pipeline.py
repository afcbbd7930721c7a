"""The main job, run as people run it: what it reports, what it draws, and that it would notice if rows were wrong."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import pytest
from orders.checker import check
from orders.plan import Plan

import conroi
from tests.examples.conftest import Run, run_program

pytestmark = pytest.mark.timeout(900)  # Spark is started
PLAN = Plan(orders=240, days=2, regions=2, customers=40, seed=11)


def test_it_ends_well_and_says_so(tiny: Run):
    assert tiny.code == 0, tiny.printed
    assert "Nothing lost, nothing doubled, every invariant held." in tiny.printed
    assert "index.html" in tiny.printed


def test_the_report_counts_every_step_once(tiny: Run):
    report = tiny.report
    assert report["steps"] == report["published_once"] == 11, "4 loads, 2 × (correct, cancel, close), a compaction"
    assert {kind: figures["transactions"] for kind, figures in report["kinds"].items()} == {
        "load": 4,
        "correct": 2,
        "cancel": 2,
        "close": 2,
        "compact": 1,
    }
    assert (report["lost"], report["duplicated"], report["problems"], report["is_right"]) == (0, 0, [], True)
    assert report["rows_per_s"] > 0


def test_the_readers_looked_at_pinned_versions_all_the_time(tiny: Run):
    report = tiny.report
    assert report["versions_audited"] >= 4
    assert report["invariants_checked"] == 6 * report["audits"]


def test_the_load_of_the_killed_worker_was_done_exactly_once_and_the_worker_came_back(tiny: Run):
    events = [json.loads(line) for line in (tiny.folder / "events.jsonl").read_text("utf-8").splitlines()]
    killed = [(n, event) for n, event in enumerate(events) if event["what"] == "killed"]
    assert len(killed) == tiny.report["kills"] == 1
    place, (who, step) = killed[0][0], (killed[0][1]["who"], killed[0][1]["step"])
    assert step.startswith("load")
    assert events[place - 1]["note"] == "orders written", "the orders were written, the items were not"
    assert any(event["what"] == "starting" and event["who"] == who for event in events[place:])
    assert [event["step"] for event in events if event["what"] == "done"].count(step) == 1
    assert [commit.message for commit in conroi.connect(tiny.folder / "lake").history()].count(step) == 1


def test_the_page_needs_nothing_else_and_shows_every_attempt(tiny: Run):
    page = (tiny.folder / "index.html").read_text("utf-8")
    assert "<script" not in page
    assert set(re.findall(r"https?://[^\"\s]+", page)) == {"http://www.w3.org/2000/svg"}
    assert page.count('<g class="bar">') == 11 + 1 + tiny.report["retried"] + tiny.report["refused"]
    assert page.count('<circle class="audit good" cx') == tiny.report["audits"] + 1, "one more in the legend"
    assert "prefers-color-scheme: dark" in page


# ---------------------------------------------------------------------------- negative controls: the checker can fail


def append_one_again(uri: str) -> None:
    rows = lance.dataset(uri).to_table(limit=1)
    lance.write_dataset(rows, uri, mode="append")


def delete_one(uri: str) -> None:
    first = lance.dataset(uri).to_table(columns=["order_id"], limit=1)["order_id"][0].as_py()
    lance.dataset(uri).delete(f"order_id = {first}")


def change_one(uri: str) -> None:
    first = lance.dataset(uri).to_table(columns=["order_id"], limit=1)["order_id"][0].as_py()
    lance.dataset(uri).update({"amount_cents": "amount_cents + 1"}, where=f"order_id = {first}")


def append_a_stranger(uri: str) -> None:
    row = lance.dataset(uri).to_table(limit=1)
    stranger = row.set_column(0, row.schema.field(0), [[10**9]])
    lance.write_dataset(stranger, uri, mode="append")


@pytest.mark.parametrize(
    ("tamper", "counted"),
    [
        (delete_one, {"lost": 1, "duplicated": 0, "unexpected": 0, "wrong": 0}),
        (append_one_again, {"lost": 0, "duplicated": 1, "unexpected": 0, "wrong": 0}),
        (append_a_stranger, {"lost": 0, "duplicated": 0, "unexpected": 1, "wrong": 0}),
        (change_one, {"lost": 0, "duplicated": 0, "unexpected": 0, "wrong": 1}),
    ],
)
def test_the_checker_counts_what_was_tampered_with(
    tiny: Run, tmp_path: Path, tamper: Callable[[str], None], counted: dict[str, int]
):
    lake = tmp_path / "lake"
    shutil.copytree(tiny.folder / "lake", lake)
    assert all(found.is_right for found in check(lake, PLAN).values()), "the copy is as good as the lake"

    tamper(str(lake / "orders.lance"))

    found = check(lake, PLAN)["orders"]
    assert {name: getattr(found, name) for name in counted} == counted
    assert not found.is_right


# ---------------------------------------------------------------------------- the program itself


def test_help_shows_what_can_be_chosen(tmp_path: Path):
    run = run_program(tmp_path, "--help")
    assert run.code == 0
    for option in ("--orders", "--customers", "--days", "--regions", "--seed", "--workers", "--readers", "--kills"):
        assert option in run.printed


def test_a_folder_with_files_of_others_is_left_alone(tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("years of work")
    run = run_program(tmp_path)
    assert run.code == 2
    assert "not ours" in run.printed
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


@pytest.mark.soak
def test_two_kills_one_of_them_after_the_load_was_published(tmp_path: Path):
    run = run_program(tmp_path / "out", "--orders", "20000", "--customers", "1500", "--days", "6", "--kills", "2")
    assert run.code == 0, run.printed
    assert (run.report["kills"], run.report["found_done"], run.report["lost"], run.report["duplicated"]) == (2, 1, 0, 0)
