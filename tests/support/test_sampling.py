"""Samples of parameters: every value is in them, the rest is for the soak, and a seed repeats them."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.support.sampling import ALL, SAMPLE, SEED, sampled

LETTERS, NUMBERS = "abcdefg", (1, 2, 3)
CASES = list(product(LETTERS, NUMBERS))


def chosen(parameters: list[Any]) -> list[Any]:
    return [each.values for each in parameters if not each.marks]


def test_every_value_is_in_the_sample_and_every_case_in_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    for day in range(20):
        monkeypatch.setenv(SEED, str(day))
        parameters = sampled("t", CASES)
        sample = chosen(parameters)
        assert 7 <= len(sample) <= 9
        assert [each.values for each in parameters] == CASES
        assert ({letter for letter, _ in sample}, {number for _, number in sample}) == (set(LETTERS), set(NUMBERS))
        assert {each.marks[0].name for each in parameters if each.marks} == {"soak"}


def test_a_seed_repeats_its_sample_and_another_day_has_another(monkeypatch: pytest.MonkeyPatch) -> None:
    samples: list[list[Any]] = []
    for day in ("2026-11-17", "2026-11-17", "2026-11-18"):
        monkeypatch.setenv(SEED, day)
        samples.append(chosen(sampled("t", CASES)))
    assert samples[0] == samples[1] != samples[2]


def test_a_sample_may_be_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEED, "1")
    assert len(chosen(sampled("t", CASES, least=12))) == 12
    assert len(chosen(sampled("t", CASES, least=99))) == 21


def test_a_sample_need_not_cover_all_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEED, "1")
    assert len(chosen(sampled("t", CASES, least=4, covers=False))) == 4


def test_all_cases_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SAMPLE, ALL)
    assert chosen(sampled("t", CASES)) == chosen(sampled("t", CASES, least=2, covers=False)) == CASES
