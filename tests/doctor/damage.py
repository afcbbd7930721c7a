"""A small healthy lake, and the hands that damage a copy of it: on disk, byte by byte, or as other writers do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import conroi
from conroi.catalog.manifest_rows import SCHEMA
from conroi.catalog.participant import PublishRequest
from conroi.catalog.publication import Publishing
from conroi.catalog.rows import Row
from conroi.catalog.state import CommitMetadata
from conroi.doctor import Diagnosis, diagnose
from conroi.environment import SystemEnvironment
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.format.manifest_file import decode_manifest_file, encode_manifest_file
from conroi.format.naming import ManifestNaming, deletion_path, parse_manifest_name

TWO_HOURS_NS = 7_200_000_000_000
ORDERS, LIST = "orders.lance", "__manifest"


class Later(SystemEnvironment):
    """Two hours from now, when all that was begun should be finished."""

    def now_ns(self) -> int:
        return super().now_ns() + TWO_HOURS_NS


def build(folder: Path) -> None:
    """Three tables, one of them dropped, with all that a table can have."""
    lake = conroi.connect(str(folder))
    first = pa.table({"id": range(100), "text": [f"text number {n}" for n in range(100)]})
    orders = lake.create_table("orders", first, key="id", stable_row_ids=True)
    orders = orders.append(pa.table({"id": range(100, 200), "text": ["more"] * 100}))
    orders = orders.delete("id % 10 = 3").update({"text": "'new'"}, where="id = 42")
    orders.create_index("id")
    orders.tags.create("early", 2)
    lake.create_table("sales.customers", [{"name": "Ada"}, {"name": "Grace"}]).append([{"name": "Alan"}])
    lake.create_table("old", [{"n": 1}])
    lake.drop_table("old")
    lake.tags.create("start", 2)


def examine(folder: Path, *, fix: bool = False, deep: bool = False) -> Diagnosis:
    """What doctor says of the lake, two hours later."""
    return diagnose(str(folder), fix=fix, deep=deep, environment=Later())


def kinds(diagnosis: Diagnosis, severity: str | None = None) -> set[str]:
    return {each.kind for each in diagnosis.findings if severity in (None, each.severity)}


def customers(folder: Path) -> Path:
    """The folder of the table in a namespace, which has a random part."""
    return next(folder.glob("*_sales_customers"))


# ------------------------------------------------------------------------------------ manifests


def manifests(table: Path) -> dict[int, Path]:
    """The manifests under their final names, by version."""
    parsed = {path: parse_manifest_name(path.name) for path in (table / "_versions").iterdir()}
    return {name.version: path for path, name in parsed.items() if name is not None and not name.is_detached}


def newest(table: Path) -> Path:
    found = manifests(table)
    return found[max(found)]


def manifest_of(path: Path) -> Manifest:
    return decode_manifest_file(path.read_bytes()).manifest


def fragments_of(table: Path) -> list[pb.DataFragment]:
    return list(manifest_of(newest(table)).fragments)


def data_file(table: Path, fragment: int = 0) -> Path:
    return table / "data" / fragments_of(table)[fragment].files[0].path


def deletion_file(table: Path) -> Path:
    found = next(each for each in fragments_of(table) if each.HasField("deletion_file"))
    return table / deletion_path(found.id, found.deletion_file)


def edit_head(path: Path, edit: Callable[[pb.ManifestHead], object]) -> None:
    """Another head for a manifest, well formed and with a right checksum."""
    file = decode_manifest_file(path.read_bytes())
    head = file.manifest.editable_head()
    edit(head)
    path.write_bytes(encode_manifest_file(file.manifest.changed(head=head), file.transaction))


def edit_fragments(path: Path, edit: Callable[[list[pb.DataFragment]], object]) -> None:
    """Other fragments for a manifest, well formed and with a right checksum."""
    file = decode_manifest_file(path.read_bytes())
    fragments = [pb.DataFragment.FromString(each.SerializeToString()) for each in file.manifest.fragments]
    edit(fragments)
    path.write_bytes(encode_manifest_file(file.manifest.changed(fragments=fragments), file.transaction))


def edit_transaction(path: Path, edit: Callable[[bytes], bytes | None]) -> None:
    """Another transaction inside a manifest."""
    file = decode_manifest_file(path.read_bytes())
    assert file.transaction is not None
    path.write_bytes(encode_manifest_file(file.manifest, edit(file.transaction)))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


def cut(path: Path, bytes_left: int) -> None:
    path.write_bytes(path.read_bytes()[:bytes_left])


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---------------------------------------------------------------------------------------- others


def row_of(folder: Path, name: str) -> Row:
    state = conroi.connect(str(folder)).catalog.state()
    return state.rows[name]


def publish_row(folder: Path, row: Row) -> None:
    """A row as a careless writer would leave it."""
    catalog = conroi.connect(str(folder)).catalog
    Publishing(
        catalog, PublishRequest(catalog.state(), rows={row.object_id: row}, notes=CommitMetadata("careless"))
    ).run()


def append_row_by_pylance(folder: Path, name: str, location: str | None, metadata: str | None = None) -> None:
    """A row that an out-of-band writer adds to the list."""
    columns = [[name], ["table"], [location], [metadata], [None]]
    rows = pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    lance.write_dataset(rows, str(folder / LIST), mode="append")


def append_by_path(table: Path, rows: list[dict[str, Any]]) -> None:
    """What a pylance writer does that knows nothing of the lake."""
    dataset = lance.dataset(str(table))
    lance.write_dataset(pa.Table.from_pylist(rows, dataset.schema), str(table), mode="append")


def unfinish(folder: Path, name: str) -> Path:
    """Take the final name from the newest version, as if its publisher had died before giving it."""
    row = row_of(folder, name)
    assert row.pin is not None
    assert row.location is not None
    assert row.pin.is_staged
    staged = folder / row.location / row.pin.manifest
    (folder / row.location / row.pin.final.path).rename(staged)
    return staged


def fork(folder: Path, name: str, rows: list[dict[str, Any]]) -> Path:
    """An out-of-band write, before the newest version has its final name."""
    staged = unfinish(folder, name)
    append_by_path(staged.parents[1], rows)
    return staged


def change_json(path: Path, **values: Any) -> None:
    content = {**json.loads(path.read_text()), **values}
    content.pop("conroi.checksum", None)  # as another program would write it
    path.write_text(json.dumps(content))


def v1_name(version: int) -> str:
    return ManifestNaming.V1.file_name(version)
