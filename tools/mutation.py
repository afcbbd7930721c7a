"""Mutation testing of the packages that decide conflicts and commit: does a test notice a small change of the code?

::

    python -m tools.mutation            a sample of 1,000 mutants; about an hour on one core
    python -m tools.mutation --again    only those that survived, with the tests that are there now
    python -m tools.mutation --report   the results that are there

The sample is chosen by a seed, in proportion to the mutants of each module. For each mutant the tests that execute the
changed line run until one fails. Tests that need a server are left out, unless `--servers` is given.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.mutants import Mutant, mutants, sample, used_names
from tools.mutation_runs import IMPORT, Job, Outcome, Record, Runner, Session, preload, recorded

SIZES = ("conroi/conflicts=400", "conroi/commit=250", "conroi/catalog=350")
SEED = 21
TESTS = (
    "tests/conflicts", "tests/commit", "tests/catalog", "tests/transaction", "tests/lake", "tests/versions",
    "tests/snapshots",
    *(f"tests/branches/test_{name}.py" for name in ("branches", "forks", "identity", "lake_tags", "lineage", "merge",
                                                    "merge_names", "moved_rows", "slow_merges")),
    "tests/interop/test_wire_commits.py",
    *(f"tests/maintenance/test_{name}.py" for name in ("expire", "gc", "leases", "ownership", "slow_writers")),
    *(f"tests/namespace/test_{name}.py" for name in ("clean_up", "fairness", "lost_answers", "readers", "retries",
                                                     "tables", "writers")),
    "tests/table/test_write_options.py",
    "tests/simulation/test_simulation.py",
)  # fmt: skip
Sources = Mapping[str, str]
"""The text of each module, by its path."""


@dataclass(frozen=True)
class Selection:
    """Which tests may notice a mutant."""

    record: Record
    names: Mapping[str, Mapping[str, set[int]]]
    """By name, the lines that use it, by module."""

    def is_import_time(self, mutant: Mutant) -> bool:
        """Whether its code is executed at import: a function may be, too. And `super()` needs a class of its own."""
        executed = self.record.lines[IMPORT].get(mutant.path, [])
        return mutant.is_import_time or "super()" in mutant.before or not set(mutant.lines).isdisjoint(executed)

    def tests(self, mutant: Mutant) -> list[str]:
        """Those that execute its lines. At import: that use what it defines or its module, and all of its package."""
        if not self.is_import_time(mutant):
            return self._executing({mutant.path: set(mutant.lines)})
        lines: dict[str, set[int]] = defaultdict(set)
        for name in mutant.names:
            for path, numbers in self.names.get(name, {}).items():
                lines[path] |= numbers
        package = mutant.path.split("/")[1]
        # A test that compares tables of constants executes none of the lines that make them.
        own = [test for test in self._usable() if test.startswith(f"tests/{package}/")]
        return list(dict.fromkeys((*self._executing(lines), *own, *self._executing({mutant.path: None}))))

    def _executing(self, wanted: Mapping[str, set[int] | None]) -> list[str]:
        """Tests that execute one of these lines; None: any of the module."""
        found = self.record.lines
        return [
            test
            for test in self._usable()
            if any(_meets(found[test].get(path), lines) for path, lines in wanted.items())
        ]

    def _usable(self) -> list[str]:
        return [test for test, seconds in self.record.seconds.items() if seconds >= 0]


def _meets(executed: Sequence[int] | None, lines: set[int] | None) -> bool:
    return executed is not None and (lines is None or not lines.isdisjoint(executed))


class Results:
    """What became of each mutant, round by round: a file with a line for each job."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.rounds: dict[str, list[str]] = defaultdict(list)
        for line in file.read_text("utf-8").splitlines() if file.exists() else ():
            fields = json.loads(line)
            self.rounds[fields["id"]].append(fields["result"])

    def add(self, job: Job, outcome: Outcome) -> None:
        name = job.mutant.id if job.mutant else "control"
        with self._file.open("a", encoding="utf-8") as file:
            line = {"id": name, "result": outcome.result, "by": outcome.by}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def is_noticed(self, mutant: Mutant, number: int = -1) -> bool:
        return self.rounds[mutant.id][number] in ("killed", "timeout")

    def left(self, chosen: Iterable[Mutant], *, is_again: bool) -> list[Mutant]:
        """The mutants that have not been tried; or that have, and were not noticed."""
        return [each for each in chosen if self._is_left(each, is_again=is_again)]

    def _is_left(self, mutant: Mutant, *, is_again: bool) -> bool:
        if mutant.id not in self.rounds:
            return not is_again
        return is_again and not self.is_noticed(mutant)


