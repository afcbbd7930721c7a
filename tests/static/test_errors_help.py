"""Every error that we raise says what to do now."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from conroi import errors
from tests.support.source import Module, conroi_modules

ERRORS = {
    name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, errors.ConroiError)
}
NOT_SHOWN = {"conroi.testing.faults"}  # errors that stand for those of a storage
# What the layers below hand on: who called them knows what to do, and says it.
HINT_COMES_LATER = {"There is no file", "There are no bytes", "str(cause)", "str(error)"}


def without_hint(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
            text = ast.unparse(node)
            has_hint = any(keyword.arg in ("hint", None) for keyword in node.keywords)
            if not has_hint and not any(known in text for known in HINT_COMES_LATER):
                yield f"{module.name}:{node.lineno} {text[:100]}"


@pytest.mark.contract("T12")
def test_every_error_is_raised_with_a_hint() -> None:
    assert not [stray for module in conroi_modules() if module.name not in NOT_SHOWN for stray in without_hint(module)]


def test_an_error_without_a_hint_is_caught() -> None:
    bad = Module.parse("conroi.bad", "raise InvalidInputError('no', table=t)")
    assert list(without_hint(bad))
    assert not list(without_hint(Module.parse("conroi.good", "raise InvalidInputError('no', hint='yes')")))
