"""The table of the cases of SQL conformance in docs/spark.md, counted from the tests."""

from __future__ import annotations

from importlib import import_module
from typing import Any

BEGIN = "<!-- The conformance table: made by `make docs` from tests/spark/connector. Do not edit by hand. -->"
END = "<!-- End of the conformance table. -->"

GROUPS = {
    "merge": "MERGE INTO: clauses, sources, conditions; without and with a key",
    "changes": "UPDATE, DELETE, TRUNCATE: subqueries, three-valued logic, nested fields",
    "inserts": "INSERT by position and by name, casts, OVERWRITE, REPLACE WHERE",
    "filters": "conditions of every form on every type, in four time zones",
    "values": "NaN, -0.0, decimals, dates, times in five zones, text, bytes",
    "names": "keywords, spaces, quotes, other scripts, letters of any case",
    "reads": "joins, subqueries, windows, sets, views, CTAS, time travel",
}
"""The groups, by the ends of the names of their modules."""


def cases(group: str) -> list[Any]:
    """The cases of a group."""
    return import_module(f"tests.spark.connector.test_conformance_{group}").CASES


def section() -> str:
    """A line for each group."""
    lines = ["| group | cases | comparisons | of them refused |", "|---|---|---|---|"]
    sums = [0, 0, 0]
    for group, shown in GROUPS.items():
        found = cases(group)
        counts = [len(found), sum(case.checks for case in found), sum(case.error is not None for case in found)]
        sums = [total + count for total, count in zip(sums, counts, strict=True)]
        lines.append(f"| {shown} | {' | '.join(map(str, counts))} |")
    lines.append(f"| all | {' | '.join(map(str, sums))} |")
    return "\n".join([BEGIN, *lines, END])


def with_section(page: str) -> str:
    """A page with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{section()}{after}"
