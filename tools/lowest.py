"""Show the installed version of each dependency beside the lowest that pyproject.toml allows; 1 if one is higher.

An extra that other groups of `pyproject.toml` also ask for is compared with its own floor.
"""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

EXTRAS = ("postgres", "dynamodb", "clickhouse", "duckdb", "cli")
"""What `make lowest` installs; Spark has a ring of its own."""


def floors(project: dict[str, list[str]] | dict[str, object]) -> dict[str, Version]:
    """By name the lowest version that is allowed.

    >>> floors({"dependencies": ["pyarrow>=20", "x>=1.5,<2"], "optional-dependencies": {}})
    {'pyarrow': <Version('20')>, 'x': <Version('1.5')>}
    """
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    asked = [*project["dependencies"], *(line for extra in EXTRAS for line in extras.get(extra, []))]  # pyright: ignore
    found = [Requirement(line) for line in asked if not line.startswith("conroi[")]
    return {each.name: min(Version(s.version) for s in each.specifier if s.operator == ">=") for each in found}


def main() -> int:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    higher: list[str] = []
    for name, floor in floors(project).items():
        try:
            found = Version(version(name))
        except PackageNotFoundError:
            higher.append(f"{name} is not installed")
            continue
        print(f"{name:12} {floor!s:10} {found}")
        # The first release of a series counts: >=20 is met by 20.0.0.
        if found.release[: len(floor.release)] != floor.release:
            higher.append(f"{name} {found} is not the lowest: {floor} is allowed")
    print("\n".join(higher) or "All are the lowest that are allowed.")
    return 1 if higher else 0


if __name__ == "__main__":
    sys.exit(main())
