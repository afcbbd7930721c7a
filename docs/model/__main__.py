"""Run the models in full and print their state counts: `python -m docs.model [publish|group] [name …]`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

from docs.model import group_cases, publish_cases
from docs.model.group_commit import GroupCommit
from docs.model.publish import Publish
from docs.model.search import Found, Search


def run(model: Publish | GroupCommit, *, is_live: bool = True) -> Found:
    return Search(model, most=20_000_000).run(is_live=is_live)  # pyright: ignore[reportArgumentType]


def show(title: str, name: str, found: Found) -> None:
    print(f"{title:14} {name:46} {found}", flush=True)


def main(arguments: list[str]) -> int:
    """Everything, or the named configurations and bugs; of a single one also the story."""
    which, names = arguments[:1], arguments[1:]
    faults = 0
    parts: dict[str, tuple[Mapping[str, Publish | GroupCommit], ...]] = {
        "publish": (publish_cases.FULL, publish_cases.SEARCHED),
        "group": (group_cases.FULL, group_cases.SEARCHED),
    }
    bugs = {"publish": publish_cases.BUGS, "group": group_cases.BUGS}
    for part in which or list(parts):
        full, searched = parts[part]
        for name in names or [*full, *bugs[part]]:
            if name in full:
                found = run(full[name])
                faults += bool(found.wrong) or not found.is_complete
                show(part, name, found)
            else:
                found = run(replace(searched[bugs[part][name][0]], bug=name), is_live=name in group_cases.STUCK)
                faults += not found.wrong
                show(f"{part} bug", name, found)
            if names:
                print(*(f"    {step}" for step in found.story), sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
