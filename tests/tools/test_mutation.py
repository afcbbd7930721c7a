"""Mutation testing: what is changed, what is not, and that tests which look at little notice little."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source import REPOSITORY
from tools.mutants import Mutant, mutants, mutated, sample

SOURCE = '''
"""Sizes."""
LIMIT = 3
START = 7


def is_small(number: int) -> bool:
    return number < LIMIT


def first() -> int:
    return START


def countdown(number: int) -> int:
    while number > 0:
        number -= 1
    return number


def unused(number: int) -> int:
    return -number
'''
TESTS = """
from shapes.sizes import countdown, first, is_small

def test_small_numbers():
    assert is_small(1)
    assert not is_small(9)

def test_the_first():
    assert first() == 7

def test_countdown():
    assert countdown(2) == 0
"""
RESULTS = {
    "<module>: constant: 3 → 4 #1": "survived",  # no test asks for 3
    "<module>: constant: 7 → 8 #1": "killed",
    "is_small: return: return number < LIMIT → return not number < LIMIT #1": "killed",
    "is_small: comparison: number < LIMIT → number <= LIMIT #1": "survived",
    "first: return: return START → return None #1": "killed",
    "countdown: condition: while number > 0: → while not number > 0: #1": "killed",
    "countdown: comparison: number > 0 → number >= 0 #1": "killed",
    "countdown: constant: 0 → 1 #1": "killed",
    "countdown: statement removed: number -= 1 → pass #1": "timeout",  # it never ends
    "countdown: arithmetic: number -= 1 → number += 1 #1": "timeout",
    "countdown: constant: 1 → 2 #1": "survived",  # an even number
    "countdown: return: return number → return None #1": "killed",
    "unused: return: return -number → return None #1": "untested",
    "unused: arithmetic: -number → number #1": "untested",
}
"""By hand: every mutant, and what becomes of it."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A project, and what the command says of it."""
    root = tmp_path_factory.mktemp("project")
    for file, text in {
        "src/shapes/__init__.py": "",
        "src/shapes/sizes.py": SOURCE,
        "tests/test_sizes.py": TESTS,
        "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["src"]\naddopts = ["--import-mode=importlib"]\n',
    }.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text, "utf-8")
    options = ["--root", str(root), "--limit", "0.3", "--size", "shapes=100", "--", "tests"]
    command = [sys.executable, "-m", "tools.mutation", *options]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return root, done.stdout


def test_each_mutant_ends_as_expected(run: tuple[Path, str]) -> None:
    lines = [json.loads(line) for line in (run[0] / ".mutants/results.jsonl").read_text("utf-8").splitlines()]
    found = {line["id"].partition(":")[2]: line["result"] for line in lines if line["id"] != "control"}
    assert found == RESULTS
    assert {line["result"] for line in lines if line["id"] == "control"} <= {"survived", "untested"}


def test_the_report_counts_and_names_survivors(run: tuple[Path, str]) -> None:
    assert "| `shapes` | 14 | 9 | 64.3% | 9 | 64.3% |" in run[1]
    assert "shapes/sizes.py:unused: arithmetic: -number → number #1 (untested)" in run[1]
    assert "of which 0 failed" in run[1]


def changes(source: str) -> list[str]:
    """The mutants of a module, without their place."""
    return [f"{mutant.kind}: {mutant.before} → {mutant.after}" for mutant in mutants(source, "m.py")]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a and not b", ["boolean: a and (not b) → a or not b", "not removed: not b → b"]),
        ("x = a[i:]", ["slice: _[i:] → _[i + 1:]"]),
        ("x = f(a, b)", ["arguments swapped: f(a, b) → f(b, a)"]),
        ("def f(a=True): pass", ["default: True → False"]),
        ("def f():\n    raise E()", ["raise removed: raise E() → pass"]),
        ("def f():\n    g()", ["call removed: g() → pass"]),
        (
            "x = isinstance(a, A | B)",
            ["type: isinstance(a, A | B) → isinstance(a, B)", "type: isinstance(a, A | B) → isinstance(a, A)"],
        ),
        (
            "def f():\n    try:\n        g()\n    except E:\n        x = None",
            ["call removed: g() → pass", "handler removed: except E: x = None → except E: raise"],
        ),
        ("x = [a for a in b if a > c]", ["condition: for a in b if a > c → for a in b if not a > c",
                                         "comparison: a > c → a >= c"]),
    ],
)  # fmt: skip
def test_what_is_changed(source: str, expected: list[str]) -> None:
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A text."""\nx = f"{n + 1} rows"',
        "def f(a: 'int | None' = None) -> A | B: ...",
        "_log.info('put', 1 + n)",
        "assert a == b",
        "x = InvalidInputError(a + b, hint='again')",
        "def __repr__(self):\n    return 'x' + y",
        "@dataclass(frozen=True)\nclass A: ...",
        "Way: TypeAlias = Literal['a', 'b']",
    ],
)
def test_what_is_not_changed(source: str) -> None:
    assert changes(source) == []


def test_a_mutant_is_found_again_after_a_change_elsewhere() -> None:
    mutant = next(each for each in mutants(SOURCE, "m.py") if each.where == "unused" and each.kind == "arithmetic")
    assert mutated("import os\n\n" + SOURCE, mutant) is not None
    assert mutated(SOURCE.replace("-number", "number"), mutant) is None


def test_a_sample_is_stratified_and_the_same_for_one_seed() -> None:
    def of(path: str, count: int) -> list[Mutant]:
        return [Mutant(path, "f", "constant", str(n), "0", 1, (n,), (), False) for n in range(count)]

    by_module = {"a.py": of("a.py", 300), "b.py": of("b.py", 100), "c.py": of("c.py", 0)}
    chosen = sample(by_module, 40, seed=1)
    assert [sum(mutant.path == path for mutant in chosen) for path in by_module] == [30, 10, 0]
    assert chosen == sample(by_module, 40, seed=1) != sample(by_module, 40, seed=2)
    assert len(sample(by_module, 1000, seed=1)) == 400
