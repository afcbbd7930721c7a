"""JSON is parsed in one module, which turns whatever is not JSON, too deep or too long into a typed error."""

from __future__ import annotations

import ast

import pytest

from tests.support.source import Module, conroi_modules

pytestmark = pytest.mark.contract("I7")

HOME = "conroi.format.json"
PARSERS = {"loads", "load", "JSONDecoder", "raw_decode"}


def parsers_in(module: Module) -> list[str]:
    """The uses of a JSON parser in a module, called or handed on."""
    taken = [f"{each.module}.{name}" for each in module.imports() for name in each.names if each.module == "json"]
    used = [
        ast.unparse(node)
        for node in module.attributes()
        if node.attr in PARSERS and ast.unparse(node.value) in ("json", "orjson", "ujson", "simplejson")
    ]
    return [name for name in taken if name.rpartition(".")[2] in PARSERS] + used


def test_json_is_parsed_in_one_module() -> None:
    parsing = {module.name: found for module in conroi_modules() if (found := parsers_in(module))}
    assert set(parsing) == {HOME}, f"use parse_json or parse_object of {HOME}"


@pytest.mark.parametrize(
    "source", ["import json\njson.loads(x)", "from json import loads", "import json\nf(json.load)"]
)
def test_control_a_parser_elsewhere_is_seen(source: str) -> None:
    assert parsers_in(Module.parse("conroi.other", source)) != []
