"""Write the pages of docs/ that are made from the code; with --check, only say whether they are up to date."""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import conroi
from conroi import errors, front
from tools import cli_page, conformance_table, merge_table
from tools import conflicts_page as conflicts
from tools import doctor_page as doctor

DOCS = Path(__file__).parents[1] / "docs"

_API_INTRODUCTION = """\
<!-- Made by `make docs` from the docstrings. Do not edit by hand. -->
# What you can call

`import conroi` gives everything below. `Table` is an immutable snapshot: each verb returns the new one.
"""


def api_page() -> str:
    """Every public name with its signature and docstring."""
    public = {name: getattr(conroi, name) for name in front.__all__ if not name.startswith("_")}
    functions = {name: item for name, item in public.items() if inspect.isfunction(item)}
    classes = {name: item for name, item in public.items() if inspect.isclass(item) and not _is_error(item)}
    lines = [_API_INTRODUCTION, "## Functions"]
    for name, item in functions.items():
        lines += ["", f"### `{name}`", "", *_described(name, item)]
    for name, item in classes.items():
        lines += ["", f"## `{name}`", "", _text(item), *_members(item)]
    lines += ["", "## Errors", "", "```text", _error_tree(), "```", ""]
    return "\n".join(lines)


PAGES: dict[str, Callable[[], str]] = {
    "api.md": api_page,
    "conflicts.md": conflicts.page,
    "doctor.md": doctor.page,
    "cli.md": cli_page.page,
    "spark.md": lambda: conformance_table.with_section((DOCS / "spark.md").read_text("utf-8")),
    "branches.md": lambda: merge_table.with_section((DOCS / "branches.md").read_text("utf-8")),
}


def stale_pages(folder: Path) -> list[Path]:
    """The pages that differ from what the code says now."""
    return [
        folder / name
        for name, render in PAGES.items()
        if not (folder / name).exists() or (folder / name).read_text("utf-8") != render()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description="Write the generated pages of docs/.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is old")
    options = parser.parse_args(arguments)
    for page in stale_pages(DOCS):
        if options.check:
            print(f"{page.name} is old: run make docs")
            return 1
        page.write_text(PAGES[page.name](), "utf-8")
        print(f"wrote {page.name}")
    return 0


def _is_error(item: type) -> bool:
    return issubclass(item, Exception)


def _members(item: type) -> Iterator[str]:
    for name, member in sorted(inspect.getmembers(item)):
        if name.startswith("_") or not inspect.getdoc(member) or _is_inherited_from_builtins(item, name):
            continue
        if inspect.isfunction(member):
            yield from ("", f"### `{item.__name__}.{name}`", "", *_described(name, member))
        elif isinstance(member, property):
            yield from ("", f"### `{item.__name__}.{name}`", "", _text(member))


def _is_inherited_from_builtins(item: type, name: str) -> bool:
    owner = next(parent for parent in item.__mro__ if name in vars(parent))
    return not owner.__module__.startswith("conroi")


def _described(name: str, function: Callable[..., object]) -> list[str]:
    return ["```python", _signature(name, function), "```", "", _text(function)]


def _signature(name: str, function: Callable[..., object]) -> str:
    """As it stands in the source, without self."""
    definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(definition, ast.FunctionDef)
    arguments = ast.unparse(definition.args).removeprefix("self").removeprefix(", ")
    returns = f" -> {ast.unparse(definition.returns)}" if definition.returns else ""
    return f"{name}({arguments}){returns}"


def _text(item: object) -> str:
    """The docstring, its examples as code."""
    paragraphs = (inspect.getdoc(item) or "").split("\n\n")
    return "\n\n".join(f"```python\n{part}\n```" if part.startswith(">>>") else part for part in paragraphs)


def _error_tree() -> str:
    """The drawing in the docstring of conroi.errors."""
    return inspect.cleandoc((errors.__doc__ or "").split("::\n", 1)[1].split("\n\nNobody", 1)[0])


if __name__ == "__main__":
    sys.exit(main())
