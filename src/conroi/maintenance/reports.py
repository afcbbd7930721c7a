"""Reports of expiry and garbage collection, and durations such as "7d"."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from conroi.display import to_html
from conroi.display.pages import SHOWN_PATHS, collected_page, expired_page
from conroi.errors import InvalidInputError
from conroi.versions.retention import LONGEST_S

Duration = timedelta | str
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")


def lease_seconds(keep: Duration) -> float:
    """The duration of a lease in seconds; InvalidInputError if it is invalid."""
    seconds = seconds_of(keep, "keep")
    if not 1 <= seconds <= LONGEST_S:
        raise InvalidInputError(
            f"keep={keep!r} is no time for a lease.",
            hint="Give from a second to 400 days; tag a version that must stay for longer.",
        )
    return seconds


def seconds_of(duration: Duration, name: str) -> float:
    """The seconds; `name` is the argument, for the message.

    >>> seconds_of("1.5h", "min_age"), seconds_of(timedelta(days=1), "min_age")
    (5400.0, 86400.0)
    """
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    else:
        found = _TEXT.fullmatch(duration.strip().lower()) if isinstance(duration, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        seconds = -1.0 if found is None else float(found[1]) * _UNITS_S[found[2]]
    if seconds < 0:
        raise InvalidInputError(
            f"{name}={duration!r} is not an age.", hint='Give text such as "7d", "12h" or "30m", or a timedelta.'
        )
    return seconds


@dataclass(frozen=True)
class Expired:
    """Versions that were expired, or would be."""

    removed: tuple[int, ...]
    """Versions of the lake; of the table, for one that stands alone."""
    kept: tuple[int, ...]
    tables: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Of a lake, by table: its versions that no retained version of the lake pins."""
    bytes: int = 0
    """The size of the manifests; the files that only they referenced are freed by gc()."""
    is_dry_run: bool = True
    skipped: Mapping[str, str] = field(default_factory=dict[str, str])
    """Folders of tables that were skipped, and why."""
    paths: tuple[str, ...] = field(default=(), repr=False)
    """The manifests, below the root of the lake or table; none for versions that a database has."""

    @property
    def table_versions(self) -> int:
        """How many versions of tables."""
        return sum(map(len, self.tables.values()))

    def _repr_html_(self) -> str:
        return to_html(expired_page(self))

    def __str__(self) -> str:
        what = "would be expired" if self.is_dry_run else "expired"
        lines = [f"{counted(len(self.removed), 'version')} {what}, {len(self.kept)} kept"]
        if self.removed:
            lines[0] += f": {ranges(self.removed)}"
        lines += [f"  {table}: {ranges(versions)}" for table, versions in sorted(self.tables.items())]
        lines += [f"  {folder} was left alone: {why}" for folder, why in sorted(self.skipped.items())]
        if self.is_dry_run:
            lines += listed_paths(self.paths)
        if self.removed or self.tables:
            lines.append(f"{size(self.bytes)} of manifests; gc() frees what only they referred to.")
        if self.is_dry_run and (self.removed or self.tables):
            lines.append("Nothing was deleted: this was a dry run.")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Garbage:
    """Files of one kind in one table."""

    table: str
    kind: str
    """`data`, `deletion`, `index`, `transaction`, `staged`, `temporary`, `key`, `dropped`, `branch`."""
    files: int
    bytes: int
    paths: tuple[str, ...] = field(default=(), repr=False)
    """The files, below the folder of the table."""


@dataclass(frozen=True)
class Collected:
    """Files that were deleted, or would be."""

    garbage: tuple[Garbage, ...]
    is_dry_run: bool = True
    skipped: Mapping[str, str] = field(default_factory=dict[str, str])
    """Tables and folders that were skipped, and why."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file, with the table or folder that it is in."""
        return tuple(f"{each.table}: {path}" for each in self.garbage for path in each.paths)

    @property
    def files(self) -> int:
        """How many files, in all."""
        return sum(each.files for each in self.garbage)

    @property
    def bytes(self) -> int:
        """How many bytes, in all."""
        return sum(each.bytes for each in self.garbage)

    @property
    def by_kind(self) -> dict[str, tuple[int, int]]:
        """Files and bytes, by kind."""
        return _summed((each.kind, each) for each in self.garbage)

    @property
    def by_table(self) -> dict[str, tuple[int, int]]:
        """Files and bytes, by table."""
        return _summed((each.table, each) for each in self.garbage)

    def _repr_html_(self) -> str:
        return to_html(collected_page(self))

    def __str__(self) -> str:
        what = "would be deleted" if self.is_dry_run else "deleted"
        lines = [f"{counted(self.files, 'file')} {what}, {size(self.bytes)}"]
        lines += [
            f"  {each.table}: {counted(each.files, each.kind + ' file')}, {size(each.bytes)}" for each in self.garbage
        ]
        lines += [f"  {table} was left alone: {why}" for table, why in sorted(self.skipped.items())]
        if self.is_dry_run:
            lines += listed_paths(self.paths)
        if self.is_dry_run and self.garbage:
            lines.append("Nothing was deleted: this was a dry run.")
        return "\n".join(lines)


def _summed(found: Iterable[tuple[str, Garbage]]) -> dict[str, tuple[int, int]]:
    sums: dict[str, tuple[int, int]] = {}
    for key, each in found:
        files, sizes = sums.get(key, (0, 0))
        sums[key] = files + each.files, sizes + each.bytes
    return sums


def listed_paths(paths: Sequence[str]) -> list[str]:
    """Lines that name the first of these files."""
    lines = [f"  {path}" for path in paths[:SHOWN_PATHS]]
    return [*lines, f"  … and {len(paths) - SHOWN_PATHS:,} more"] if len(paths) > SHOWN_PATHS else lines


def counted(number: int, what: str) -> str:
    """Such as `3 versions`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def size(number: int) -> str:
    """Bytes as people read them.

    >>> size(512), size(5_300_000)
    ('512 B', '5.3 MB')
    """
    amount, units = float(number), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 1000 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{amount:.0f} {units[0]}" if units[0] == "B" else f"{amount:.1f} {units[0]}"


def ranges(numbers: Iterable[int]) -> str:
    """Such as `1-4, 7`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
