"""The size of the code base: how many files there are, how long, who imports them, and how many a commit runs through.

Small numbers are no aim in themselves. They are limits, so that growth is noticed: raise one with a reason.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest

import conroi
from tests.support.source import REPOSITORY, Module, conroi_module_names, conroi_modules

MOST_FILES = 342  # 24 of them for the Spark connector, one to print the path of its jar; 37 for the simulator
MOST_LINES = 450
MOST_SINGLE_IMPORTERS = 18  # the helper of the Spark connector hands requests to seven modules
MOST_ING_NAMES = 12

LAZY = {
    "": "public names are loaded at their first use, so that the command line starts fast",
    "cli": "the command line loads what a command needs",
    "export": "optional extra",
    "query": "DuckDB and polars are optional extras",
    "spark": "optional extra",
}
"""Parts that may import inside functions, with the reason; others may do so for packages of optional extras only."""
EXTRAS = {"boto3", "botocore", "duckdb", "polars", "psycopg"}
SLOW = {"lance", "difflib", "pyarrow.dataset"}
"""Loaded where they are used: pylance takes half a second, and a connection that only lists tables does not need it.

The datasets of pyarrow import pandas.
"""


def single_importers() -> list[str]:
    """Modules that one module of their own folder imports, and no other."""
    users: dict[str, set[str]] = defaultdict(set)
    for module in conroi_modules():
        names = {f"conroi.spark.{name}" for name in loaded_for_spark(module)}
        for imported in module.imports():
            names |= {imported.module, *(f"{imported.module}.{name}" for name in imported.names)}
        for name in names & conroi_module_names() - {module.name}:
            users[name].add(module.name)
    packages = {name.rpartition(".")[0] for name in conroi_module_names()}
    return sorted(
        name
        for name, importers in users.items()
        if name not in packages and len(importers) == 1 and not importers & packages
        if name.rpartition(".")[0] == min(importers).rpartition(".")[0]
    )


def loaded_for_spark(module: Module) -> list[str]:
    """Modules of conroi.spark that lower layers load by their names: `in_spark("merge")`."""
    return [
        node.args[0].value
        for node in module.nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "in_spark"
        if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    ]


def hidden_imports(module: Module) -> list[str]:
    """Imports inside functions that are there neither for an optional extra nor for a fast start."""
    return [
        f"{module.name}:{node.lineno}"
        for function in module.nodes
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in _imported(node)
        if not {name, name.partition(".")[0]} & (EXTRAS | SLOW)
    ]


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def test_there_are_not_too_many_files():
    assert len(conroi_modules()) <= MOST_FILES


def test_no_file_is_too_long():
    long = {}
    for path in (REPOSITORY / "src").rglob("*.py"):
        lines = len(path.read_text("utf-8").splitlines())
        if lines > MOST_LINES and not path.name.endswith("_pb2.py"):
            long[path.name] = lines
    assert not long


def test_few_modules_serve_a_single_neighbour():
    found = single_importers()
    assert len(found) <= MOST_SINGLE_IMPORTERS, found


def names_given_twice(tree: ast.Module) -> set[str]:
    """Constants of a module that a later line of it defines again."""
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return {name for name in names if names.count(name) > 1}


def test_no_module_gives_one_name_to_two_things():
    """Two modules that became one had a constant of the same name, and the later one replaced the other."""
    found = {module.name: names_given_twice(module.tree) for module in conroi_modules()}
    assert not {name: twice for name, twice in found.items() if twice}
    assert names_given_twice(ast.parse("A = 1\nB = 2\nA = 3\n")) == {"A"}


def test_modules_are_named_by_nouns():
    found = [name for name in conroi_module_names() if name.endswith("ing")]
    assert len(found) <= MOST_ING_NAMES, found


def test_modules_that_are_loaded_by_name_are_found():
    assert loaded_for_spark(Module.parse("conroi.verbs.x", 'in_spark("merge").SparkMerging(1)')) == ["merge"]


def test_every_module_that_is_loaded_by_name_is_there():
    """A module was renamed, and the name in `in_spark("…")` was not: no DataFrame could be written any more."""
    names = {f"conroi.spark.{name}" for module in conroi_modules() for name in loaded_for_spark(module)}
    assert len(names) > 2
    assert names <= conroi_module_names()


def test_no_import_inside_a_function_hides_a_cycle():
    assert not [each for module in conroi_modules() if module.layer not in LAZY for each in hidden_imports(module)]


def test_an_import_inside_a_function_would_be_found():
    module = Module.parse("conroi.commit.loop", "def f():\n    from conroi.lake import Lake\n    import duckdb\n")
    assert hidden_imports(module) == ["conroi.commit.loop:2"]


# ---------------------------------------------------------------------------- one commit

ROWS = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
ONE_APPEND = (165, 32)  # the goal is 180 in 32
TWO_TABLES = (300, 48)
"""Functions of conroi that a commit calls, and files that they are in, when everything is loaded."""


def traced(work: Callable[[], object]) -> tuple[int, int]:
    """Functions of conroi that are called, in all threads, and files that they are in."""
    source = str(Path(conroi.__file__).parent)
    seen: set[tuple[str, str, int]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(source):
            seen.add((code.co_filename, code.co_qualname, code.co_firstlineno))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return len(seen), len({file for file, *_ in seen})


@pytest.mark.parametrize("what", ["one append", "two tables"])
def test_a_commit_runs_through_few_functions_and_files(tmp_path: Path, what: str):
    if what == "one append":
        table = conroi.create_table(tmp_path / "t", ROWS)

        def work() -> None:
            table.append(ROWS)
    else:
        lake = conroi.connect(tmp_path / "lake")
        for name in "ab":
            lake.create_table(name, ROWS)

        def work() -> None:
            with lake.begin() as tx:
                tx["a"].append(ROWS)
                tx["b"].append(ROWS)

    work()
    work()
    functions, files = traced(work)
    most_functions, most_files = ONE_APPEND if what == "one append" else TWO_TABLES
    assert 50 < functions <= most_functions
    assert 10 < files <= most_files
