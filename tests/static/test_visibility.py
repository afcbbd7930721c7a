"""Only `commit`, and the storage and version stores below it, can make a version visible."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

import pytest

from tests.support.source import Module, conroi_modules

# What creates a file that must not be there yet: so a manifest gets its name.
CREATING_CALLS = {"put_new", "put_if_absent", "rename_if_absent", "copy_if_absent"}
# What knows the folder of the manifests.
MANIFEST_NAMES = {"VERSIONS_DIR", "VERSION_HINT_PATH"}
MANIFEST_FOLDER = re.compile(r"(?<!\w)_versions\b")

PUBLISHING_LAYERS = {"commit", "locks", "storage", "versions"}
NAMING_LAYERS = PUBLISHING_LAYERS | {"format", "snapshots", "testing"}
EXCEPTIONS = {
    "conroi.catalog.folders": "the marker of a lake with a store; whether a folder has manifests",
    "conroi.maintenance.naming_migration": "gives a version that is visible a name of the other scheme",
    "conroi.snapshots.branch_storage": "hands every call on to the storage of the branch or of its parent",
    "conroi.snapshots.pin": "gives a version that the lake has published its final name",
    "conroi.snapshots.branch_names": "a name for a branch, which has versions of its own",
    "conroi.snapshots.tags": "a tag is a name for a version that is visible already",
    "conroi.testing.faults": "hands every call of an external store on to another one",
    "conroi.testing.instruments": "hands every call of a store on to another store",
    "conroi.testing.simulation.storage": "is a store",
}


def publishing_code(module: Module) -> Iterator[str]:
    docstrings = {id(text) for text in _docstrings(module.tree)}
    may_publish = module.layer in PUBLISHING_LAYERS or module.name in EXCEPTIONS
    may_name = module.layer in NAMING_LAYERS or module.name in EXCEPTIONS
    for node in module.nodes:
        if not may_publish and isinstance(node, ast.Attribute) and _creates(node):
            yield f"{module.name}:{node.lineno} calls {ast.unparse(node)}"
        if not may_name and id(node) not in docstrings and _names_manifests(node):
            yield f"{module.name}:{node.lineno} names {ast.unparse(node)}"


def _creates(node: ast.Attribute) -> bool:
    puts_a_version = node.attr == "put" and ast.unparse(node.value).endswith("versions")
    return puts_a_version or node.attr in CREATING_CALLS


def _names_manifests(node: ast.AST) -> TypeGuard[ast.expr]:
    if isinstance(node, ast.Name):
        return node.id in MANIFEST_NAMES
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and MANIFEST_FOLDER.search(node.value) is not None
    )


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


@pytest.mark.contract("W11")
def test_only_commit_and_stores_make_versions_visible():
    assert not [stray for module in conroi_modules() for stray in publishing_code(module)]


@pytest.mark.parametrize(
    "source",
    [
        "objects.put_if_absent('x', b'')",
        "ConditionalPut().put_new(objects, 'x', b'')",
        "publish = objects.rename_if_absent",
        "self.files.versions.put(7, naming, data)",
        "objects.put(f'_versions/{name}', b'')",
        "objects.put(VERSIONS_DIR + '/x', b'')",
    ],
)
def test_a_verb_that_publishes_by_itself_is_caught(source: str):
    assert list(publishing_code(Module.parse("conroi.verbs.bad", source)))
    assert not list(publishing_code(Module.parse("conroi.commit.good", source)))
