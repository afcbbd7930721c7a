"""Where a lake may be made, and creating tables again."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import conroi
from conroi import opening
from conroi.doctor import diagnose
from conroi.snapshots.snapshot import TableStorage
from conroi.versions.folder import ManifestRef, VersionStore
from tests.support.servers import S3Server


@pytest.mark.contract("E6")
@pytest.mark.parametrize("store", [False, True])
def test_nothing_is_made_with_create_false(tmp_path: Path, store: bool):
    address = f"sqlite:///{tmp_path}/heads.db" if store else None
    with pytest.raises(conroi.NotFoundError, match="There is no lake"):
        conroi.connect(tmp_path / "typo", store=address, create=False)
    assert not (tmp_path / "typo").exists()
    with pytest.raises(conroi.NotFoundError):
        diagnose(tmp_path / "typo", store=address)
    assert not (tmp_path / "typo").exists()
    made = conroi.connect(tmp_path / "lake", store=address)
    assert conroi.connect(tmp_path / "lake", store=address, create=False).version == made.version


def _iceberg(folder: Path) -> None:
    (folder / "metadata").mkdir(parents=True)
    (folder / "metadata" / "00000-1.metadata.json").write_text("{}")


PLACES = {
    "a Lance table": lambda folder: lance.write_dataset(pa.table({"a": [1]}), folder),
    "a Delta table": lambda folder: write_deltalake(str(folder), pa.table({"a": [1]})),
    "an Iceberg table": _iceberg,
    "a lake": lambda folder: conroi.connect(folder),
}


@pytest.mark.contract("E6")
@pytest.mark.parametrize("below", ["", "x", "x/y"])
@pytest.mark.parametrize("kind", PLACES)
def test_no_lake_is_made_inside_a_table_or_another_lake(tmp_path: Path, kind: str, below: str):
    PLACES[kind](tmp_path / "there")
    before = sorted(tmp_path.rglob("*"))
    place = tmp_path / "there" / below
    if kind == "a lake" and not below:
        assert conroi.connect(place).version == 1
        return
    for store in (None, f"sqlite:///{tmp_path}.db"):
        with pytest.raises(conroi.InvalidInputError, match=kind) as caught:
            conroi.connect(place, store=store)
        assert caught.value.hint
    assert sorted(tmp_path.rglob("*")) == before
    assert conroi.connect(tmp_path / "beside").version == 1


@pytest.mark.contract("E6")
def test_no_lake_is_made_inside_another_one_on_an_object_store(moto: S3Server):
    root, options = moto.new_uri("x").rpartition("/")[0], moto.options
    conroi.connect(f"{root}/lake", storage_options=options)
    conroi.create_table(f"{root}/t.lance", [{"id": 1}], storage_options=options)
    for place, kind in (("lake/x/y", "a lake"), ("t.lance", "a Lance table"), ("t.lance/x", "a Lance table")):
        with pytest.raises(conroi.InvalidInputError, match=kind):
            conroi.connect(f"{root}/{place}", storage_options=options)
    with pytest.raises(conroi.NotFoundError):
        conroi.connect(f"{root}/typo", storage_options=options, create=False)


@pytest.mark.contract("E6")
def test_many_make_one_lake_at_once(tmp_path: Path):
    with ThreadPoolExecutor(8) as pool:
        lakes = list(pool.map(lambda _: conroi.connect(tmp_path / "lake"), range(8)))
    assert {lake.version for lake in lakes} == {1}


# ------------------------------------------------------------------------------ tables


ROWS = [{"id": 1, "name": "a"}]


@pytest.mark.contract("E7")
def test_a_script_that_runs_twice_finds_its_table(lake: conroi.Lake, tmp_path: Path):
    for _ in range(2):
        made = lake.create_table("t", ROWS, key="id", exist_ok=True)
        assert made.to_arrow().to_pylist() == ROWS
        alone = conroi.create_table(tmp_path / "t.lance", ROWS, key="id", exist_ok=True)
        assert (alone.version, alone.to_arrow().to_pylist()) == (1, ROWS)
        with lake.begin() as tx:
            staged = tx.create_table("u", ROWS, exist_ok=True)
            assert staged.to_arrow().to_pylist() == ROWS
            tx.create_table("u", ROWS, exist_ok=True)
    assert lake["t"].version == lake["u"].version == 1
    with pytest.raises(conroi.AlreadyExistsError):
        lake.create_table("t", ROWS)


@pytest.mark.contract("E7")
@pytest.mark.parametrize(
    ("what", "key"),
    [
        (ROWS, "name"),
        (ROWS, ["id", "name"]),
        (pa.schema({"id": pa.int64()}), None),
        (pa.schema({"id": pa.int32(), "name": pa.string()}), "id"),
    ],
)
def test_a_table_with_other_columns_or_another_key_is_refused(
    lake: conroi.Lake, tmp_path: Path, what: pa.Schema | list[dict[str, object]], key: str | list[str] | None
):
    lake.create_table("t", ROWS, key="id")
    conroi.create_table(tmp_path / "t.lance", ROWS, key="id")
    with pytest.raises(conroi.AlreadyExistsError, match="already"):
        lake.create_table("t", what, key=key, exist_ok=True)
    with pytest.raises(conroi.AlreadyExistsError, match="already"):
        conroi.create_table(tmp_path / "t.lance", what, key=key, exist_ok=True)


@pytest.mark.contract("E7")
def test_of_many_that_create_at_once_all_get_the_one_table(tmp_path: Path):
    lake = conroi.connect(tmp_path / "lake")
    with ThreadPoolExecutor(6) as pool:
        made = list(
            pool.map(lambda n: lake.create_table("t", [{"id": n}], key="id", exist_ok=True).to_arrow(), range(6))
        )
    assert len({table["id"].to_pylist()[0] for table in made}) == 1
    assert lake["t"].version == 1
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda n: conroi.create_table(tmp_path / "a.lance", [{"id": n}], exist_ok=True), range(6)))
    assert conroi.open_table(tmp_path / "a.lance").count_rows() == 1


class CreatedMeanwhile:
    """The versions of a table that a concurrent writer creates right after the first look-up."""

    def __init__(self, inner: VersionStore, create: Callable[[], object]) -> None:
        self._inner = inner
        self._create: Callable[[], object] | None = create

    def latest(self) -> ManifestRef | None:
        found, create, self._create = self._inner.latest(), self._create, None
        if create is not None:
            create()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.contract("E7")
@pytest.mark.parametrize("exist_ok", [True, False])
def test_a_table_that_is_created_between_two_look_ups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exist_ok: bool
) -> None:
    """It was looked up twice; a table that appeared in between was refused in spite of exist_ok."""
    uri, real = tmp_path / "a.lance", opening.table_storage

    def racing(*args: Any, **options: Any) -> TableStorage:
        monkeypatch.setattr(opening, "table_storage", real)
        files = real(*args, **options)
        versions: Any = CreatedMeanwhile(files.versions, lambda: conroi.create_table(uri, [{"id": 1}]))
        return replace(files, versions=versions)

    monkeypatch.setattr(opening, "table_storage", racing)
    if exist_ok:
        assert conroi.create_table(uri, [{"id": 2}], exist_ok=True).to_arrow().to_pylist() == [{"id": 1}]
    else:
        with pytest.raises(conroi.AlreadyExistsError):
            conroi.create_table(uri, [{"id": 2}])
    assert conroi.open_table(uri).to_arrow().to_pylist() == [{"id": 1}]


@pytest.mark.contract("E7")
def test_a_schema_beside_data_gives_the_types(lake: conroi.Lake, tmp_path: Path):
    schema = pa.schema(
        {"id": pa.int32(), "vec": pa.list_(pa.float32(), 2), "when": pa.timestamp("us", "UTC"), "note": pa.string()}
    )
    rows = [{"id": 1, "vec": [1.0, 2.5], "when": None}]
    for table in (
        lake.create_table("v", rows, schema=schema),
        lake.create_table("w", pa.table({"id": [1], "vec": [[1.0, 2.5]], "when": [None]}), schema=schema, key="id"),
        conroi.create_table(os.fspath(tmp_path / "v.lance"), rows, schema=schema),
    ):
        assert [(field.name, field.type) for field in table.schema] == [(field.name, field.type) for field in schema]
        assert table.to_arrow().to_pylist() == [{"id": 1, "vec": [1.0, 2.5], "when": None, "note": None}]
    with pytest.raises(conroi.InvalidInputError):
        lake.create_table("x", [{"id": 2**40}], schema=schema)
    with pytest.raises(conroi.InvalidInputError, match="not have"):
        lake.create_table("x", [{"id": 1, "other": 1}], schema=schema)
    with pytest.raises(conroi.InvalidInputError, match="two schemas"):
        lake.create_table("x", schema, schema=schema)
    assert "x" not in lake
