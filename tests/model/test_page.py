"""docs/model/README.md: every function that it names exists, so that the models are compared with real code."""

from __future__ import annotations

import importlib
import re
from functools import reduce

import pytest

from docs.model import group_cases, publish_cases
from tests.support.source import REPOSITORY

NAMED = sorted(set(re.findall(r"`(conroi[\w.]+:[\w.]+)`", (REPOSITORY / "docs/model/README.md").read_text())))


@pytest.mark.parametrize("name", NAMED)
def test_a_function_that_a_model_stands_for_exists(name: str) -> None:
    module, _, path = name.partition(":")
    assert callable(reduce(getattr, path.split("."), importlib.import_module(module)))


def test_there_are_enough_of_them() -> None:
    assert len(NAMED) >= 15
    assert len(publish_cases.BUGS) >= 8
    assert len(group_cases.BUGS) >= 15
