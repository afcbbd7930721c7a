"""Tables to start from: each made once, by conroi or by pylance, and then copied as a folder."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, cast

import lance

import conroi
from conroi import ManifestNaming
from tests.interop.model import Model, Where, base_columns

SEVENTHS = Where("id % 7 = 3", lambda row: row["id"] % 7 == 3)
SOME = Where("id IN (2, 16, 33, 34)", lambda row: row["id"] in (2, 16, 33, 34))


@dataclass(frozen=True)
class Kind:
    """What sort of table: who made it, and how."""

    maker: str
    stable_row_ids: bool = False
    naming: ManifestNaming = ManifestNaming.V2
    data_format: str = "2.2"

    def __str__(self) -> str:
        ids = "stable" if self.stable_row_ids else "plain"
        return f"{self.maker}-{ids}-{self.naming.name}-{self.data_format}"


def kinds(maker: str) -> list[Kind]:
    """With and without stable row ids, V1 and V2 names."""
    return [Kind(maker, stable, naming) for stable in (False, True) for naming in ManifestNaming]


def two_kinds(maker: str) -> list[Kind]:
    """Both answers to both questions, where all four pairs would take too long: the two have no part in common."""
    return [Kind(maker, False, ManifestNaming.V1), Kind(maker, True, ManifestNaming.V2)]


@dataclass
class Stable:
    """Keeps one finished table of each kind, and hands out copies with their model."""

    folder: Path
    made: dict[Kind, tuple[Path, Model]] = field(default_factory=dict[Kind, tuple[Path, Model]])
    numbers: count[int] = field(default_factory=count)

    def copy(self, kind: Kind) -> tuple[Path, Model]:
        if kind not in self.made:
            self.made[kind] = make(self.folder / f"made-{kind}", kind)
        source, model = self.made[kind]
        target = self.folder / f"copy-{next(self.numbers)}"
        shutil.copytree(source, target)
        return target, model.copy()


def make(root: Path, kind: Kind) -> tuple[Path, Model]:
    """Fifty rows in two fragments; some are deleted, and some were updated, so that they moved to a third."""
    model = Model(base_columns(null_structs=kind.data_format != "2.0"))
    first, second = model.new(range(30)), model.new(range(30, 50))
    if kind.maker == "conroi":
        table = conroi.create_table(
            root, first, stable_row_ids=kind.stable_row_ids, naming=kind.naming, data_format=kind.data_format
        )
        table.append(second).delete(SEVENTHS.sql).update({"v": "id + 1000"}, SOME.sql, mode="rows")
    else:
        dataset = lance.write_dataset(
            first,
            str(root),
            enable_stable_row_ids=kind.stable_row_ids,
            enable_v2_manifest_paths=kind.naming is ManifestNaming.V2,
            data_storage_version=cast("Any", kind.data_format),
        )
        dataset.insert(second)
        dataset.delete(SEVENTHS.sql)
        dataset.update({"v": "id + 1000"}, SOME.sql)
    model.append(model.make(range(50)))
    model.delete(SEVENTHS)
    model.update({"v": lambda row: row["id"] + 1000}, SOME)
    return root, model


def manifest_names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "_versions").glob("*.manifest"))


def newest_manifest(root: Path) -> Path:
    """The manifest file of the newest version, by its name."""
    by_version = {
        2**64 - 1 - int(path.stem) if len(path.stem) == 20 else int(path.stem): path
        for path in (root / "_versions").glob("[0-9]*.manifest")
    }
    return by_version[max(by_version)]


def data_files(root: Path) -> list[dict[str, Any]]:
    """What pylance says about every data file of the newest version."""
    fragments = lance.dataset(str(root)).get_fragments()
    return [file for fragment in fragments for file in json.loads(json.dumps(fragment.metadata.to_json()))["files"]]
