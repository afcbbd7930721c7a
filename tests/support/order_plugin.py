"""The order of tests: what starts a Java machine comes first, in two test processes.

Work stealing gives each test process a connected part of the list and takes from the ends of the longest parts. So the
tests of the shared Spark session stand at the head of the first part, which keeps them in one process, and those that
start a Spark program of their own at the head of the second. Left in one process, they would be what a run waits for.
"""

from __future__ import annotations

from pathlib import Path

import pytest

PROGRAMS = ("tests/spark/", "tests/examples/test_orders_pipeline.py", "tests/cli/test_remote.py")


def ordered(paths_and_fixtures: list[tuple[str, bool]], processes: int) -> list[int]:
    """The new order, as indices. Of each test: its path, and whether it uses the shared session."""
    all_tests = range(len(paths_and_fixtures))
    shared = [index for index in all_tests if paths_and_fixtures[index][1]]
    programs = [
        index for index in all_tests if not paths_and_fixtures[index][1] and _is_program(paths_and_fixtures[index][0])
    ]
    placed = {*shared, *programs}
    rest = [index for index in all_tests if index not in placed]
    fill = max(0, len(paths_and_fixtures) // processes - len(shared)) if processes > 1 else 0
    return [*shared, *rest[:fill], *programs, *rest[fill:]]


def _is_program(path: str) -> bool:
    return path.startswith(PROGRAMS)


@pytest.hookimpl(trylast=True)  # after the soak tests are taken out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    given: dict[str, int] = getattr(config, "workerinput", {})
    facts = [(_relative(item, config.rootpath), "spark" in getattr(item, "fixturenames", ())) for item in items]
    items[:] = [items[index] for index in ordered(facts, int(given.get("workercount", 1)))]


def _relative(item: pytest.Item, root: Path) -> str:
    return item.path.relative_to(root).as_posix() if item.path.is_relative_to(root) else item.path.as_posix()
