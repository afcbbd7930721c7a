"""Hints name commands and options, not Python calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import conroi
from conroi.cli.failures import in_commands
from conroi.conflicts.catalog import CATALOG
from tests.cli.conftest import Run
from tests.support.source import conroi_modules

pytestmark = pytest.mark.contract("C5")

ELSEWHERE = ("conroi.cli", "conroi.spark", "conroi.catalog.namespace", "conroi.table_location")
"""Parts whose errors no command meets, or that speak of commands already."""
HAVE_A_COMMAND = (
    *("create_table", "drop_table", "rename_table", "append", "insert", "merge", "update", "delete", "restore"),
    *("compact", "expire", "gc", "doctor", "mend", "locks", "history", "versions", "tables", "diff", "clone"),
    *("branches.create", "branches.delete", "tags.move", "run", "begin"),
)


def hints() -> Iterator[str]:
    """Every hint in the source; what is filled in stands as X."""
    for module in conroi_modules():
        if module.name.startswith(ELSEWHERE):
            continue
        for node in module.nodes:
            for keyword in node.keywords if isinstance(node, ast.Call) else ():
                if keyword.arg == "hint":
                    yield from _texts(keyword.value)
    yield from (clause.hint.format(version=7, mine="x", fragments="", rows="", names="") for clause in CATALOG.values())


def _texts(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "'X'" for part in node.values)  # pyright: ignore
    elif isinstance(node, ast.IfExp):
        yield from (*_texts(node.body), *_texts(node.orelse))
    elif isinstance(node, ast.BinOp):
        lefts, rights = list(_texts(node.left)), list(_texts(node.right))
        yield from (left + right for left in lefts for right in rights)


def test_no_hint_names_a_call_for_which_there_is_a_command() -> None:
    stray = []
    for hint in hints():
        calls = re.findall(r"(?<![\w`-])([A-Za-z_][\w.]*)\(", in_commands(hint))
        named = [call for call in calls if call.removeprefix("lake.").removeprefix("table.") in HAVE_A_COMMAND]
        stray += [(hint, in_commands(hint))] if named and "transaction" not in hint else []
    assert not stray


def test_a_key_that_a_file_has_twice_is_not_sent_to_a_merge(cli: Run, lake: conroi.Lake) -> None:
    Path("twice.csv").write_text("id,amount\n70,1\n70,2\n")
    ran = cli("load", "lake/orders", "twice.csv")
    assert ran.code == 1
    assert "--mode merge" not in ran.err
    assert "hint: " in ran.err


def test_a_call_without_a_command_is_said_to_be_python() -> None:
    assert in_commands("Change it with alter_columns().") == "Change it with alter_columns() in Python."
    assert in_commands("It has a, b.") == "It has a, b."


def test_the_hints_are_found() -> None:
    assert len(list(hints())) > 300


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("load", "lake/orders", "again.csv"), "--mode merge --on id"),
        (("load", "lake/new", "bad.csv", "--create"), "conroi create"),
        (("load", "lake/orders", "wider.csv"), "--evolve"),
        (("head", "lake/nope"), "`conroi create` makes one"),
        (("diff", "lake", "1", "99"), "conroi log"),
        (("show", "lake@99"), "conroi log"),
        (("head", "lake/orders@99"), "conroi history"),
        (("tag", "create", "lake", "q3", "--version", "99"), "conroi log"),
        (("branch", "delete", "lake", "nope"), "conroi branch"),
        (("merge", "lake", "nope"), "conroi branch"),
        (("sql", "lake", "SELECT * FROM read_csv('x.csv')"), "conroi load"),
        (("sql", "lake", "DELETE FROM orders"), "`conroi delete`"),
        (("sql", "lake", "selec * from orders"), 'near "selec"'),
        (("head", "nolake/orders"), "There is no lake at nolake."),
        (("create", "nolake/orders", "--schema", "id int64"), "There is no lake at nolake."),
        (("count", "nolake/orders"), "There is no lake at nolake."),
        (("create", "lake/orders", "--schema", "id int64"), "Choose another name"),
        (("drop", "lake@2/orders", "--yes"), "Leave out the version"),
        (("update", "lake/sales.customers", "--set", "name=hello", "--where", "true"), "needs quotes inside"),
        (("head", "lake/orders", "--where", "id = :id"), ""),
    ],
)
def test_what_helps_on_the_command_line(cli: Run, lake: conroi.Lake, words: tuple[str, ...], said: str) -> None:
    Path("again.csv").write_text("id,amount\n3,1\n")
    Path("bad.csv").write_text("id,amount\n" + "1,2\n" * 400_000 + "x,3\n")
    Path("wider.csv").write_text("id,amount,note\n70,1,x\n")
    ran = cli(*words)
    assert ran.code == 1, (ran.out, ran.err)
    assert said in ran.err
    assert not re.search(r"\w\(\)(?! in Python)", ran.err), ran.err
    assert lake.version == 4


@pytest.mark.contract("C8")
def test_a_table_that_refers_to_another_folder_names_the_option(cli: Run, lake: conroi.Lake, tmp_path: Path) -> None:
    """What Python has as allow_bases= is --allow-base here."""
    elsewhere = tmp_path / "elsewhere"
    table = lake["orders"].add_base(str(elsewhere), name="other", is_table_root=True)
    table.append(pa.table({"id": [70], "amount": [1.0]}), base="other")
    refused = cli("head", "lake/orders")
    assert refused.code == 1
    assert f"--allow-base {elsewhere}" in refused.err
    ran = cli("count", "lake/orders", "--where", "id = 70", "--allow-base", elsewhere)
    assert (ran.code, ran.out) == (0, "1\n"), ran.err
    assert cli("sql", "lake", "SELECT id FROM orders WHERE id = 70", "--json", "--allow-base", elsewhere).rows
    assert cli("compact", "lake", "--allow-base", elsewhere).code == 0
    found = {each["kind"] for each in cli("doctor", "lake", "--json").json["findings"]}
    named = {each["kind"] for each in cli("doctor", "lake", "--json", "--allow-base", elsewhere).json["findings"]}
    assert found - named
