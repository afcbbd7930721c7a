"""What conroi leaves on disk stays the same: names of files, keys of JSON documents, settings, properties, metadata.

`on_disk.txt` is the record, observed on a lake and a table that have been through everything. A changed line breaks
older versions that share the lake, and lakes that are there already. New lines are added by
`python -m tests.static.test_on_disk`.
"""

from __future__ import annotations

import ast
import json
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar, cast

import pyarrow as pa

import conroi
from conroi.format import decode_manifest_file, decode_transaction
from conroi.storage.objects import Objects
from conroi.testing import WrappedObjects, connect_through
from conroi.testing.instruments import Request
from tests.support.source import Module, conroi_modules

T = TypeVar("T")

RECORD = Path(__file__).with_name("on_disk.txt")
UNLIKE = [
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"[01]{16,24}[0-9a-f]{20,40}"), "<data>"),
    (re.compile(r"(?<![a-z])[0-9a-f]{32,64}(?![a-z])"), "<hex>"),
    (re.compile(r"(?<=-)[0-9a-f]{8}(?=[./]|$)"), "<hex>"),
    (re.compile(r"[0-9a-f]{8}_"), "<hex>_"),
    (re.compile(r"\d+"), "<n>"),
]
"""What differs from one run to the next."""


def alike(text: str) -> str:
    for pattern, name in UNLIKE:
        text = pattern.sub(name, text)
    return text


class Noted(WrappedObjects):
    """Storage that notes what is written, also what does not stay."""

    def __init__(self, inner: Objects, root: str, noted: set[str]) -> None:
        super().__init__(inner)
        self._below = f"{inner.root}/".removeprefix(f"{root}/")
        self._noted = noted

    def around(self, request: Request, call: Callable[[], T]) -> T:
        if request.verb.startswith(("put", "copy", "rename")):
            self._noted.add(f"file {alike(self._below + request.path)}")
        return super().around(request, call)


def everything(folder: Path) -> set[str]:
    """A lake that has been through everything, a lake and a table with their history in SQLite; what was written."""
    noted, root = set[str](), str(folder / "lake")
    lake = connect_through(root, lambda inner: Noted(inner, root, noted))
    rows = [{"id": number, "v": f"v{number}", "n": number / 2} for number in range(40)]
    lake.create_table("sales.t", rows, key="id", stable_row_ids=True)
    lake.create_table("u", rows)
    with lake.begin("both", author="me", idempotency_key="once") as tx:
        tx["sales.t"].append([{"id": 100, "v": "x", "n": 0.5}])
        tx["u"].delete("id < 20")
    lake["u"].delete("id = 21")
    lake["sales.t"].update({"v": "'new'"}, "id = 3")
    lake["sales.t"].merge([{"id": 4, "v": "m", "n": 1.0}], on="id").when_matched_update_all().execute()
    lake["sales.t"].create_index("id")
    lake["u"].add_columns({"w": "id"})
    lake["u"].alter_columns({"w": {"type": pa.int32()}})
    lake["u"].set_config({"mine": "1"})
    lake["u"].compact()
    lake["u"].tags.create("table-tag")
    lake.tags.create("q1")
    lake.branches.create("dev")
    dev = lake.branch("dev")
    dev["u"].append(pa.table({"id": [7], "v": ["b"], "n": [1.0], "w": pa.array([1], pa.int32())}))
    lake.merge("dev")
    lake.branches.delete("dev")
    lake["u"].insert(pa.table({"id": [8], "v": ["b"], "n": [1.0], "w": pa.array([1], pa.int32())}))
    lake.at(2, keep="1h")
    lake.rename_table("u", "renamed")
    lake.drop_table("renamed")
    lake.expire(older_than="1d", keep=1, dry_run=False)
    lake.gc(dry_run=False)
    for store in ("lake", "table"):
        address = f"sqlite:///{folder}/{store}.db"
        if store == "lake":
            conroi.connect(folder / "stored", store=address).create_table("t", rows, key="id")
        else:
            conroi.create_table(folder / "stored.lance", rows, store=address)
    return noted


