"""Arrows point down: a part of conroi imports only what stands below it, and the core is pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support.source import Import, Module, conroi_modules

FOUNDATION = {"arguments", "environment", "errors", "retry_policy", "version"}
PURE = {"format", "operations", "conflicts"}
CORE = FOUNDATION | PURE
LOWER = CORE | {"storage", "versions", "snapshots"}
MIDDLE = LOWER | {"commit", "data"}

# Each part, and what it may import besides itself. A part that is not here has no place yet: give it one.
MAY_IMPORT: dict[str, set[str]] = {
    "arguments": {"errors"},
    "environment": set(),
    "errors": set(),
    "retry_policy": {"environment", "errors"},
    "version": set(),
    "format": {"errors"},
    "operations": {"errors", "format"},
    "conflicts": {"errors", "format", "operations"},
    "storage": FOUNDATION | {"format"},
    "locks": FOUNDATION | {"storage"},
    "versions": FOUNDATION | {"format", "storage"},
    "snapshots": CORE | {"storage", "versions"},
    "commit": LOWER,
    "data": LOWER,  # data and commit do not know each other
    "history": LOWER,
    "verbs": MIDDLE,
    "merge": MIDDLE | {"verbs"},
    "catalog": MIDDLE | {"history", "verbs"},
    "inserts": MIDDLE | {"catalog", "history", "locks"},
    "display": {"errors"},
    "branches": MIDDLE | {"catalog", "display", "history", "inserts", "merge", "verbs"},
    "maintenance": MIDDLE | {"catalog", "display", "verbs"},
    "doctor": MIDDLE | {"catalog", "display", "inserts", "maintenance"},
    "namespace": MIDDLE | {"catalog", "verbs"},
}

# The handles of users, from the bottom to the top: each imports only those before it.
FRONT = (
    *("refusals", "query", "folding", "reader", "writer", "transaction_tables", "staged_table"),
    *("table_transaction", "transaction", "insertion", "export", "registration", "table_location", "pickles"),
    *("table", "jobs", "lake_history", "lake_snapshot", "lake", "opening", "stores", "front"),
)
BELOW_FRONT = set(MAY_IMPORT) - {"namespace"}
MAY_IMPORT.update({part: BELOW_FRONT | set(FRONT[:number]) for number, part in enumerate(FRONT)})
MAY_IMPORT.update(
    {
        "testing": LOWER
        | {"catalog", "data", "front", "inserts", "lake", "lake_snapshot", "opening", "reader", "table", "transaction"},
        "spark": MIDDLE | {"catalog", "history", "merge", "verbs", *FRONT},
        "cli": MIDDLE | {"branches", "catalog", "display", "doctor", "history", "maintenance", "spark", *FRONT},
    }
)


def part_of(layer: str) -> str:
    return layer or "front"  # the package itself has the names of its front


IMPURE_MODULES = {
    "asyncio",
    "concurrent",
    "io",
    "lance",
    "logging",
    "multiprocessing",
    "obstore",
    "os",
    "pathlib",
    "random",
    "secrets",
    "shutil",
    "socket",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
}
IMPURE_CALLS = {"open", "print", "input", "uuid.uuid1", "uuid.uuid4", "datetime.now", "datetime.utcnow", "date.today"}


def upward_imports(module: Module) -> Iterator[str]:
    part = part_of(module.layer)
    for imported in module.imports():
        if imported.is_for_types_only:
            continue  # a name in an annotation depends on nothing: an error may carry facts from above it
        for target in _imported_parts(imported):
            if target not in MAY_IMPORT[part] | {part}:
                yield f"{module.name}:{imported.line} imports {target}"


def _imported_parts(imported: Import) -> set[str]:
    if imported.module == "conroi":  # `from conroi import errors`, or public names
        return {name if name in MAY_IMPORT else "front" for name in imported.names or ("",)}
    return {part_of(imported.module.split(".")[1])} if imported.module.startswith("conroi.") else set()


def impurities(module: Module) -> Iterator[str]:
    for imported in module.imports():
        if imported.module.partition(".")[0] in IMPURE_MODULES:
            yield f"{module.name}:{imported.line} imports {imported.module}"
    for statement in module.tree.body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "__name__ == '__main__'":
            continue  # a module that is run is no longer part of the core
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and _touches_the_world(ast.unparse(node.func)):
                yield f"{module.name}:{node.lineno} calls {ast.unparse(node.func)}"


def _touches_the_world(called: str) -> bool:
    return called in IMPURE_CALLS or called.endswith(tuple(f".{name}" for name in IMPURE_CALLS if "." in name))


def test_every_part_has_its_place():
    assert {part_of(module.layer) for module in conroi_modules()} <= MAY_IMPORT.keys()


def test_imports_point_down():
    assert not [stray for module in conroi_modules() for stray in upward_imports(module)]


def test_the_core_touches_no_disk_clock_or_chance():
    assert not [stray for module in conroi_modules() if module.layer in PURE for stray in impurities(module)]


def test_no_part_is_above_itself():
    for part, below in MAY_IMPORT.items():
        assert not [other for other in below - {part} if part in MAY_IMPORT[other]], part


@pytest.mark.parametrize(
    "source",
    [
        "from conroi.commit.loop import commit",
        "import conroi.storage",
        "from conroi import storage",
        "import conroi",
        "from conroi import Table",
        "def late():\n  from conroi.operations import Append",
    ],
)
def test_an_import_that_points_up_is_caught(source: str):
    assert list(upward_imports(Module.parse("conroi.format.bad", source)))


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "from time import monotonic",
        "import lance.file",
        "data = open('x').read()",
        "import uuid\nname = uuid.uuid4()",
        "import datetime\nnow = datetime.datetime.now()",
    ],
)
def test_an_impure_core_module_is_caught(source: str):
    assert list(impurities(Module.parse("conroi.format.bad", source)))
