"""Manifest names: a table keeps the scheme it has with every writer, and moves from V1 to V2 when asked."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import lance
import pytest

import conroi
from conroi import ManifestNaming, operations
from tests.interop.readers import assert_seen
from tests.interop.tables import Kind, Stable, manifest_names
from tests.interop.verbs import named

pytestmark = pytest.mark.contract("T2")

LAST = 2**64 - 1


def names(naming: ManifestNaming, versions: range) -> list[str]:
    """What the files must be called, by the rule itself."""
    if naming is ManifestNaming.V1:
        return sorted(f"{version}.manifest" for version in versions)
    return sorted(f"{LAST - version:020d}.manifest" for version in versions)


@pytest.mark.parametrize("maker", ["conroi", "pylance"])
@pytest.mark.parametrize("naming", list(ManifestNaming), ids=lambda naming: naming.name)
def test_both_writers_keep_the_scheme_the_table_has(tables: Stable, maker: str, naming: ManifestNaming) -> None:
    root, model = tables.copy(Kind(maker, naming=naming))
    verb = named("append")
    assert verb.ours
    assert verb.theirs
    for _ in range(6):  # past version 9, where V1 names stop sorting like numbers
        verb.ours(conroi.open_table(root), model)
        verb.change(model)
        verb.theirs(lance.dataset(str(root)), model)
        verb.change(model)
        assert_seen(root, model)
    table = conroi.open_table(root)
    assert table.naming is naming
    assert manifest_names(root) == names(naming, range(1, table.version + 1))
    assert (
        table.versions()
        == list(range(1, table.version + 1))
        == [v["version"] for v in lance.dataset(str(root)).versions()]
    )


@pytest.mark.parametrize("by", ["conroi", "pylance"])
@pytest.mark.parametrize("maker", ["conroi", "pylance"])
def test_a_table_migrates_from_v1_to_v2_and_both_go_on(tables: Stable, maker: str, by: str) -> None:
    root, model = tables.copy(Kind(maker, naming=ManifestNaming.V1))
    first = conroi.open_table(root)
    if by == "conroi":
        assert first.migrate_manifest_names().naming is ManifestNaming.V2
    else:
        lance.dataset(str(root)).migrate_manifest_paths_v2()
    assert manifest_names(root) == names(ManifestNaming.V2, range(1, first.version + 1))
    assert_seen(root, model, version=first.version)
    for name in ("append", "delete", "update rows", "merge", "compact"):
        verb = named(name)
        assert verb.ours
        assert verb.theirs
        verb.ours(conroi.open_table(root), model)
        verb.change(model)
        assert_seen(root, model)
        verb.theirs(lance.dataset(str(root)), model)
        verb.change(model)
        assert_seen(root, model)
    newest = conroi.open_table(root)
    assert manifest_names(root) == names(ManifestNaming.V2, range(1, newest.version + 1))
    assert newest.at(1).count_rows() == lance.dataset(str(root), version=1).count_rows() == 30


@pytest.mark.parametrize("by", ["conroi", "pylance"])
def test_a_table_that_was_open_before_the_migration_is_written_on(tables: Stable, by: str) -> None:
    root, model = tables.copy(Kind("pylance", naming=ManifestNaming.V1))
    before = conroi.open_table(root)
    if by == "conroi":
        conroi.open_table(root).migrate_manifest_names()
    else:
        lance.dataset(str(root)).migrate_manifest_paths_v2()
    before.append(model.new(range(300, 304)))
    model.append(model.make(range(300, 304)))
    assert_seen(root, model)
    assert manifest_names(root) == names(ManifestNaming.V2, range(1, before.version + 2))


def test_detached_versions_of_pylance_are_not_taken_for_the_newest(tables: Stable) -> None:
    root, model = tables.copy(Kind("pylance"))
    dataset = lance.dataset(str(root))
    operation = lance.LanceOperation.Append(lance.fragment.write_fragments(model.new(range(300, 304)), dataset))
    detached = lance.LanceDataset.commit(str(root), operation, read_version=dataset.version, detached=True)
    assert len([name for name in manifest_names(root) if name.startswith("d")]) == 1
    assert_seen(root, model, version=dataset.version)
    assert conroi.open_table(root).versions() == list(range(1, dataset.version + 1))
    assert conroi.open_table(root).at(detached.version).count_rows() == detached.count_rows() == len(model.rows) + 4
    conroi.open_table(root).append(model.new(range(500, 502)))
    model.append(model.make(range(500, 502)))
    assert_seen(root, model, version=dataset.version + 1)


def test_a_detached_version_of_ours_is_read_by_pylance_and_moves_nothing(tables: Stable) -> None:
    root, model = tables.copy(Kind("pylance"))
    before = conroi.open_table(root)
    staged = before.append(model.new([500, 501]), detached=True)
    operation = operations.UpdateConfig(config=operations.update_map({"staged": "yes"}))
    transaction = operations.transaction(operation, read_version=before.version, uuid=str(uuid4()))
    for version, rows, config in (
        (staged.version, len(model.rows) + 2, {}),
        (conroi.commit(root, transaction, detached=True).version, len(model.rows), {"staged": "yes"}),
    ):
        assert version >= 1 << 63
        assert f"d{version}.manifest" in manifest_names(root)
        theirs, ours = lance.dataset(str(root), version=version), conroi.open_table(root, version=version)
        assert theirs.version == ours.version == version
        assert theirs.config() == ours.config == config
        assert theirs.count_rows() == ours.count_rows() == len(ours.to_arrow()) == rows
    assert_seen(root, model, version=before.version)
    lance.dataset(str(root)).insert(model.new([600]))
    model.append(model.make([600]))
    assert_seen(root, model, version=before.version + 1)


def test_a_version_left_under_the_other_scheme_is_never_lost_silently(tables: Stable) -> None:
    root, model = tables.copy(Kind("pylance", naming=ManifestNaming.V1))
    newest = conroi.open_table(root).version
    old_path: Path = root / ManifestNaming.V1.path(newest)
    old_path.rename(root / ManifestNaming.V2.path(newest))  # a migration that was interrupted after its first rename
    table = conroi.open_table(root)
    assert table.version == newest
    assert table.count_rows() == len(model.rows)
    with pytest.raises(conroi.CorruptionError, match="both naming schemes"):
        table.versions()
    table.migrate_manifest_names()
    assert_seen(root, model, version=newest)
