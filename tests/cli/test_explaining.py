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
    assert "version 3 “start over”: Update after Overwrite" in text
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
    assert cli("explain-conflict", "lake/orders", "--commit", "nobody").code == 1


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


def test_the_answer_is_one_json_document(cli: Run, lake: conroi.Lake) -> None:
    assert json.loads(cli("explain-conflict", "lake/orders", "--json").out) == []
