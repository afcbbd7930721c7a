"""Generator of the page `docs/doctor.md` from the catalogue of kinds.

`python -m tools.doctor_page` prints it.
"""

from __future__ import annotations

from collections.abc import Iterator

from conroi.doctor.kinds import GROUPS, Group, Kind

_INTRODUCTION = """\
<!-- Rendered by `python -m tools.doctor_page`; a test compares. Do not edit by hand. -->
# Doctor: what is wrong, and what to do

`doctor` checks a lake or a table: are all files there, do manifests, data and keys agree, is anything left behind by
a crash? It prints one line for each finding, with a stable name, a severity and what to do. It can run beside readers
and writers at any time, and changes nothing unless you ask it to repair.

```python
import conroi

lake = conroi.connect("./lake")
diagnosis = lake.doctor()  # or table.doctor(), for a table without a lake
print(diagnosis)  # one line for each finding: what, where, and what to do
diagnosis.is_healthy  # no errors; warnings and leftovers do not count
diagnosis.findings  # each with kind, severity, table, version, path, what, hint, is_fixable, fixed
diagnosis.checked, diagnosis.environment  # what was checked, and the versions it runs on

lake.doctor(fix=True)  # repairs what is safe to repair
lake.doctor(deep=True)  # also reads every row of every version
```

A lake that is too damaged for `conroi.connect` is checked by `conroi.doctor.diagnose(uri)`.

**What it checks.** Every manifest of every version that is kept, of the lake's list, of all tables (dropped ones too,
as long as a version of the lake needs them) and of their branches: that it can be read, matches its name and its
transaction, and that all its files exist with the size they had. The newest version of each table is checked more
thoroughly: data files open and have their rows, deletion files are complete, row ids and keys (up to a million rows)
are unique. `deep` decodes every value of every version, and compares the keys of tables of any size. Then what the
lake pins, tags, branches, locks, leftovers, the external store, and the storage itself.

**What it costs.** One listing of the whole lake, one request for each manifest, and one request into each data file
of the newest versions. What many versions share is checked once.

**Beside running writers.** It takes no lock and blocks no writer. What is missing in the listing is looked up again
before it is reported as missing, and what is young may belong to a running writer: publications and inserts are
reported as unfinished after 10 minutes, files as leftovers after an hour.

**What `fix` does.** It finalizes publications, repairs forked tables ([lake.md](lake.md)), adopts what was committed
by path, assigns lock ids, tells an external store what is in the folder, and writes hints again. All of that is what
the next writer would do anyway. It never deletes a row or a file, and where two changes conflict it says so and keeps
both. A second run finds nothing that the first one fixed. Without `fix` nothing is written, except for a probe of a
few bytes on object stores (is a conditional put respected?), which is deleted again.

**What it cannot detect.** Lance data files have no checksums. A flipped bit in one is found if the file does not
open, has other rows, or (deep) cannot be decoded; one that turns a number into another number is not. Manifests,
transactions, deletion files, tags and branches that conroi wrote have checksums, those that pylance wrote have not.

An **error** is something broken, a **warning** works but needs attention, an **info** is harmless.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION, *(line for group in GROUPS for line in _section(group))])


def _section(group: Group) -> Iterator[str]:
    yield f"## {group.title}\n"
    yield "| kind | | means | what to do |"
    yield "|---|---|---|---|"
    yield from map(_row, group.kinds)
    yield ""


def _row(kind: Kind) -> str:
    fixed = " `fix` does it." if kind.is_fixable else ""
    return f"| `{kind.slug}` | {kind.severity} | {kind.means} | {kind.hint}{fixed} |"


if __name__ == "__main__":
    print(page(), end="")
