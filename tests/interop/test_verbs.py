"""Every verb of one writer, then every verb of the other on top, and the first again: both always see the same rows."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from tests.interop.model import Model
from tests.interop.readers import assert_seen
from tests.interop.tables import Kind, Stable, data_files, kinds, manifest_names, two_kinds
from tests.interop.verbs import COLUMN_VERBS, ROW_VERBS, VERBS, Verb, named
from tests.support.sampling import sampled

pytestmark = pytest.mark.contract("T5")

AFTER_US = [
    named(name)
    for name in ("append", "delete", "update rows", "merge", "scalar index", "compact", "update every row", "tag")
]
GO_ON = [named(name) for name in ("append", "update columns", "update rows", "delete", "compact")]
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


OURS = [(verb, kind) for verb in VERBS for kind in (kinds if verb in ROW_VERBS else two_kinds)("conroi") if verb.ours]


@pytest.mark.parametrize(("verb", "kind"), sampled("our verbs", OURS, least=8, covers=False, label=ids))
def test_pylance_reads_what_a_verb_of_ours_made_and_goes_on(tables: Stable, verb: Verb, kind: Kind) -> None:
    root, model = tables.copy(kind)
    ours(root, verb, model)
    for following in AFTER_US:
        theirs(root, following, model)
    for following in GO_ON:
        ours(root, following, model)
    assert {len(name) == 29 for name in manifest_names(root)} == {kind.naming is conroi.ManifestNaming.V2}


THEIRS = [verb for verb in VERBS if verb.theirs]
THEIRS_SAMPLED = sampled("their verbs", [(verb,) for verb in THEIRS], least=6, covers=False, label=ids)


@pytest.mark.parametrize("verb", sampled("their verbs", [(each,) for each in THEIRS], least=5, covers=False, label=ids))
def test_conroi_reads_what_a_verb_of_pylance_made_and_does_every_verb_on_top(tables: Stable, verb: Verb) -> None:
    # all verbs on one kind of table, in rotation, and a few on the other: all on both would take twice as long
    first = THEIRS.index(verb) % 2
    for kind, following in zip(two_kinds("pylance")[:: 1 if first else -1], (VERBS, GO_ON), strict=True):
        root, model = tables.copy(kind)
        theirs(root, verb, model)
        for each in following:
            ours(root, each, model)
        for each in GO_ON:
            theirs(root, each, model)


OLD_FORMATS = [Kind(maker, data_format=version) for maker in ("conroi", "pylance") for version in ("2.0", "2.1")]


@pytest.mark.parametrize("kind", OLD_FORMATS, ids=ids)
def test_tables_in_older_file_versions_take_the_verbs_of_both(tables: Stable, kind: Kind) -> None:
    root, model = tables.copy(kind)
    assert_seen(root, model)
    for each in [*AFTER_US, *GO_ON, *COLUMN_VERBS]:
        ours(root, each, model)
    for each in [*AFTER_US, *COLUMN_VERBS]:
        theirs(root, each, model)
    ours(root, named("append"), model)
    written = {(file["file_major_version"], file["file_minor_version"]) for file in data_files(root)}
    assert written == {tuple(map(int, kind.data_format.split(".")))}


@pytest.mark.parametrize("version", ["2.0", "2.1"])
@pytest.mark.parametrize("column", ["v", "name", "tags", "at", "vec", "note"])
def test_columns_of_any_shape_are_rewritten_in_older_file_versions(tables: Stable, column: str, version: str) -> None:
    """Such files list the fields around the values as well, or do not."""
    root, model = tables.copy(Kind("conroi", data_format=version))
    table = conroi.open_table(root)
    table.replace_column_data({column: column})
    assert_seen(root, model)
    table.update({column: column}, "id < 20", mode="columns")
    assert_seen(root, model)
    table.add_columns({"copied": column})
    made = model.columns[column]
    model.add_column("copied", made, lambda row: row[column])
    assert_seen(root, model)
    table.alter_columns({column: {"type": made.type}})
    assert_seen(root, model)
    theirs(root, named("compact"), model)
    fresh = range(300, 304)
    data = model.new(fresh).append_column("evolved", pa.array([made.make(i) for i in fresh], made.type))
    table.append(data, evolve_schema=True)
    rows = [row | {"evolved": made.make(row["id"])} for row in model.make(fresh)]
    model.add_column("evolved", made)
    model.append(rows)
    assert_seen(root, model)
