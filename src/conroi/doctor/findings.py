"""Findings, and the diagnosis that collects them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from conroi.display import to_html
from conroi.display.pages import diagnosis_page, environment_page
from conroi.doctor.kinds import KINDS, Severity
from conroi.errors import ConroiError, StoreUnavailable

MOST_SHOWN = 10
"""Maximum number of displayed findings of one kind; all of them are in `findings`."""
_ORDER: tuple[Severity, ...] = ("error", "warning", "info")

Fix = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or worth knowing."""

    kind: str
    """Its stable id: `missing-data-file`, …; docs/doctor.md lists them all."""
    severity: Severity
    """`error`: something is broken; `warning`: it works, but look at it; `info`: harmless."""
    what: str
    hint: str
    table: str | None = None
    """The table by its name in the lake, `__manifest` for the lake's own list; None if it concerns no table."""
    version: int | None = None
    """The newest version of the table that it concerns."""
    path: str | None = None
    """The file, below the table's folder."""
    is_fixable: bool = False
    """Whether doctor(fix=True) can repair it."""
    fixed: bool = False
    """Whether it did."""

    def __str__(self) -> str:
        where = ", ".join(
            text
            for text in (
                self.table or "",
                "" if self.version is None else f"version {self.version}",
                self.path or "",
            )
            if text
        )
        todo = "Fixed." if self.fixed else self.hint
        return f"{self.severity} {self.kind}{f' [{where}]' if where else ''}: {self.what} {todo}"


@dataclass(frozen=True)
class Diagnosis:
    """The result of doctor(): findings, what was checked, and the environment."""

    findings: tuple[Finding, ...]
    checked: Mapping[str, int]
    """How many tables, versions, files, rows, … were checked."""
    environment: Mapping[str, str]
    """The versions of our dependencies, and the storage's behaviour."""

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is broken, or all that was broken is fixed; warnings and leftovers do not count."""
        return not any(finding.severity == "error" and not finding.fixed for finding in self.findings)

    def of_kind(self, kind: str) -> tuple[Finding, ...]:
        """The findings of one kind."""
        return tuple(finding for finding in self.findings if finding.kind == kind)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return {
            "is_healthy": self.is_healthy,
            "findings": [asdict(finding) for finding in self.findings],
            "checked": dict(self.checked),
            "environment": dict(self.environment),
        }

    def _repr_html_(self) -> str:
        return to_html(diagnosis_page(self), environment_page(self))

    def __str__(self) -> str:
        looked = ", ".join(f"{count:,} {what}" for what, count in self.checked.items())
        counts = Counter(finding.severity for finding in self.findings if not finding.fixed)
        found = ", ".join(_counted(counts[severity], severity) for severity in _ORDER if counts[severity])
        fixed = sum(finding.fixed for finding in self.findings)
        verdict = "Healthy" if self.is_healthy else "Not healthy"
        summary = f"{verdict}: {found or 'nothing found'}{f', {fixed} fixed' if fixed else ''}. Looked at {looked}."
        return "\n".join([summary, *self._lines()])

    def _lines(self) -> Iterator[str]:
        shown: Counter[str] = Counter()
        for finding in self.findings:
            shown[finding.kind] += 1
            if shown[finding.kind] <= MOST_SHOWN:
                yield f"  {finding}"
        for kind, count in shown.items():
            if count > MOST_SHOWN:
                yield f"  … and {count - MOST_SHOWN:,} more of {kind}"


def _counted(count: int, severity: Severity) -> str:
    plural = severity if severity == "info" or count == 1 else f"{severity}s"
    return f"{count:,} {plural}"


class Findings:
    """The findings as they come in, with what would fix them."""

    def __init__(self) -> None:
        self._found: list[tuple[Finding, Fix | None]] = []
        self.checked: Counter[str] = Counter()

    def add(
        self,
        kind: str,
        what: str,
        *,
        table: str | None = None,
        version: int | None = None,
        path: str | None = None,
        hint: str | None = None,
        fix: Fix | None = None,
    ) -> None:
        """Add a finding; `fix` repairs it, for fixable kinds."""
        known = KINDS[kind]
        finding = Finding(
            kind, known.severity, what, hint or known.hint, table, version, path, is_fixable=fix is not None
        )
        self._found.append((finding, fix))

    @contextmanager
    def going_on(self, what: str, *, table: str | None = None, path: str | None = None) -> Generator[None]:
        """Turn an error in a check into a finding, so that later checks still run; storage errors are raised."""
        try:
            yield
        except StoreUnavailable:
            raise
        except ConroiError as error:
            self.add("check-failed", f"{what}: {error.message}", table=table, path=path, hint=error.hint)
        except Exception as error:  # noqa: BLE001  # whatever foreign bytes lead to
            text = f"{type(error).__name__}: {error}"[:300]
            self.add("check-failed", f"{what} ended with {text}", table=table, path=path)

    def keep(self, tables: Set[str]) -> None:
        """Drop the findings of other tables."""
        self._found = [each for each in self._found if each[0].table is None or each[0].table in tables]

    def fix(self) -> None:
        """Repair what is fixable; a failed repair says why."""
        self._found = [(_fixed(finding, fix), None) for finding, fix in self._found]

    def diagnosis(self, environment: Mapping[str, str]) -> Diagnosis:
        """All of it, the worst first."""
        found = [finding for finding, _ in self._found]
        found.sort(key=lambda each: (_ORDER.index(each.severity), each.table or "", each.kind))
        return Diagnosis(tuple(found), dict(self.checked), dict(environment))


def _fixed(finding: Finding, fix: Fix | None) -> Finding:
    if fix is None:
        return finding
    try:
        fix()
    except ConroiError as error:
        return replace(
            finding, what=f"{finding.what} Fixing it failed: {error.message}", hint=error.hint or finding.hint
        )
    return replace(finding, fixed=True)
