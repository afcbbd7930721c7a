"""The source of conroi as syntax trees, for tests that read the code instead of running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Import:
    """A module that is imported, the names taken from it (none for `import x`), and where."""

    module: str
    names: tuple[str, ...]
    line: int
    is_for_types_only: bool


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str
    tree: ast.Module

    @staticmethod
    def parse(name: str, source: str) -> Module:
        return Module(name, ast.parse(source, name))

    @property
    def layer(self) -> str:
        """The package or module directly below conroi that this file belongs to; "" for conroi itself."""
        return self.name.removeprefix("conroi").removeprefix(".").partition(".")[0]

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of its syntax tree: many tests look at each of a million nodes."""
        return tuple(ast.walk(self.tree))

    def imports(self) -> tuple[Import, ...]:
        """Every import, wherever it stands."""
        return self._imports

    @cached_property
    def _imports(self) -> tuple[Import, ...]:
        return tuple(self._found_imports())

    def _found_imports(self) -> Iterator[Import]:
        type_only = {id(inner) for node in self.nodes if _asks_type_checking(node) for inner in ast.walk(node)}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, (), node.lineno, id(node) in type_only)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name}:{node.lineno}: write the whole name of the module"
                names = tuple(alias.name for alias in node.names)
                yield Import(node.module or "", names, node.lineno, id(node) in type_only)

    def attributes(self) -> Iterator[ast.Attribute]:
        """Every `x.name` in the file."""
        return (node for node in self.nodes if isinstance(node, ast.Attribute))


def _asks_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


@cache
def conroi_modules() -> tuple[Module, ...]:
    """Every module of conroi, generated ones left out."""
    root = REPOSITORY / "src"
    files = sorted(file for file in (root / "conroi").rglob("*.py") if not file.name.endswith("_pb2.py"))
    assert files, "there is no source to look at"
    return tuple(Module.parse(_module_name(file.relative_to(root)), file.read_text("utf-8")) for file in files)


@cache
def conroi_module_names() -> frozenset[str]:
    """The full names of all of them."""
    return frozenset(module.name for module in conroi_modules())


def _module_name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")
