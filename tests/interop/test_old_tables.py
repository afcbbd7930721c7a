"""Tables that older releases of pylance made: every verb gives the rows that pylance 14 gives, or a typed refusal.

The tables of three releases are kept here, a few kilobytes each; `make soak` makes those of all releases afresh. Both
come from `tools/old_tables.py`.
"""

from __future__ import annotations

import tarfile
from itertools import product
from pathlib import Path

import pytest

from tests.interop.old_verbs import VERBS, compared
from tests.support.sampling import sampled
from tools.old_tables import FIXTURES, KINDS, SMALL_KINDS, VERSIONS, make

pytestmark = pytest.mark.contract("T23")

KEPT = ("0.20.0", "0.30.0", "1.0.4")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables that are kept in the repository, by release and kind."""
    folder = tmp_path_factory.mktemp("old")
    for version in KEPT:
        with tarfile.open(FIXTURES / f"{version}.tar.xz") as archive:
            archive.extractall(folder / version, filter="data")
    return folder


@pytest.mark.parametrize(("version", "kind"), sampled("old tables", list(product(KEPT, SMALL_KINDS))))
def test_every_verb_on_a_table_of_an_older_release(kept: Path, version: str, kind: str) -> None:
    answers = {verb: compared(kept / version / f"{kind}.lance", verb) for verb in VERBS}
    told = {answer for answer in answers.values() if answer is not None}
    assert told == {"same"}, answers


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_verb_on_fresh_tables_of_every_kind(tmp_path_factory: pytest.TempPathFactory, version: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "old-tables"
    answers: dict[tuple[str, str], str | None] = {}
    for kind in KINDS:
        root = make(folder, version, kind)
        assert root is not None, f"{version} makes {kind}"
        answers |= {(kind, verb): compared(root, verb) for verb in VERBS}
    assert sum(answer == "same" for answer in answers.values()) > 0.9 * len(answers), answers


def test_the_kept_tables_are_small() -> None:
    assert sum(path.stat().st_size for path in FIXTURES.iterdir()) < 300_000
