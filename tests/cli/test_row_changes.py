"""delete and update: rows are changed from the command line."""

from __future__ import annotations

import pytest

import conroi
from tests.cli.conftest import Run
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("C1")


def test_delete_says_how_many_and_deletes_with_yes(cli: Run, lake: conroi.Lake) -> None:
    ran = cli("delete", "lake/orders", "--where", "amount > 3")
    assert (ran.code, ran.out) == (0, "3 rows of orders would be deleted.\n")
    assert "--yes" in ran.err
    assert cli("delete", "lake/orders", "--where", "amount > 3", "--dry-run", "--json").json["rows"] == 3
    assert lake.version == 4
    done = cli("delete", "lake/orders", "--where", "amount > 3", "--yes", "--author", "gdpr", "-m", "forget")
    assert done.out == "3 rows of orders deleted; it is at version 3.\n"
    assert sorted(column_values(lake["orders"].to_arrow()["id"])) == [1, 2, 3, 4, 5, 6]
    newest = lake.history(limit=1)[0]
    assert (newest.author, newest.message) == ("gdpr", "forget")


def test_update_says_how_many_and_updates_with_yes(cli: Run, lake: conroi.Lake) -> None:
    words = ("update", "lake/orders", "--set", "amount=amount * 10", "--where", "id <= 2")
    ran = cli(*words)
    assert (ran.code, ran.out) == (0, "2 rows of orders would be updated.\n")
    assert lake.version == 4
    done = cli(*words, "--yes", "--json").json
    assert (done["done"], done["rows"], done["version"], done["lake_version"]) == (True, 2, 3, 5)
    found = {row["id"]: row["amount"] for row in lake["orders"].to_arrow(filter="id <= 3").to_pylist()}
    assert found == {1: 5.0, 2: 10.0, 3: 1.5}


def test_update_sets_several_columns_and_text(cli: Run, lake: conroi.Lake) -> None:
    words = ("update", "lake/sales.customers", "--set", "name='it''s = x'", "--set", "n=NULL", "--where", "n = 1")
    assert cli(*words).out == "1 row of sales.customers would be updated.\n"
    assert cli(*words, "--yes").code == 0
    assert {"name": "it's = x", "n": None} in lake["sales.customers"].to_arrow().to_pylist()


def test_rows_that_no_condition_names_are_not_changed(cli: Run, lake: conroi.Lake) -> None:
    for words in (("delete", "lake/orders"), ("update", "lake/orders", "--set", "amount=0")):
        ran = cli(*words, "--yes")
        assert ran.code == 2
        assert "--where true" in ran.err
    assert lake.version == 4
    assert cli("delete", "lake/orders", "--where", "true", "--yes").out.startswith("9 rows of orders deleted")
    assert lake["orders"].count_rows() == 0


@pytest.mark.parametrize("yes", [(), ("--yes",)], ids=["dry", "yes"])
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("delete", "lake/orders", "--where", "price > 1"), 1, "price"),
        (("delete", "lake/orders", "--where", "amount >"), 1, ""),
        (("update", "lake/orders", "--set", "amount=price", "--where", "true"), 1, "price"),
        (("update", "lake/sales.customers", "--set", "name=hello", "--where", "true"), 1, "needs quotes"),
        (("update", "lake/orders", "--set", "price=1", "--where", "true"), 1, "no column 'price'"),
        (("update", "lake/orders", "--set", "amount", "--where", "true"), 2, "--set COLUMN=SQL"),
        (("update", "lake/orders", "--where", "true"), 2, "--set COLUMN=SQL"),
        (("update", "lake/orders", "--set", "amount=1", "--set", "amount=2", "--where", "true"), 2, "twice"),
        (("delete", "lake/nope", "--where", "true"), 1, "no table 'nope'"),
    ],
)
def test_what_cannot_be_changed_says_so_before_and_with_yes(
    cli: Run, lake: conroi.Lake, words: tuple[str, ...], code: int, said: str, yes: tuple[str, ...]
) -> None:
    ran = cli(*words, *yes)
    assert ran.code == code, ran.err
    assert said in ran.err
    assert "hint: " in ran.err
    assert "--debug" not in ran.err
    assert lake.version == 4
