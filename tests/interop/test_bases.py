"""Files of one table under several roots."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest
from lance.lance import DatasetBasePath

import conroi
from tests.interop.model import Model
from tests.interop.readers import assert_seen, opened
from tests.interop.tables import data_files
from tests.interop.verbs import VERBS, named
from tests.support.pylance import bases

pytestmark = pytest.mark.contract("T5")


def by_pylance(root: Path, model: Model, ids: range, base: str) -> None:
    lance.write_dataset(model.new(ids), str(root), mode="append", target_bases=[base])
    model.append(model.make(ids))


@pytest.mark.parametrize(
    ("maker", "is_root", "stable"), [("conroi", True, False), ("conroi", False, True), ("pylance", False, False)]
)
def test_rows_that_pylance_put_under_another_root_take_every_verb_of_ours(
    tmp_path: Path, maker: str, is_root: bool, stable: bool
) -> None:
    root, model = tmp_path / "table", Model()
    (tmp_path / "other" / "data").mkdir(parents=True)
    other = str(tmp_path / "other")
    if maker == "conroi":
        table = conroi.create_table(root, model.new(range(20)), stable_row_ids=stable)
        table.add_base(other, name="other", is_table_root=is_root)
    else:
        lance.write_dataset(
            model.new(range(20)),
            str(root),
            initial_bases=[DatasetBasePath(other, name="other", is_dataset_root=is_root)],
            enable_stable_row_ids=stable,
        )
    model.append(model.make(range(20)))
    assert_seen(root, model)
    by_pylance(root, model, range(20, 50), "other")
    assert {file.get("base_id") for file in data_files(root)} == {None, 1}
    assert_seen(root, model)
    for verb in VERBS:
        if verb.ours and verb.applies(model):
            verb.ours(opened(root), model)
            verb.change(model)
            assert_seen(root, model)
    for name in ("append", "delete", "merge", "compact"):
        verb = named(name)
        assert verb.theirs
        verb.theirs(lance.dataset(str(root)), model)
        verb.change(model)
        assert_seen(root, model)


def test_a_base_of_ours_is_there_for_pylance_and_a_second_of_the_same_name_is_refused(tmp_path: Path) -> None:
    model = Model()
    table = conroi.create_table(tmp_path / "table", model.new(range(3)))
    table = table.add_base(str(tmp_path / "one"), name="one").add_base(str(tmp_path / "two"), is_table_root=True)
    found = bases(lance.dataset(str(tmp_path / "table")))
    assert {(base.id, base.name, base.path, base.is_dataset_root) for base in found.values()} == {
        (1, "one", str(tmp_path / "one"), False),
        (2, None, str(tmp_path / "two"), True),
    }
    with pytest.raises(conroi.ConroiError):
        table.add_base(str(tmp_path / "three"), name="one")
    assert table.latest().version == table.version
