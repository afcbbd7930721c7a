"""The stand-in for data files against pylance: the same scripts give the same manifests, rows and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import conroi
from conroi.format.manifest import Manifest
from conroi.testing import SeededEnvironment
from conroi.testing.simulation.faults import Faults
from conroi.testing.simulation.world import Process, World

pytestmark = pytest.mark.contract("H5")

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64()), pa.field("s", pa.string())])
Script = Callable[[conroi.Table], conroi.Table]


def rows(*ids: int, v: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "v": [v] * len(ids), "s": [f"s{i}" for i in ids]}, schema=SCHEMA)


def appends(table: conroi.Table) -> conroi.Table:
    for start in range(0, 12, 3):
        table = table.append(rows(*range(start, start + 3)))
    return table


def deletes(table: conroi.Table) -> conroi.Table:
    table = appends(table).delete("id = 1 or id = 4")
    return table.delete("id in (2, 6, 7, 8)").delete("v > 5 and id < 3")


def updates(table: conroi.Table) -> conroi.Table:
    table = appends(table).update({"v": "v + 1"}, "id >= 4 and id <= 7")
    table = table.update({"s": "concat(s, ' more')"}, "id = 5")
    return table.update({"v": "v * 2 - 1", "s": "'x'"}, "v <> 0 or id = 11").update({"v": 9}, mode="columns")


def merges(table: conroi.Table) -> conroi.Table:
    table = appends(table)
    source = rows(2, 3, 40, 41, v=7)
    table.merge(source, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
    return table.latest().delete("id = 40")


def compacts(table: conroi.Table) -> conroi.Table:
    table = deletes(table).compact(rows_per_fragment=5)
    table = table.append(rows(20, 21)).delete("id = 9").append(rows(22))
    return table.compact(rows_per_fragment=4).update({"v": "v + 1"}, "id = 20").compact()


def overwrites(table: conroi.Table) -> conroi.Table:
    table = appends(table).overwrite(rows(1, 2))
    return table.append(rows(3)).restore(3)


SCRIPTS: list[Script] = [appends, deletes, updates, merges, compacts, overwrites]


def facts(manifest: Manifest) -> dict[str, Any]:
    """What a manifest says, without names of files, their sizes, ids made at random, and times."""
    head = manifest.head
    fragments: list[Any] = []
    for fragment in manifest.fragments:
        files = [
            (list(f.fields), list(f.column_indices), f.file_major_version, f.file_minor_version) for f in fragment.files
        ]
        gone = fragment.deletion_file
        fragments.append(
            {
                "id": fragment.id,
                "files": files,
                "rows": fragment.physical_rows,
                "deleted": (gone.file_type, gone.num_deleted_rows, gone.read_version),
                "row ids": fragment.inline_row_ids,
                "created": fragment.inline_created_at_versions,
                "updated": fragment.inline_last_updated_at_versions,
            }
        )
    return {
        "version": head.version,
        "fragments": fragments,
        "fields": [field.SerializeToString(deterministic=True) for field in head.fields],
        "flags": (head.reader_feature_flags, head.writer_feature_flags),
        "highest": (head.max_fragment_id, head.next_row_id),
        "format": (head.data_format.file_format, head.data_format.version),
    }


def states(table: conroi.Table) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    for version in table.versions():
        at = table.at(version)
        yield facts(at.pinned.manifest), at.to_arrow().to_pylist()


@pytest.mark.parametrize("is_stable", [False, True], ids=["addresses", "stable"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_manifests_are_those_of_pylance(tmp_path: Path, script: Script, is_stable: bool) -> None:
    made = conroi.create_table(
        tmp_path / "t.lance", SCHEMA, key="id", stable_row_ids=is_stable, environment=SeededEnvironment(1)
    )
    real = list(states(script(made)))
    simulated: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []

    def work(process: Process) -> None:
        uri = f"{process.world.uri}/t.lance"
        made = conroi.create_table(uri, SCHEMA, key="id", stable_row_ids=is_stable, environment=process.environment)
        simulated.extend(states(script(made)))

    with World(1, faults=Faults.drawn(0)) as world:
        world.run({"only": work}, with_faults=False)
    assert len(real) > 3
    assert [found for found, _ in simulated] == [found for found, _ in real]
    assert [found for _, found in simulated] == [found for _, found in real]


@pytest.mark.parametrize("where", ["v % 2 = 0", "s like 'a%'", "lower(s) = 'x'", "id between 1 and 2 and v = date '1'"])
def test_what_the_stand_in_does_not_know_is_refused(where: str) -> None:
    def work(process: Process) -> None:
        made = conroi.create_table(f"{process.world.uri}/t.lance", SCHEMA, environment=process.environment)
        made = made.append(rows(1, 2))
        with pytest.raises(conroi.ConroiError):
            made.count_rows(where)

    with World(1) as world:
        world.run({"only": work}, with_faults=False)
