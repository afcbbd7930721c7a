"""The ring: every supported release of pylance, each in an environment of its own, against conroi and each other.

    python -m tools.ring                      all tested releases; writes docs/compatibility.md
    python -m tools.ring --short              the oldest only, with the newest beside it; writes nothing (CI)
    python -m tools.ring --releases 15.0.0b1  these, and the tested ones for what needs two
    python -m tools.ring --spark              the Spark suite on each supported pyspark instead

For each release: the interop suite, the conflict pairs (each operation after each other one, answered by pylance and by
conroi), then for all of them what one writes and another uses, and a soak in which two releases and conroi write one
table.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from conroi.data.pylance import TESTED
from tests.ring.releases import SECONDS, VARIABLE
from tests.support.sampling import ALL, SAMPLE
from tools.overlays import overlay, pylance_overlay

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "compatibility.md"
RELEASES = {12: "12.0.0", 13: "13.0.0", 14: "14.0.2"}
"""Of each tested major version the newest release."""
PYSPARK = ("4.1.4", "4.2.1", "4.3.0")
PAIRS = "tests/interop/test_conflict_matrix.py"
SUITES: dict[str, Sequence[str]] = {
    "interop": ("tests/interop", "tests/data/test_pylance.py", f"--deselect={PAIRS}"),
    "conflict pairs": (PAIRS,),
    "API review": ("tests/static/test_pylance_never_commits.py",),
}
TOGETHER: dict[str, Sequence[str]] = {
    "written by one, used by another": ("tests/ring/test_releases.py", "-k", "another"),
    "two releases and conroi on one table": ("tests/ring/test_releases.py", "-k", "two_releases"),
}
SPARK_SUITE = ("tests/spark",)


@dataclass(frozen=True)
class Result:
    """What pytest said of one suite in one environment."""

    passed: int
    failed: int
    seconds: float

    @property
    def is_good(self) -> bool:
        return self.passed > 0 and not self.failed

    def __str__(self) -> str:
        return f"{self.passed} passed" + (f", **{self.failed} failed**" if not self.is_good else "")


def summary(output: str, seconds: float) -> Result:
    """The counts of the last line of pytest; a run that broke off is a failure.

    >>> summary("3 failed, 12 passed, 2 errors in 1.00s", 1.0)
    Result(passed=12, failed=5, seconds=1.0)
    >>> summary("Killed", 1.0).is_good
    False
    """
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", _last_line(output))}
    return Result(counts.get("passed", 0), counts.get("failed", 0) + counts.get("error", 0), seconds)


def _last_line(output: str) -> str:
    return next((line for line in reversed(output.splitlines()) if re.search(r" in [\d.]+s", line)), "")


def run(python: Path, arguments: Sequence[str], more: Mapping[str, str], log: Path, jobs: int) -> Result:
    """One suite with one interpreter. The warning about an untested release is for users, not for this run."""
    started = time.monotonic()
    command = [
        str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header",
        "-W", "ignore::conroi.errors.UntestedPylanceWarning", *(["-n", str(jobs)] if jobs > 1 else []), *arguments,
    ]  # fmt: skip
    environment = {**os.environ, **more, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(done.stdout)
    result = summary(done.stdout, time.monotonic() - started)
    if not result.is_good:
        print(done.stdout[-6000:])
    return result


def ring(
    folder: Path, releases: Sequence[str], suites: Sequence[str], jobs: int, seconds: float, more: Mapping[str, str]
) -> list[list[str]]:
    """Rows of the table: what was run, with which release, the counts."""
    pythons = {release: str(pylance_overlay(folder, release)) for release in sorted({*releases, *RELEASES.values()})}
    rows: list[list[str]] = []
    for release in releases:
        for suite in suites:
            rows.append(
                [
                    f"pylance {release}",
                    suite,
                    *_told(
                        run(
                            Path(pythons[release]),
                            SUITES[suite],
                            more,
                            folder / "logs" / f"{release} {suite}.log",
                            jobs,
                        )
                    ),
                ]
            )
            print(" | ".join(rows[-1]), flush=True)
    beside = {name: python for name, python in pythons.items() if len(releases) > 2 or name in _ends(releases)}
    for suite, arguments in TOGETHER.items():
        beside_each_other = {VARIABLE: json.dumps(beside), SECONDS: str(seconds)}
        result = run(
            Path(pythons[max(releases, key=_key)]), arguments, beside_each_other, folder / "logs" / f"{suite}.log", 1
        )
        rows.append([", ".join(beside), suite, *_told(result)])
        print(" | ".join(rows[-1]), flush=True)
    return rows


def spark(folder: Path, releases: Sequence[str], arguments: Sequence[str]) -> list[list[str]]:
    """The Spark suite with each release of pyspark."""
    rows: list[list[str]] = []
    for release in releases:
        python = overlay(folder / f"pyspark-{release}", [f"pyspark=={release}"])
        result = run(python, arguments or SPARK_SUITE, {}, folder / "logs" / f"pyspark {release}.log", 1)
        rows.append([f"pyspark {release}", "Spark suite", *_told(result)])
        print(" | ".join(rows[-1]), flush=True)
    return rows


def _told(result: Result) -> list[str]:
    return [str(result), f"{result.seconds:.0f} s"]


def _key(release: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", release)]


def _ends(releases: Sequence[str]) -> set[str]:
    return {*releases, max(RELEASES.values(), key=_key)}


def page(rows: Sequence[Sequence[str]]) -> str:
    """The text of docs/compatibility.md between its marks."""
    lines = ["| with | suite | result | took |", "|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join([f"Run on {datetime.now(UTC):%Y-%m-%d}.", "", *lines])


def write_page(rows: Sequence[Sequence[str]]) -> None:
    begin, end = "<!-- ring -->", "<!-- end of ring -->"
    head, _, rest = PAGE.read_text().partition(begin)
    PAGE.write_text(f"{head}{begin}\n{page(rows)}\n{end}{rest.partition(end)[2]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="the oldest release, and the newest beside it")
    parser.add_argument("--releases", nargs="+", default=[RELEASES[major] for major in TESTED])
    parser.add_argument("--spark", nargs="*", metavar="RELEASE", help="the Spark suite on each pyspark, or on these")
    parser.add_argument("--folder", type=Path, default=ROOT / ".ring", help="where the environments and logs are")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the mixed soak writes")
    parser.add_argument("--jobs", type=int, default=2)
    given, more = parser.parse_known_args()
    if given.spark is not None:
        rows = spark(given.folder, given.spark or PYSPARK, more)
    elif given.short:
        rows = ring(given.folder, [RELEASES[TESTED[0]]], list(SUITES), given.jobs, min(given.seconds, 5.0), {})
    else:
        rows = ring(given.folder, given.releases, list(SUITES), given.jobs, given.seconds, {SAMPLE: ALL})
        if set(RELEASES.values()) <= set(given.releases):
            write_page(rows)
    return int(any("failed" in row[2] or row[2].startswith("0 ") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
