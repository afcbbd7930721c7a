"""Releases of pylance beside each other: on one table at the same time, and one after the other.

`make ring` runs this with every supported release; by itself it runs with the installed one.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from itertools import combinations, product
from pathlib import Path

import pytest

from tests.ring.releases import SECONDS, call, interpreters, write_together
from tests.soak.test_mixed_writers import assert_all_is_there, assert_index_is_right, new_table
from tests.soak.writers import Writer

RELEASES = sorted(interpreters(), key=lambda release: [int(part) for part in release.split(".") if part.isdigit()])
PAIRS = [*combinations(RELEASES, 2)] or [(RELEASES[0], RELEASES[0])]
KINDS_MADE = 15
"""Ten tables by pylance, one by conroi, four looks at a lake."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, int]]]:
    """By release what it wrote, and how many rows it found in it."""
    folder = tmp_path_factory.mktemp("exchange")
    return {name: (folder / name, call(name, "tests.ring.exchange", "write", str(folder / name))) for name in RELEASES}


@pytest.mark.contract("V3")
@pytest.mark.parametrize(("writer", "reader"), list(product(RELEASES, RELEASES)))
def test_what_one_release_writes_another_reads_and_writes(
    made: dict[str, tuple[Path, dict[str, int]]], writer: str, reader: str, tmp_path: Path
) -> None:
    source, expected = made[writer]
    shutil.copytree(source, tmp_path / "copy")
    assert len(expected) == KINDS_MADE
    assert call(reader, "tests.ring.exchange", "use", str(tmp_path / "copy")) == expected


@pytest.mark.contract("V4", "T15")
@pytest.mark.parametrize("stable_row_ids", [False, True])
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_releases_and_conroi_write_one_table(one: str, other: str, stable_row_ids: bool, tmp_path: Path) -> None:
    root = str(tmp_path / "t.lance")
    new_table(root, stable_row_ids=stable_row_ids, key="id")
    seconds = float(os.environ.get(SECONDS, "2"))
    crew = [(one, True), (other, True), (one, False), (other, False)]
    writers = [
        (release, Writer(root, number, 20261118, seconds=seconds, is_pylance=is_pylance))
        for number, (release, is_pylance) in enumerate(crew)
    ]
    books = write_together(writers, tmp_path / "start")
    assert_all_is_there(root, books)
    assert_index_is_right(root)
    done = [sum(of_one.done.values()) for of_one in books]
    print(f"{one} and {other}: commits of each writer {done}", dict(sum((b.done for b in books), Counter[str]())))
    assert all(done), "every writer took part"
