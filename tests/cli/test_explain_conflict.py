from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

import conroi
from conroi import operations
from conroi.format.transaction import encode_transaction
from tests.cli.conftest import Run


def test_the_rule_for_two_operations(cli: Run) -> None:
    text = cli("explain-conflict", "--mine", "delete", "--theirs", "overwrite").out
    assert text.startswith("Delete after Overwrite\n  incompatible: ")
    (found,) = cli("explain-conflict", "--mine", "append", "--theirs", "append", "--json").json
    assert found["answers"] == ["compatible"]
    (both,) = cli("explain-conflict", "--mine", "merge", "--theirs", "update", "--json").json
    assert both["answers"] == ["compatible", "rebased", "retryable"]


def test_the_versions_that_a_change_met(cli: Run, lake: conroi.Lake) -> None:
    lake["orders"].overwrite([{"id": 1, "amount": 1.0}], message="start over")
    found = cli("explain-conflict", "lake/orders", "--mine", "update", "--since", 1, "--json").json
    assert [(each["version"], each["theirs"]) for each in found] == [(2, "Delete"), (3, "Overwrite")]
    assert found[1]["message"] == "start over"
    assert found[1]["answers"] == ["incompatible"]
    text = cli("explain-conflict", "lake/orders", "--mine", "update", "--since", 1).out
    assert "version 3 “start over” (" in text
    assert "Update after Overwrite" in text
    (one,) = cli("explain-conflict", "lake/orders", "--mine", "update", "--theirs", 2, "--json").json
    assert one["version"] == 2


def test_a_refused_commit_that_left_its_transaction_is_judged_again(
    cli: Run, lake: conroi.Lake, tmp_path: Path
) -> None:
    assert "became a version" in cli("explain-conflict", "lake/orders").out
    base = lake["orders"]
    lake["orders"].overwrite([{"id": 1, "amount": 1.0}])
    # What a commit leaves that wrote its transaction, lost the race for its version, and was then refused.
    fragment = base.pinned.manifest.fragments[0]
    delete = operations.Delete(deleted_fragment_ids=(fragment.id,), predicate="true")
    refused = operations.transaction(delete, read_version=base.version, uuid=str(uuid.UUID(int=7)))
    left = tmp_path / "lake" / "orders.lance" / "_transactions" / refused.file_name
    left.write_bytes(encode_transaction(refused))
    (found,) = cli("explain-conflict", "lake/orders", "--json").json
    assert (found["operation"], found["base_version"]) == ("Delete", 2)
    assert found["meetings"][-1]["answers"] == ["incompatible"]
    assert found["meetings"][-1]["version"] == 3
    text = cli("explain-conflict", "lake/orders", "--commit", found["uuid"]).out
    assert "never became a version" in text
    assert "hint: " in text
    assert cli("explain-conflict", "lake/orders", "--commit", "unknown").code == 1


def test_the_json_of_an_error_is_explained(cli: Run, lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from conroi.cli import loads

    Path("new.csv").write_text("id,amount\n90,1\n")
    original = loads.Together.open

    def racing(self: loads.Together) -> object:
        lake["orders"].append([{"id": 70, "amount": 1.0}], message="in between")
        return original(self)

    monkeypatch.setattr(loads.Together, "open", racing)
    failed = cli("load", "lake/orders", "new.csv", "--mode", "overwrite", "--json")
    assert failed.code == 3
    assert failed.error["type"] == "ExpectedVersionMismatch"
    Path("error.json").write_text(failed.err)
    ran = cli("explain-conflict", "--error", "error.json")
    assert ran.code == 0, ran.err
    assert "version 3: " in ran.out
    assert "committed Append as version 3" in ran.out
    assert "hint: " in ran.out


def test_an_error_that_is_no_conflict(cli: Run, lake: conroi.Lake) -> None:
    Path("error.json").write_text(cli("head", "lake/nope", "--json").err)
    ran = cli("explain-conflict", "--error", "error.json")
    assert ran.code == 1
    assert "no conflict" in ran.err
    Path("error.json").write_text("nothing")
    assert cli("explain-conflict", "--error", "error.json").code == 2


def test_what_is_missing_is_wrong_usage(cli: Run, lake: conroi.Lake) -> None:
    assert cli("explain-conflict").code == 2
    assert cli("explain-conflict", "lake/orders", "--mine", "delete").code == 2
    assert cli("explain-conflict", "--mine", "juggle", "--theirs", "append").code == 1


@pytest.mark.contract("C3")
def test_seventy_commits_fit_on_a_screen_and_losers_have_names(
    cli: Run, lake: conroi.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C8: 70 commits gave 2,124 lines, in which the losers were anonymous."""
    base = lake["orders"]
    fragment = base.pinned.manifest.fragments[0]
    for n in range(30):
        with lake.begin(f"load {n}", author="loader") as tx:
            tx["orders"].append([{"id": 100 + n, "amount": 1.0}])
    with lake.begin("start over", author="gdpr") as tx:
        tx["orders"].overwrite([{"id": 1, "amount": 1.0}])
    folder = tmp_path / "lake" / "orders.lance" / "_transactions"
    for n in range(40):
        delete = operations.Delete(deleted_fragment_ids=(fragment.id,), predicate="true")
        author = "ada" if n % 2 else "grace"
        properties = {"conroi.author": author, "__lance_commit_message": f"free orders of day {n % 4}"}
        lost = operations.transaction(
            delete, read_version=base.version, uuid=str(uuid.UUID(int=n + 1)), properties=properties
        )
        (folder / lost.file_name).write_bytes(encode_transaction(lost))
    monkeypatch.setenv("COLUMNS", "80")
    ran = cli("explain-conflict", "lake/orders")
    lines = (ran.out + ran.err).splitlines()
    assert len(lines) <= 24, ran.out
    assert max(map(len, lines[:-2])) <= 80
    assert "40 commits never became a version" in ran.out
    assert "“free orders of day 1” by ada, made on version 2 (10 times)" in " ".join(ran.out.split())
    assert "version 33 “start over” by gdpr" in ran.out
    assert "load 3" not in ran.out  # did not conflict
    assert ran.out.count("hint: ") == 1
    everything = cli("explain-conflict", "lake/orders", "--all").out
    assert everything.count("never became") == 1
    assert everything.count("made on version 2") == 40
    assert "load 3" in everything
    (first, *_) = cli("explain-conflict", "lake/orders", "--json").json
    assert {first["author"]} <= {"ada", "grace"}
    assert first["meetings"][-1]["author"] == "gdpr"
    since = cli("explain-conflict", "lake/orders", "--mine", "delete", "--since", 2)
    assert len((since.out + since.err).splitlines()) <= 24
    assert "and 29 commits like it, from version 3" in " ".join(since.out.split())
    assert since.out.startswith("version 33 “start over” by gdpr")


def test_the_answer_is_one_json_document(cli: Run, lake: conroi.Lake) -> None:
    assert json.loads(cli("explain-conflict", "lake/orders", "--json").out) == []
