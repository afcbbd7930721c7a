"""Every verb of one writer, then every verb of the other on top, and the first again: both always see the same rows."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

import conroi
from tests.interop.model import Model
from tests.interop.readers import assert_seen
from tests.interop.tables import Kind, Stable, kinds, manifest_names, two_kinds
from tests.interop.verbs import ROW_VERBS, VERBS, Verb, named

pytestmark = pytest.mark.contract("T5")

AFTER_US = [
    named(name)
    for name in ("append", "delete", "update rows", "merge", "scalar index", "compact", "merge", "tag", "update every row")
]
GO_ON = [named(name) for name in ("append", "update columns", "delete", "update rows", "compact", "append one row")]
"""What one of us does after the other did all that."""


def ours(root: Path, verb: Verb, model: Model) -> None:
    if verb.ours is None or not verb.applies(model):
        return
    made = verb.ours(conroi.open_table(root), model)
    verb.change(model)
    assert_seen(root, model, version=made.version)


def theirs(root: Path, verb: Verb, model: Model) -> None:
    if verb.theirs is None or not verb.applies(model):
        return
    verb.theirs(lance.dataset(str(root)), model)
    verb.change(model)
    assert_seen(root, model)


def ids(value: object) -> str:
    return str(value).replace(" ", "-")


@pytest.mark.parametrize("kind", kinds("conroi"), ids=ids)
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb.ours], ids=ids)
def test_pylance_reads_what_a_verb_of_ours_made_and_goes_on(tables: Stable, verb: Verb, kind: Kind) -> None:
    root, model = tables.copy(kind)
    ours(root, verb, model)
    for following in AFTER_US:
        theirs(root, following, model)
    for following in GO_ON:
        ours(root, following, model)
    assert {len(name) == 29 for name in manifest_names(root)} == {kind.naming is conroi.ManifestNaming.V2}


@pytest.mark.parametrize("kind", two_kinds("pylance"), ids=ids)
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb.theirs], ids=ids)
def test_conroi_reads_what_a_verb_of_pylance_made_and_does_every_verb_on_top(
    tables: Stable, verb: Verb, kind: Kind
) -> None:
    root, model = tables.copy(kind)
    theirs(root, verb, model)
    for following in VERBS:
        ours(root, following, model)
    for following in GO_ON:
        theirs(root, following, model)
