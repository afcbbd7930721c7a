"""What is public stays: names, parameters and defaults, commands and options, rule ids, kinds of findings, error types.

`public_surface.txt` is the record. A line that is gone or changed breaks programs of users: keep the old name as an
alias. A line that is new is added by `python -m tests.static.test_public_surface`, and reviewed with the change.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import conroi
from conroi.commit.execution import WriteOptions
from conroi.conflicts.catalog import CATALOG
from tests.support.public_calls import make

RECORD = Path(__file__).with_name("public_surface.txt")
MODULES = (
    *(
        "conroi",
        "conroi.testing",
        "conroi.testing.simulation",
        "conroi.spark",
        "conroi.stores",
        "conroi.format",
        "conroi.namespace",
    ),
    "conroi.catalog.namespace",
)
IN_CONFIGURATIONS = (
    *("conroi.catalog.namespace:ConroiNamespace", "conroi.spark:register", "conroi.stores:FileLock"),
    *("conroi.format:decode_transaction", "pyspark_conroi:DefaultSource"),
)
"""Paths that users write into settings and programs."""


def surface() -> Iterator[str]:
    for name in MODULES:
        module = importlib.import_module(name)
        for each in sorted(getattr(module, "__all__", ())):
            yield from _described(f"{name}.{each}", getattr(module, each))
    for path in IN_CONFIGURATIONS:
        module, _, name = path.partition(":")
        assert hasattr(importlib.import_module(module), name), path
        yield f"path {path}"
    with tempfile.TemporaryDirectory() as folder:
        kinds: set[type] = {type(each) for each in make(Path(folder)).objects.values() if not inspect.ismodule(each)}
        for kind in sorted(kinds, key=lambda kind: (kind.__name__, kind.__module__)):
            yield from _members(kind.__name__, kind)
    yield f"keywords of verbs: {' '.join(sorted(WriteOptions.__annotations__))}"
    yield from (f"rule {name}" for name in sorted(CATALOG))
    kinds_of_findings = importlib.import_module("conroi.doctor.kinds").KINDS
    yield from (f"finding {name} {kind.severity}" for name, kind in sorted(kinds_of_findings.items()))
    yield from _commands()


def _described(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__mro__[1:] if issubclass(base, conroi.ConroiError))
        yield f"class {name}" + (f" is {bases}" if bases else "")
        yield from _members(name, value)
    elif callable(value):
        yield f"{name}{_parameters(value)}"
    else:
        yield name


def _members(name: str, kind: type) -> Iterator[str]:
    for member in sorted(dir(kind)):
        value = inspect.getattr_static(kind, member)
        if member.startswith("_") or getattr(value, "__module__", "conroi").split(".")[0] not in (
            "conroi",
            "functools",
        ):
            continue
        found = getattr(kind, member)
        yield f"{name}.{member}" + (_parameters(found) if inspect.isroutine(found) else "")


def _parameters(function: Any) -> str:
    """Names, kinds and defaults. Annotations may be spelled in another way without any harm."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return "(…)"
    shown = [each.replace(annotation=inspect.Parameter.empty) for each in parameters if each.name != "self"]
    return re.sub(r"<[^<>]* at 0x[0-9a-f]+>", "…", str(inspect.Signature(shown)))


def _commands() -> Iterator[str]:
    typer = importlib.import_module("typer")
    root = typer.main.get_command(importlib.import_module("conroi.cli.commands").app)

    def visit(path: str, command: Any) -> Iterator[str]:
        options = sorted(option for each in command.params for option in (*each.opts, *each.secondary_opts))
        yield f"command {path}: {' '.join(options)}"
        for name, inside in sorted(getattr(command, "commands", {}).items()):
            yield from visit(f"{path} {name}", inside)

    yield from visit("conroi", root)


def differences() -> tuple[list[str], list[str]]:
    """Recorded lines that are gone, and lines that are not recorded."""
    recorded, found = RECORD.read_text(encoding="utf-8").splitlines(), list(surface())
    return [line for line in recorded if line not in found], [line for line in found if line not in recorded]


def test_the_public_surface_is_the_recorded_one() -> None:
    gone, new = differences()
    assert not gone, "\n".join(["gone or changed:", *gone])
    assert not new, "\n".join(["not recorded yet (.venv/bin/python -m tests.static.test_public_surface):", *new])
    assert len(RECORD.read_text(encoding="utf-8").splitlines()) > 800


if __name__ == "__main__":
    removed, added = differences()
    if removed and sys.argv[1:] != ["--accept-removed"]:
        sys.exit("\n".join(["These lines are gone or changed. --accept-removed records that:", *removed]))
    RECORD.write_text("\n".join(dict.fromkeys(surface())) + "\n", encoding="utf-8")
    print(f"added {len(added)} lines, removed {len(removed)}")
