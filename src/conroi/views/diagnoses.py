"""Text view of a diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conroi.views.grid import Grid, grid
from conroi.views.words import plain, plural

if TYPE_CHECKING:
    from conroi.maintenance.doctor.findings import Diagnosis, Finding

MOST_FINDINGS = 10


def diagnosis_page(diagnosis: Diagnosis) -> Grid:
    """What a doctor found."""
    counts: dict[str, int] = {}
    rows: list[tuple[str, str, str, str]] = []
    for finding in diagnosis.findings:
        counts[finding.kind] = counts.get(finding.kind, 0) + 1
        if counts[finding.kind] <= MOST_FINDINGS:
            rows.append(_finding(finding))
    rows += [
        ("…", "", "", f"{count - MOST_FINDINGS:,} more of {kind}")
        for kind, count in counts.items()
        if count > MOST_FINDINGS
    ]
    looked = ", ".join(f"{count:,} {what}" for what, count in diagnosis.checked.items())
    fixed = sum(finding.fixed for finding in diagnosis.findings)
    verdict = "Healthy." if diagnosis.is_healthy else "Not healthy."
    said = f" {plural(fixed, 'finding')} fixed." if fixed else ""
    return grid("severity|kind|where|finding", rows, title=f"{verdict}{said}", lines=[f"Looked at {looked}."])


def _finding(finding: Finding) -> tuple[str, str, str, str]:
    version = "" if finding.version is None else f"@{finding.version}"
    todo = "Fixed." if finding.fixed else finding.hint
    return finding.severity, finding.kind, f"{finding.table or ''}{version}", plain(f"{finding.what} {todo}")


def environment_page(diagnosis: Diagnosis) -> Grid:
    """What a lake runs on."""
    return grid("what|is", [(plain(key), plain(text)) for key, text in diagnosis.environment.items()])
