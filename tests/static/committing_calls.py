"""Find the places where a module could make pylance commit."""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import lance

from tests.static.pylance_api import COMMITTING_NAMES, EXAMINED_MODULES
from tests.support.source import Import, Module, conroi_module_names


@dataclass(frozen=True)
class Finding:
    """A suspicious piece of code; `code` and `module` together are what an exception is made for."""

    module: str
    code: str
    line: int

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.code}"


def modules_near_pylance(modules: Iterable[Module]) -> list[Module]:
    """The modules that import pylance, or conroi's own modules that do, or those that import these, and so on.

    Any other module cannot get hold of a pylance object by name, and calls its own `update` and `delete` as it likes.
    """
    every = {module.name: module for module in modules}
    imported = {name: set(_imported_modules(module, every)) for name, module in every.items()}
    near = {name for name, targets in imported.items() if any(_is_pylance(target) for target in targets)}
    while grown := {name for name, targets in imported.items() if targets & near} - near:
        near |= grown
    return [module for name, module in every.items() if name in near]


def find_commits(module: Module) -> Iterator[Finding]:
    """Everything in a module that names one of pylance's ways to commit, in the order of the file."""
    found = [*_imported_commits(module), *_attribute_commits(module), *_commits_by_string(module)]
    return iter(sorted(found, key=lambda finding: finding.line))


def _imported_commits(module: Module) -> Iterator[Finding]:
    for imported in module.imports():
        if not _is_pylance(imported.module):
            continue
        reached = [imported.module, *(f"{imported.module}.{name}" for name in imported.names)]
        if any(_is_unexamined(name) for name in reached) or {*COMMITTING_NAMES, "*"} & set(imported.names):
            yield Finding(module.name, _import_text(imported), imported.line)


def _is_unexamined(name: str) -> bool:
    """Whether this is a module of pylance, or below one, that was not reviewed."""
    return name not in EXAMINED_MODULES and ".".join(name.split(".")[:2]) in _pylance_modules() - EXAMINED_MODULES


@cache
def _pylance_modules() -> frozenset[str]:
    return frozenset(f"lance.{found.name}" for found in pkgutil.iter_modules(lance.__path__))


def _attribute_commits(module: Module) -> Iterator[Finding]:
    harmless_roots = _other_imports(module)
    own_methods = _accesses_of_own_methods(module)
    for node in module.attributes():
        if _is_unexamined(ast.unparse(node)):
            yield Finding(module.name, ast.unparse(node), node.lineno)
        if node.attr not in COMMITTING_NAMES or id(node) in own_methods:
            continue
        if isinstance(node.value, ast.Name) and node.value.id in harmless_roots:
            continue  # such as np.delete
        yield Finding(module.name, ast.unparse(node), node.lineno)


def _commits_by_string(module: Module) -> Iterator[Finding]:
    """`getattr(dataset, "delete")`, and any other getattr whose name is not written out."""
    for node in module.nodes:
        if isinstance(node, ast.Call) and _called_name(node) in ("getattr", "methodcaller", "attrgetter"):
            position = 1 if _called_name(node) == "getattr" else 0
            name = node.args[position] if len(node.args) > position else None
            if not isinstance(name, ast.Constant) or name.value in COMMITTING_NAMES:
                yield Finding(module.name, ast.unparse(node), node.lineno)


def _called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _other_imports(module: Module) -> set[str]:
    """The names that stand for whole modules other than pylance's: `import numpy as np`, `from conroi import verbs`."""
    names: set[str] = set()
    for node in module.nodes:
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name for alias in node.names if not _is_pylance(alias.name)}
        elif isinstance(node, ast.ImportFrom):
            own = conroi_module_names()
            names |= {alias.asname or alias.name for alias in node.names if f"{node.module}.{alias.name}" in own}
    return names


def _accesses_of_own_methods(module: Module) -> set[int]:
    """`self.delete` in a class that has a `delete` of its own and does not inherit from pylance."""
    own: set[int] = set()
    for node in module.nodes:
        if not isinstance(node, ast.ClassDef) or any("lance" in ast.unparse(base).lower() for base in node.bases):
            continue
        methods = {inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)}
        own |= {
            id(inner)
            for inner in ast.walk(node)
            if isinstance(inner, ast.Attribute)
            and inner.attr in methods
            and isinstance(inner.value, ast.Name)
            and inner.value.id in ("self", "cls")
        }
    return own


def _imported_modules(module: Module, known: Collection[str]) -> Iterator[str]:
    for imported in module.imports():
        submodules = [name for name in imported.names if f"{imported.module}.{name}" in known]
        yield from (f"{imported.module}.{name}" for name in submodules)
        if imported.module != "conroi" or len(submodules) < len(imported.names):
            yield imported.module  # `from conroi import operations` does not take anything from the front door


def _is_pylance(name: str) -> bool:
    return name == "lance" or name.startswith("lance.")


def _import_text(imported: Import) -> str:
    names = ", ".join(imported.names)
    return f"from {imported.module} import {names}" if names else f"import {imported.module}"
