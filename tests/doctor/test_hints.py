"""What a hint says to do can be done, and then the newest versions are right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pytest

import conroi
from conroi.doctor.subject import ONLY_OLDER
from tests.doctor import damage
from tests.doctor.damage import LIST, examine
from tests.doctor.test_damage import DAMAGES
from tests.support.sampling import sampled

pytestmark = pytest.mark.contract("M4")

Remedy = Callable[[conroi.Lake], object]


def restore_orders(lake: conroi.Lake) -> object:
    return lake["orders"].restore(3)


def make_anew(lake: conroi.Lake) -> None:
    rows = lake.at(version=5)["orders"].to_arrow()
    with lake.begin("anew") as tx:
        tx.drop_table("orders")
        tx.create_table("orders", rows, key="id")


def index_anew(lake: conroi.Lake) -> object:
    return lake["orders"].drop_index("id_idx").create_index("id")


def copy_customers(lake: conroi.Lake) -> None:
    lake.copy("sales.customers", "copied")
    lake.drop_table("sales.customers")


def unset_cleanup(lake: conroi.Lake) -> object:
    return lake["sales.customers"].set_config({"lance.auto_cleanup.interval": None})


REMEDIES: dict[str, Remedy] = {
    "cut_manifest": make_anew,
    "flag_that_no_reader_knows": make_anew,
    "deleted_newest_manifest": make_anew,
    "interrupted_renaming": lambda lake: lake["orders"].migrate_manifest_names(),
    "next_row_id_set_back": restore_orders,
    "two_fragments_with_the_same_row_ids": restore_orders,
    "largest_fragment_id_too_low": lambda lake: lake["sales.customers"].restore(1),
    "deleted_index": index_anew,
    "restored_to_before_the_key": lambda lake: lake["keyed"].declare_key(["id"]),
    "two_names_for_one_folder": lambda lake: lake.deregister("again"),
    "row_without_a_folder": lambda lake: lake.drop_table("nowhere"),
    "row_that_leaves_the_lake": lambda lake: lake.drop_table("outside"),
    "deleted_folder": lambda lake: lake.drop_table("orders"),
    "table_that_was_only_declared": lambda lake: lake.drop_table("declared"),
    "table_in_no_namespace": lambda lake: lake.create_namespace("lost"),
    "pylance_that_cleans_up": unset_cleanup,
    "two_tables_with_one_lock": copy_customers,
    "worker_that_died_while_inserting": lambda lake: lake.insert("orders", [{"id": 7000, "text": "x"}]),
    "worker_that_left_its_own_table": lambda lake: lake.drop_table(f"tmp_{'a' * 32}"),
    "tag_of_a_version_that_never_was": lambda lake: lake["orders"].tags.move("early", 2),
    "folder_of_another_program": lambda lake: lake.register("stray", "stray.lance"),
    "publisher_that_died": lambda lake: lake["orders"].append([{"id": 7000, "text": "x"}]),
    "written_by_path": lambda lake: lake["orders"].append([{"id": 7000, "text": "x"}]),
    "written_by_path_between_publication_and_final_name": lambda lake: lake.mend("orders"),
}


@pytest.mark.parametrize("name", sampled("remedies", [(name,) for name in REMEDIES], least=12, covers=False))
def test_the_remedy_works(name: str, lake: Path) -> None:
    kind, inflict, _ = DAMAGES[name]
    inflict(lake)
    assert examine(lake).of_kind(kind)

    REMEDIES[name](conroi.connect(str(lake)))

    after = examine(lake)
    assert [each for each in after.of_kind(kind) if not each.hint.endswith(ONLY_OLDER)] == [], str(after)


@pytest.mark.parametrize("name", ["two_rows_for_one_name", "row_that_is_not_json", "pin_of_another_version"])
def test_the_list_can_be_taken_back(name: str, lake: Path) -> None:
    """Also where the lake itself cannot be opened any more."""
    _, inflict, _ = DAMAGES[name]
    inflict(lake)
    assert not examine(lake).is_healthy
    the_list = conroi.open_table(str(lake / LIST))
    the_list.restore(the_list.version - 1)
    assert examine(lake).findings == ()
    opened = conroi.connect(str(lake))
    opened["orders"].append([{"id": 7000, "text": "x"}])
    assert lance.dataset(str(lake / damage.ORDERS)).count_rows() == 181
    assert examine(lake).findings == ()
