"""Staged operation: the local side of a conflict check, with facts beyond its wire format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyroaring import BitMap

from conroi.format.manifest import Manifest
from conroi.operations.base import Operation


@dataclass(frozen=True)
class Staged:
    """An operation that is ready to be committed, and its base version."""

    operation: Operation
    base: Manifest
    """The manifest of my base version."""
    affected_rows: Mapping[int, BitMap] | None = None
    """By fragment id, the physical offsets of the rows that I delete, move or change in place. None: not known."""
    keys_checked_exactly: bool = False
    """The caller compares the inserted keys with every newer commit itself, so the filters are not checked."""
    unwritten: frozenset[int] = frozenset()
    """Updated fragments whose new list of deleted rows is not written yet: the affected rows, joined with those that
    are gone at the newest version when it is."""
    rewrite_keeps_order: bool = False
    """My compaction puts the rows that were alive into its new fragments in their order, so deletions can follow."""
