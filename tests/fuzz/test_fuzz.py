"""Mutated inputs to every reader of foreign bytes; `python -m tests.fuzz` runs more of them."""

from __future__ import annotations

import pytest

from conroi.errors import ConroiError
from tests.fuzz.findings import FINDINGS
from tests.fuzz.mutation import corpus, fuzz, tried
from tests.fuzz.targets import TARGETS

pytestmark = pytest.mark.contract("I6")


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_are_valid(name: str) -> None:
    """Else the mutations would test nothing but the first check."""
    for seed in TARGETS[name].seeds[:1]:
        TARGETS[name].read(seed)


def test_the_corpus_is_of_targets_that_exist() -> None:
    assert set(corpus()) <= set(TARGETS)


@pytest.mark.parametrize(("name", "data"), FINDINGS)
def test_what_was_found_is_a_typed_error(name: str, data: bytes) -> None:
    assert tried(name, data) is None
    with pytest.raises(ConroiError):
        TARGETS[name].read(data)


def test_only_typed_errors() -> None:
    assert fuzz(40_000, seed=17) == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_only_typed_errors_for_long() -> None:
    assert fuzz(1_000_000, seed=18) == []
