"""Base paths in a manifest that lead out of the lake or the table."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

import conroi
from conroi.format.manifest_file import decode_manifest_file, encode_manifest_file
from tests.hostile.scene import Scene, bounded, photograph, run_all
from tests.support.arrow import column_values
from tests.support.sampling import sampled

pytestmark = pytest.mark.contract("I4")


def rebased(manifest: Path, path: str, *, is_root: bool = True) -> None:
    """Let the newest manifest say that its data files are under another root."""
    file = decode_manifest_file(manifest.read_bytes())
    head = file.manifest.editable_head()
    head.base_paths.add(id=7, path=path, is_dataset_root=is_root)
    fragments = list(file.manifest.fragments)
    for fragment in fragments:
        for data_file in fragment.files:
            data_file.base_id = 7
    changed = file.manifest.changed(head=head, fragments=fragments)
    manifest.write_bytes(encode_manifest_file(changed, file.transaction))


SPELLINGS: dict[str, Callable[[Scene], str]] = {
    "absolute": lambda s: str(s.canary),
    "file URI": lambda s: f"file://{s.canary}",
    "up and out": lambda s: f"{s.lone}/../canary",
    "encoded": lambda s: f"file://{s.lone}/%2E%2E/canary",
    "through a link": lambda s: _linked(s),
    "everything": lambda _: "/",
    "home": lambda _: "~",
    "relative": lambda s: os.path.relpath(s.canary),
    "not a place": lambda _: "s3://?",
    "a prefix of the name": lambda s: f"{s.lone}-clone",
}


def _linked(scene: Scene) -> str:
    (scene.lone / "link").symlink_to(scene.canary)
    return f"{scene.lone}/link"


@pytest.mark.parametrize(
    ("name", "is_root"), sampled("hostile bases", list(product(SPELLINGS, (True, False))), least=6, covers=False)
)
def test_a_base_outside_is_refused(name: str, is_root: bool, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(scene.canary))
    rebased(scene.one("lone/_versions/*.manifest"), SPELLINGS[name](scene), is_root=is_root)
    before = photograph(scene.canary)
    with bounded(60, megabytes=600):
        outcomes = run_all(scene)
    assert photograph(scene.canary) == before
    assert isinstance(outcomes["lone read"].error, conroi.InvalidInputError | conroi.CorruptionError)
    if name not in ("through a link",):
        assert "allow_bases" in (outcomes["lone read"].error.hint or "")
    assert outcomes["lone doctor"].value.of_kind("base-outside")
    assert not outcomes["lone doctor"].value.is_healthy
    assert all(outcomes[f"lone {verb}"].error is not None for verb in ("compact", "clone", "update", "delete"))


def test_a_base_that_the_opener_names_is_used(tmp_path: Path) -> None:
    source = conroi.create_table(tmp_path / "source", [{"id": 1}, {"id": 2}]).delete("id = 1")
    clone = source.clone(str(tmp_path / "clone"))
    assert clone.to_arrow().to_pylist() == [{"id": 2}]  # the handle knows what it was made from
    with pytest.raises(conroi.InvalidInputError, match="outside of"):
        conroi.open_table(tmp_path / "clone").to_arrow()
    for named in (tmp_path / "source", tmp_path, f"file://{tmp_path}/source"):
        opened = conroi.open_table(tmp_path / "clone", allow_bases=[named])
        assert opened.append([{"id": 3}]).delete("id = 3").to_arrow().to_pylist() == [{"id": 2}]
        assert opened.doctor(deep=True).is_healthy


def test_the_base_of_a_lakes_table_is_named_when_the_lake_is_opened(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    lake = conroi.connect(tmp_path / "lake")
    table = lake.create_table("t", [{"id": 1}]).add_base(str(other), name="other", is_table_root=True)
    table.append([{"id": 2}], base="other")
    with pytest.raises(conroi.InvalidInputError, match="outside of"):
        conroi.connect(lake.uri)["t"].to_arrow()
    with pytest.raises(conroi.InvalidInputError, match="outside of"):
        conroi.open_table(table.uri).to_arrow()
    named = conroi.connect(lake.uri, allow_bases=[other])
    for opened in (named["t"], conroi.open_table(table.uri, allow_bases=[other])):
        assert sorted(column_values(opened.to_arrow()["id"])) == [1, 2]
    assert not conroi.connect(lake.uri).doctor().is_healthy
    assert conroi.connect(lake.uri, allow_bases=[other]).doctor(deep=True).is_healthy


@pytest.mark.parametrize("wrong", ["/data", b"/data", 7, [""], [7]])
def test_allow_bases_is_a_list_of_folders(wrong: object, tmp_path: Path) -> None:
    conroi.create_table(tmp_path / "t", [{"id": 1}])
    with pytest.raises(conroi.InvalidInputError):
        conroi.open_table(tmp_path / "t", allow_bases=wrong)  # pyright: ignore[reportArgumentType]
