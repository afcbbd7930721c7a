"""Messages that name the table as users do, the author, and what helps in that place."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import conroi


@pytest.fixture
def lake(tmp_path: Path) -> conroi.Lake:
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"id": i, "v": "a"} for i in range(5)], key="id")
    return lake


def lose(lake: conroi.Lake, tx: conroi.Transaction, number: int) -> None:
    """Change a row that another writer changes before the commit."""
    tx["t"].update({"v": "'mine'"}, where="id = 1")
    with conroi.connect(lake.uri).begin(f"forget {number}", author="gdpr") as other:
        other["t"].update({"v": "'theirs'"}, where="id = 1")


@pytest.mark.contract("U4", "U8")
def test_a_conflict_names_author_message_table_and_what_runs_it_again(lake: conroi.Lake):
    with pytest.raises(conroi.RetryableConflict) as caught, lake.begin() as tx:
        lose(lake, tx, 1)
    assert caught.value.table == "t"
    for part in ("of the table", "“forget 1”", "by gdpr", "lake.run(work)"):
        assert part in str(caught.value)


@pytest.mark.contract("U8")
def test_lake_run_logs_retries_and_counts_them(lake: conroi.Lake, caplog: pytest.LogCaptureFixture):
    done: list[int] = []

    def work(tx: conroi.Transaction) -> None:
        done.append(1)
        lose(lake, tx, len(done))

    with caplog.at_level(logging.INFO, "conroi.lake"), pytest.raises(conroi.ConflictError, match="3 times"):
        lake.run(work, retries=2)
    assert next(text for text in caplog.messages if "attempt" in text).startswith("lake.run: attempt 1 lost")


@pytest.mark.contract("U4")
def test_errors_of_lake_tables_carry_the_name(lake: conroi.Lake):
    for call in (
        lambda: lake["t"].to_arrow(["nope"]),
        lambda: lake["t"].delete("nope = 1"),
        lambda: lake["t"].merge([{"id": 1, "new": 2}], on="id").when_matched_update_all().execute(),
        lambda: lake["t"].tags.get("nope"),
    ):
        with pytest.raises(conroi.ConroiError) as caught:
            call()
        assert caught.value.table == "t"
