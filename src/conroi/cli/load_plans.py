"""Load plans: several loads in one transaction, described in a small TOML file."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conroi.cli.loads import Load
from conroi.cli.sources import find
from conroi.cli.text_files import TextOptions
from conroi.cli.usage import UsageProblem

_TOP = {"message", "author", "once", "table"}
_TABLE = {"name", "files", "mode", "on", "key", "create", "evolve", "format", "delimiter", "encoding", "types"}


@dataclass(frozen=True)
class LoadPlan:
    """What such a file says."""

    loads: tuple[Load, ...]
    message: str | None = None
    author: str | None = None
    once: str | None = None


def read_plan(path: str) -> LoadPlan:
    """The plan in a file; the files that it names are beside it."""
    try:
        content = tomllib.loads(Path(path).read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UsageProblem(f"{path} is not TOML: {error}.") from error
    _check(content, _TOP, path)
    tables = content.get("table", [])
    if not isinstance(tables, list) or not tables:
        raise UsageProblem(f"{path} names no table. Write [[table]], and below it name and files.")
    loads = tuple(_load(each, path) for each in tables)  # pyright: ignore[reportUnknownVariableType]
    return LoadPlan(loads, content.get("message"), content.get("author"), content.get("once"))


def _load(entry: dict[str, Any], path: str) -> Load:
    _check(entry, _TABLE, path)
    if not isinstance(entry.get("name"), str) or not entry.get("files"):
        raise UsageProblem(f"A [[table]] of {path} says no name or no files.")
    folder = os.path.dirname(path)
    files = [name if "://" in name else os.path.join(folder, name) for name in _words(entry["files"])]
    types: Any = entry.get("types", {})
    if not isinstance(types, dict):
        raise UsageProblem(
            f"A [[table]] of {path} says types that are no table.", hint='Write types = { zip = "string" }.'
        )
    given = {str(name): str(type_) for name, type_ in types.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    text = TextOptions(entry.get("delimiter"), entry.get("encoding"), given).checked()
    return Load(
        name=entry["name"],
        sources=tuple(each.with_text(text) for each in find(files, entry.get("format"))),
        mode=entry.get("mode", "append"),
        on=_words(entry.get("on")),
        key=_words(entry.get("key")),
        creates=bool(entry.get("create", False)),
        evolve=bool(entry.get("evolve", False)),
    )


def _words(value: Any) -> tuple[str, ...]:
    """One word, or a list of them."""
    return () if value is None else (value,) if isinstance(value, str) else tuple(str(each) for each in value)


def _check(entry: dict[str, Any], known: set[str], path: str) -> None:
    odd = sorted(set(entry) - known)
    if odd:
        raise UsageProblem(
            f"{path} says {', '.join(odd)}, which is not known here. Known are {', '.join(sorted(known))}."
        )
