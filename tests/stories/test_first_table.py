"""Your first table: make one, change it, look at what happened."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from pathlib import Path

import lance
import pytest

import conroi

README = Path(__file__).parents[2] / "README.md"


def test_a_first_table(tmp_path: Path) -> None:
    # A list of dicts is enough to begin with. `key` says by which column rows are told apart.
    orders = conroi.create_table(tmp_path / "orders.lance", [{"id": 1, "amount": 5.0}], key="id")

    # Every verb returns the table as it is then; the old variable still shows what it showed.
    more = orders.append([{"id": 2, "amount": 7.5}, {"id": 3, "amount": -1.0}], message="morning load")
    assert orders.count_rows() == 1
    assert more.count_rows() == 3

    # Conditions and values are SQL.
    more = more.update({"amount": "amount * 2"}, where="id = 1")
    more = more.delete("amount < 0")
    assert more.to_arrow().sort_by("id").to_pylist() == [{"id": 1, "amount": 10.0}, {"id": 2, "amount": 7.5}]

    # It is a plain Lance table: pylance opens it, and what it writes we see.
    assert lance.dataset(tmp_path / "orders.lance").count_rows() == 2

    # And nothing was forgotten.
    assert [commit.operation for commit in more.history()] == ["Delete", "Update", "Append", "Overwrite"]
    assert more.history()[2].message == "morning load"


def test_a_key_is_there_once(tmp_path: Path) -> None:
    orders = conroi.create_table(tmp_path / "orders.lance", [{"id": 1, "amount": 5.0}], key="id")

    with pytest.raises(conroi.DuplicateKeyError) as caught:
        orders.append([{"id": 1, "amount": 6.0}])

    assert "merge()" in str(caught.value), "the message says what to use instead"
    assert orders.latest().count_rows() == 1


def test_the_example_in_the_readme_runs_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)[0]
    assert len(ast.parse(example).body) <= 10, "ten lines, some of them broken in two"
    monkeypatch.chdir(tmp_path)

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(example, {})

    promised = re.search(r"# (\[\{.*\}\])$", example, re.MULTILINE)
    assert promised is not None
    assert printed.getvalue().splitlines()[0] == promised.group(1)