def on_disk(folder: Path) -> Iterator[str]:
    yield from everything(folder)
    for path in sorted(folder.rglob("*")):
        name = alike(str(path.relative_to(folder)))
        if path.is_file() and not name.endswith((".db-shm", ".db-wal")):  # there while SQLite has it open
            yield f"file {name}"
            yield from _inside(path, name)


def _inside(path: Path, name: str) -> Iterator[str]:
    data = path.read_bytes()
    if path.suffix == ".manifest" or ".manifest-" in path.name:
        manifest = decode_manifest_file(data).manifest
        yield from (f"setting {alike(key)}" for key in manifest.head.config)
        yield from (f"table metadata {alike(key)}" for key in manifest.head.table_metadata)
        yield from (f"schema metadata {alike(key)}" for key in manifest.head.schema_metadata)
        yield from (f"field metadata {alike(key)}" for field in manifest.fields for key in field.metadata)
    elif path.suffix == ".txn":
        yield from (f"property {alike(key)}" for key in decode_transaction(data).properties)
    elif path.suffix == ".db":
        with closing(sqlite3.connect(path)) as database:
            for (statement,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"):
                yield f"database {' '.join(statement.split())}"
    elif data.lstrip().startswith((b"{", b"[")):
        yield from (f"document {name}: {key}" for key in _keys(json.loads(data)))


def _keys(value: object, at: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inside in cast("dict[str, Any]", value).items():
            yield f"{at}.{alike(key)}"
            yield from _keys(inside, f"{at}.{alike(key)}")
    elif isinstance(value, list):
        for inside in cast("list[object]", value):
            yield from _keys(inside, f"{at}[]")


def test_nothing_on_disk_is_gone_or_changed(tmp_path: Path) -> None:
    recorded, found = RECORD.read_text(encoding="utf-8").splitlines(), set(on_disk(tmp_path))
    gone = [line for line in recorded if line not in found]
    new = sorted(found - set(recorded))
    assert not gone, "\n".join(["gone or changed:", *gone])
    assert not new, "\n".join(["not recorded yet (python -m tests.static.test_on_disk):", *new])


# ---------------------------------------------------------------------------- where the names are spelled

HOME = "conroi.format.on_disk"
NAME_ON_DISK = re.compile(
    r"(_conroi|_versions|_transactions|_deletions|_indices|_refs|__manifest|tree)(/\S*)?|conroi\.\S*"
)


def spelled(module: Module) -> list[str]:
    """Names of files and of properties that are written out in a module, except in its documentation."""
    texts = {id(node.value) for node in module.nodes if isinstance(node, ast.Expr)}
    return [
        f"{module.name}:{node.lineno} {node.value}"
        for node in module.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts
        if NAME_ON_DISK.fullmatch(node.value) and not _is_module(node.value)
    ]


def _is_module(text: str) -> bool:
    return text in NO_NAMES or any(name == text or name.startswith(f"{text}.") for name in _module_names())


NO_NAMES = {"conroi.", "conroi.secretPin", "conroi.spark.", "conroi.catalog.namespace"}
"""The prefix of module names in `conroi/__init__.py`, an option of Spark, the prefix of its modules, an old path."""


def _module_names() -> set[str]:
    return {module.name for module in conroi_modules()}


def test_names_on_disk_are_spelled_in_one_place():
    assert not [found for module in conroi_modules() if module.name != HOME for found in spelled(module)]


def test_a_name_that_is_spelled_elsewhere_would_be_found():
    source = '"""About conroi.version."""\nA = "_conroi/keys"\nB = "conroi.records"\nC = "conroi.lake"\n'
    found = spelled(Module.parse("conroi.catalog.rows", source))
    assert found == ["conroi.catalog.rows:2 _conroi/keys", "conroi.catalog.rows:3 conroi.records"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        RECORD.write_text("\n".join(sorted(set(on_disk(Path(made))))) + "\n", encoding="utf-8")