def report(chosen: Mapping[str, Sequence[Mutant]], results: Results) -> str:
    """Scores in the first round and in the end, kinds, and survivors."""
    lines = ["| package | mutants | noticed at first | score | in the end | score |", "|---|---|---|---|---|---|"]
    kinds, survivors = defaultdict[str, Counter[bool]](Counter), list[str]()
    for package, found in chosen.items():
        tried = [mutant for mutant in found if mutant.id in results.rounds]
        columns = [str(len(tried))]
        for number in (0, -1):
            noticed = sum(results.is_noticed(mutant, number) for mutant in tried)
            columns += [str(noticed), f"{noticed / max(len(tried), 1):.1%}"]
        lines.append(f"| `{package.replace('/', '.')}` | {' | '.join(columns)} |")
        for mutant in tried:
            kinds[mutant.kind][results.is_noticed(mutant)] += 1
        survivors += [f"{each.id} ({results.rounds[each.id][-1]})" for each in tried if not results.is_noticed(each)]
    lines += ["", "| kind | mutants | noticed |", "|---|---|---|"]
    lines += [f"| {kind} | {count.total()} | {count[True]} |" for kind, count in sorted(kinds.items())]
    controls = results.rounds["control"]
    failed = sum(result != "survived" for result in controls)
    lines += ["", f"Controls without a mutant: {len(controls)}, of which {failed} failed."]
    return "\n".join([*lines, "", *survivors])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tests", nargs="*", default=TESTS, help="files and folders of tests")
    parser.add_argument("--again", action="store_true", help="only mutants that survived the last round")
    parser.add_argument("--report", action="store_true", help="print the results that are there, run nothing")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds for the tests of one mutant")
    parser.add_argument("--limit", type=float, default=5.0, help="processor time that is always allowed for a test")
    parser.add_argument("--controls", type=int, default=10, help="runs without a mutant, which no test may fail")
    parser.add_argument("--servers", action="store_true", help="use tests that start a server, too")
    parser.add_argument("--only", default="", help="only mutants whose id contains this")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--size", nargs="*", default=SIZES, help="packages, and how many of their mutants")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="the project's folder")
    options = parser.parse_args(arguments)
    os.chdir(options.root)
    Session.with_servers = options.servers
    source, folder = Path("src").absolute(), Path(".mutants").absolute()
    sizes = {package: int(size) for package, _, size in (text.partition("=") for text in options.size)}
    sources = {
        file.relative_to(source).as_posix(): file.read_text("utf-8")
        for package in sizes
        for file in sorted((source / package).rglob("*.py"))
    }
    chosen = {package: _chosen(package, size, options.seed, sources, folder) for package, size in sizes.items()}
    results = folder / "results.jsonl"
    if not options.report:
        wanted = [mutant for found in chosen.values() for mutant in found if options.only in mutant.id]
        todo = Results(results).left(wanted, is_again=options.again)
        _run(todo, options, source, sources, tuple(sizes), folder)
    print(report(chosen, Results(results)))
    return 0


def _chosen(package: str, size: int, seed: int, sources: Sources, folder: Path) -> list[Mutant]:
    """The sample of a package. It is chosen once: a change of the code does not change it."""
    by_module = {path: mutants(text, path) for path, text in sources.items() if path.startswith(f"{package}/")}
    file = folder / f"sample-{seed}-{package.replace('/', '.')}-{size}.json"
    if not file.exists():
        folder.mkdir(exist_ok=True)
        ids = [mutant.id for mutant in sample(by_module, size, seed)]
        file.write_text(json.dumps(ids, ensure_ascii=False, indent=0), "utf-8")
    ids = json.loads(file.read_text("utf-8"))
    known = {mutant.id: mutant for found in by_module.values() for mutant in found}
    print(
        f"{package}: {len(known)} mutants, sample of {len(ids)}; code that is gone: {sum(i not in known for i in ids)}"
    )
    return [known[each] for each in ids if each in known]


def _run(
    todo: Sequence[Mutant],
    options: argparse.Namespace,
    source: Path,
    sources: Sources,
    packages: Sequence[str],
    folder: Path,
) -> None:
    preload()
    digest = hashlib.sha256("".join(sources.values()).encode()).hexdigest()[:12]
    file = folder / f"record-{digest}.json"  # of other sources lines have other numbers
    known = recorded(options.tests, source, packages, Record.load(file))
    known.save(file)
    unusable = sum(seconds < 0 for seconds in known.seconds.values())
    print(f"{len(known.seconds)} tests, of which {unusable} are not used: they fail or are skipped", flush=True)

    asked = {test: each for test, each in known.seconds.items() if test.startswith(tuple(options.tests))}
    selection = Selection(Record(asked, known.lines), used_names(sources))
    jobs = [Job(mutant, selection.tests(mutant)) for mutant in todo]
    random.Random(SEED).shuffle(jobs)
    at_import = [job for job in jobs if job.mutant and selection.is_import_time(job.mutant)]
    in_place = [job for job in jobs if job not in at_import]
    done = _printing(Results(folder / "results.jsonl"))
    runner = Runner(options.tests, source, known.seconds, options.budget, options.limit, done)
    runner.serve([*_controls(in_place, options.controls), *in_place])
    runner.serve_import_time([*_controls(at_import, options.controls), *at_import])


def _controls(jobs: Sequence[Job], count: int) -> list[Job]:
    return [Job(None, job.tests) for job in jobs if job.tests][:count]


def _printing(results: Results) -> Callable[[Job, Outcome], None]:
    """Print and keep outcomes."""
    terminal = os.fdopen(os.dup(1), "w", buffering=1)
    started, count = time.monotonic(), Counter[str]()

    def done(job: Job, outcome: Outcome) -> None:
        results.add(job, outcome)
        count[outcome.result] += 1
        name = job.mutant.id if job.mutant else "control"
        terminal.write(f"{time.monotonic() - started:.0f} s {dict(count)} {outcome.result} {name} {outcome.by}\n")

    return done


if __name__ == "__main__":
    sys.exit(main())
