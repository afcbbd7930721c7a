"""A table forks at its first write on a branch: into a Lance branch that pylance reads, beside concurrent writers."""

from __future__ import annotations

import os
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.catalog.participant import PublishRequest
from conroi.catalog.publication import Publishing
from conroi.catalog.rows import TABLE, Row
from conroi.catalog.state import CommitMetadata
from conroi.format.manifest_file import decode_manifest_file
from conroi.snapshots.pin import Pin
from conroi.testing import CountingObjects, Meter, connect_through
from tests.branches.conftest import numbers
from tests.support.arrow import column_values
from tests.support.together import Meet, together

BASE_PATHS = 16


def branch_of(lake: conroi.Lake, name: str = "dev") -> str:
    found = lake.branches.get(name).lance_name
    assert found is not None
    return found


@pytest.mark.contract("B1")
def test_pylance_reads_a_forked_table_by_its_own_branch_api(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev["orders"].append([{"id": 4, "n": 40}])
    dev["orders"].delete("id = 1")
    name, table = branch_of(lake), lance.dataset(f"{lake.uri}/orders.lance")

    assert list(table.branches.list()) == [name]
    branch = table.checkout_version((name, None))
    assert branch.version == dev["orders"].version == 3
    assert sorted(column_values(branch.to_table()["id"])) == [2, 3, 4]
    assert branch.checkout_version((name, 2)).count_rows() == 4
    assert branch.checkout_version((name, 1)).count_rows() == 3, "the version at which it forked is there too"
    assert table.count_rows() == 3
    assert list(lance.dataset(f"{lake.uri}/__manifest").branches.list()) == [name]


@pytest.mark.contract("B1")
def test_the_fork_has_what_pylance_gives_a_branch_of_its_own(tmp_path: Path, lake: conroi.Lake) -> None:
    theirs = lance.write_dataset(pa.table({"id": [1, 2]}), tmp_path / "theirs.lance")
    theirs.delete("id = 2")
    theirs.create_branch("b")
    lake.branches.create("dev")
    dev = lake.branch("dev")
    lake["orders"].delete("id = 2")  # after the branch: not in it
    dev["orders"].append([{"id": 4, "n": 40}])

    def first(folder: str, version: int):
        path = f"{folder}/_versions/{2**64 - 1 - version}.manifest"
        return decode_manifest_file(Path(path).read_bytes()).manifest

    mine = first(dev["orders"].uri, 1)
    other = first(f"{tmp_path}/theirs.lance/tree/b", 2)
    assert mine.version == 1, "it keeps the number"
    assert mine.head.branch == branch_of(lake)
    for manifest, root in ((mine, f"{lake.uri}/orders.lance"), (other, f"{tmp_path}/theirs.lance")):
        (base,) = manifest.head.base_paths
        assert (base.id, base.is_dataset_root, base.path) == (0, True, root)
        assert all(file.base_id == 0 and file.HasField("base_id") for f in manifest.fragments for file in f.files)
        assert manifest.head.reader_feature_flags & manifest.head.writer_feature_flags & BASE_PATHS


def test_pylance_goes_on_with_a_forked_table_by_its_path(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev["orders"].append([{"id": 4, "n": 40}])
    branch = lance.dataset(f"{lake.uri}/orders.lance").checkout_version((branch_of(lake), None))

    branch.delete("id = 1")  # an out-of-band write: by path, past the lake
    dev["orders"].append([{"id": 5, "n": 50}])

    assert sorted(numbers(dev)) == [2, 3, 4, 5], "adopted, as on the main branch"
    assert sorted(numbers(lake)) == [1, 2, 3]


# ---------------------------------------------------------------------------- first writers


def _append_first(job: tuple[str, int], meet: Meet) -> int:
    uri, number = job
    table = conroi.connect(uri, branch="dev")["orders"]
    meet()
    return table.append([{"id": number, "n": number}]).version


@pytest.mark.contract("B1", "P5")
def test_of_eight_first_writers_one_forks_and_the_others_go_on(tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("orders", [{"id": 1, "n": 1}], key="id")
    lake.branches.create("dev")

    versions = together(_append_first, [(lake.uri, 100 + n) for n in range(8)])

    assert sorted(versions) == list(range(2, 10))
    dev = lake.branch("dev")
    assert sorted(numbers(dev)) == [1, *range(100, 108)]
    assert numbers(lake) == {1: 1}
    branch = lance.dataset(f"{lake.uri}/orders.lance").checkout_version((branch_of(lake), None))
    assert branch.count_rows() == 9
    assert [v["version"] for v in branch.versions()] == list(range(1, 10))


def test_a_first_writer_is_rebased_over_another(lake: conroi.Lake, dev: conroi.Lake) -> None:
    late = dev.begin("late")
    late["orders"].delete("id = 1")
    conroi.connect(lake.uri, branch="dev")["orders"].delete("id = 2")

    result = late.commit()

    assert result.rebased == {"orders": (2,)}
    assert sorted(numbers(dev)) == [3]


# ---------------------------------------------------------------------------- costs


def lake_of(uri: str, tables: int) -> conroi.Lake:
    """A lake that lists so many tables, without making the tables."""
    lake = conroi.connect(uri)
    rows = {
        f"t{n}": Row(f"t{n}", TABLE, f"t{n}.lance").pinned_at(
            Pin(1, f"_versions/{2**64 - 2}.manifest", "00000000-0000-0000-0000-000000000000")
        )
        for n in range(tables)
    }
    Publishing(lake.catalog, PublishRequest(lake.catalog.state(), rows=rows, notes=CommitMetadata("many"))).run()
    return lake


@pytest.mark.contract("B1")
def test_making_a_branch_costs_the_same_whatever_the_number_of_tables(tmp_path: Path) -> None:
    requests: list[int] = []
    for tables in (1, 1000):
        uri, meter = str(tmp_path / f"lake{tables}"), Meter()
        lake_of(uri, tables)
        lake = connect_through(uri, lambda objects, meter=meter: CountingObjects(objects, meter))
        with meter.measure() as measured:
            lake.branches.create("dev")
        requests.append(measured.requests())
        with meter.measure() as control:  # the instrument can tell: a look at each table is as many requests
            for row in lake.branch("dev").catalog.state().tables():
                lake.catalog.objects(row.location or "").head("x")
        assert control.requests() >= tables

    assert requests[0] == requests[1]
    assert requests[1] <= 13  # one of them lists the tables that other Lance clients have opened


# ---------------------------------------------------------------------------- the folder moves


@pytest.mark.contract("B1")
def test_a_lake_whose_folder_was_moved_keeps_its_branches(tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "before")
    lake.create_table("orders", [{"id": i, "n": i} for i in range(5)], key="id")
    lake["orders"].delete("id = 4")
    lake.create_table("never", [{"id": 1, "n": 1}], key="id")
    lake.branches.create("dev")
    lake.branch("dev")["orders"].append([{"id": 9, "n": 9}])
    lake.branches.create("deeper", from_="dev")
    lake.branch("deeper")["orders"].delete("id = 0")
    name = branch_of(lake)

    os.rename(tmp_path / "before", tmp_path / "after")
    moved = conroi.connect(tmp_path / "after")

    assert sorted(numbers(moved.branch("dev"))) == [0, 1, 2, 3, 9]
    assert sorted(numbers(moved.branch("deeper"))) == [1, 2, 3, 9]
    assert sorted(numbers(moved.branch("dev"), "never")) == [1]
    # pylance reads base paths as they are written, so it fails on the branch until something is committed there.
    table = lance.dataset(str(tmp_path / "after/orders.lance"))
    with pytest.raises((OSError, ValueError), match=r"[Nn]ot found"):
        table.checkout_version((name, None)).to_table()
    moved.branch("dev")["orders"].append([{"id": 10, "n": 10}])
    assert table.checkout_version((name, None)).count_rows() == 6
    assert sorted(numbers(moved.branch("dev"))) == [0, 1, 2, 3, 9, 10]
    moved.merge("deeper")
    assert sorted(numbers(moved)) == [1, 2, 3, 9]


@pytest.mark.contract("P7")
def test_the_names_of_tables_are_the_key_of_a_branch_too(lake: conroi.Lake, dev: conroi.Lake) -> None:
    for _ in range(2):  # as it was made, and as a publication left it
        manifest = lance.dataset(f"{lake.uri}/__manifest").checkout_version((branch_of(lake), None))
        (key,) = [field for field in manifest.schema if field.metadata]
        assert key.name == "object_id"
        assert key.metadata == {b"lance-schema:unenforced-primary-key:position": b"0"}
        dev.create_table("fresh", [{"id": 1}]) if "fresh" not in dev else None
    with pytest.raises(conroi.AlreadyExistsError):
        conroi.connect(lake.uri, branch="dev").create_table("fresh", [{"id": 1}])


def test_indices_from_before_the_branch_are_used_on_it(lake: conroi.Lake) -> None:
    lake["orders"].create_index("id")
    lake["orders"].append([{"id": 4, "n": 40}])
    lake.branches.create("dev")
    dev = lake.branch("dev")

    assert "ScalarIndexQuery" in dev["orders"].to_lance().scanner(filter="id = 2").explain_plan()
    assert dev["orders"].to_arrow(filter="id = 2")["n"].to_pylist() == [20]
    past = dev["orders"].at(version=2)  # never written on the branch, so it is read without its indices
    assert past.to_arrow(filter="id = 2")["n"].to_pylist() == [20]
    dev["orders"].append([{"id": 5, "n": 50}])
    lake.branches.create("deeper", from_="dev")
    deeper = lake.branch("deeper")
    assert deeper["orders"].to_arrow(filter="id = 5")["n"].to_pylist() == [50]
    deeper["orders"].create_index("n")
    assert sorted(deeper["orders"].indices) == ["id_idx", "n_idx"]
    assert deeper["orders"].to_arrow(filter="n = 20")["id"].to_pylist() == [2]


@pytest.mark.parametrize("verb", ["index", "compact", "columns", "restore"])
def test_whatever_comes_first_on_a_branch(lake: conroi.Lake, verb: str) -> None:
    lake["orders"].append([{"id": 4, "n": 40}])
    lake["orders"].create_index("id")
    lake.branches.create("dev")
    table = lake.branch("dev")["orders"]
    if verb == "index":
        table = table.create_index("n")
    elif verb == "compact":
        table = table.compact()
    elif verb == "columns":
        table = table.add_columns({"double": "n * 2"})
    else:
        table = table.restore(2)

    assert sorted(column_values(table.to_arrow(filter="id > 0")["n"])) == [10, 20, 30, 40]
    assert table.to_arrow(filter="n = 20")["id"].to_pylist() == [2]
    assert numbers(lake) == {1: 10, 2: 20, 3: 30, 4: 40}
    lake.merge("dev")
    assert numbers(lake) == {1: 10, 2: 20, 3: 30, 4: 40}


def test_a_branch_is_forked_right_after_its_past_was_looked_at(lake: conroi.Lake, dev: conroi.Lake) -> None:
    dev["orders"].append([{"id": 4, "n": 40}])
    lake.branches.create("deeper", from_="dev")
    deeper = conroi.connect(lake.uri, branch="deeper")
    assert deeper.at(version=2)["orders"].count_rows() == 3
    deeper["orders"].delete("id = 1")

    branch = lance.dataset(f"{lake.uri}/orders.lance").checkout_version((branch_of(lake, "deeper"), None))
    assert [version["version"] for version in branch.versions()] == [2, 3]


def test_a_namespace_of_a_branch_serves_pylance(lake: conroi.Lake, dev: conroi.Lake) -> None:
    from lance_namespace import ListNamespacesRequest, ListTablesRequest

    from conroi.namespace import ConroiNamespace

    served = ConroiNamespace(dev)
    assert lance.dataset(namespace_client=served, table_id=["log"]).count_rows() == 2  # not written there yet
    lance.write_dataset(pa.table({"text": ["c"]}), namespace_client=served, table_id=["log"], mode="append")
    assert dev["log"].count_rows() == 3
    assert lake["log"].count_rows() == 2

    lake.merge("dev")

    assert lake["log"].count_rows() == 3
    here = ConroiNamespace(lake)
    assert here.list_namespaces(ListNamespacesRequest(id=[])).namespaces == []
    theirs = lance.namespace.DirectoryNamespace(root=lake.uri)  # pylance's own, beside what we noted of the merge
    assert sorted(theirs.list_tables(ListTablesRequest(id=[])).tables) == ["log", "orders"]
