"""Where the versions of a table on a branch are: its lineage belongs to the row that pins it, its folder to one line.

Rows are written by hand; what pylance reads by path is compared with them too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.catalog.rows import seen_on
from conroi.errors import ConflictError, ExpectedVersionMismatch, RetryableConflict
from conroi.lake_snapshot import LakeReader
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("B12")


def ids(lake: LakeReader, name: str = "t") -> list[int]:
    return sorted(row["id"] for row in lake[name].to_arrow().to_pylist())


def on_branch(rows: Any, key: str | None = "id") -> tuple[conroi.Lake, conroi.Lake]:
    """A lake with one table `t`, and a branch `dev` of it."""
    import uuid

    lake = conroi.connect(f"memory://{uuid.uuid4().hex}")
    lake.create_table("t", rows, key=key)
    lake.branches.create("dev")
    return lake, lake.branch("dev")


def branched(lake: conroi.Lake, name: str, from_: str) -> conroi.Lake:
    lake.branches.create(name, from_=from_)
    return lake.branch(name)


def again(lake: conroi.Lake, name: str) -> conroi.Lake:
    """The branch, opened by another client."""
    return conroi.connect(lake.uri, branch=name)


def test_a_table_made_on_a_branch_is_read_and_written_on_a_branch_of_it() -> None:
    """I7."""
    lake, dev = on_branch([{"id": 1}])
    dev.create_table("new", [{"id": 7}], key="id")
    n = branched(lake, "n", "dev")

    assert ids(n, "new") == ids(again(lake, "n"), "new") == [7]
    n["new"].append([{"id": 8}])
    dev["new"].append([{"id": 9}])
    m = branched(lake, "m", "n")
    m["new"].delete("id = 7")
    for name, wanted in {"dev": [7, 9], "n": [7, 8], "m": [8]}.items():
        opened = again(lake, name)
        assert ids(opened, "new") == wanted
        assert sorted(column_values(lance.dataset(opened["new"].uri).to_table()["id"])) == wanted


def test_a_table_that_comes_back_gets_another_folder() -> None:
    """I8: `tree/dev-…` has versions 2 of its own."""
    lake, dev = on_branch([{"id": 1}])
    dev["t"].append([{"id": 2}])
    had, folder = dev.version, dev["t"].uri
    dev.drop_table("t")
    lake["t"].append([{"id": 3}])

    dev.merge("main", prefer="source")

    assert ids(dev) == ids(again(lake, "dev")) == [1, 3]
    assert ids(dev.at(had)) == ids(again(lake, "dev").at(had)) == [1, 2]
    assert dev["t"].uri != folder
    dev["t"].append([{"id": 4}])
    assert ids(dev) == ids(again(lake, "dev")) == [1, 3, 4]
    assert ids(dev.at(had)) == [1, 2]
    assert lake.doctor(deep=True).is_healthy


def test_a_table_that_comes_back_with_older_versions_gets_another_folder() -> None:
    """The folder was never written, but an older state reads version 2 of the main branch by it."""
    lake, work = on_branch([{"id": 1}])
    older = branched(lake, "older", "main")
    lake["t"].append([{"id": 2}])
    work.merge("main")
    had = work.version
    older.rename_table("t", "e")
    work.drop_table("t")

    work.merge("older", prefer="source")
    work["e"].append([{"id": 9}])

    assert sorted(column_values(work["e"].to_arrow()["id"])) == [1, 9]
    for opened in (work, again(lake, "dev")):
        assert ids(opened.at(had)) == [1, 2]
    assert lake.doctor(deep=True).is_healthy


@pytest.fixture
def forwarded() -> tuple[conroi.Lake, conroi.Lake, int]:
    """A branch of a branch that had version 3 of `t` from dev and then got version 3 from main; when it had dev's."""
    lake, dev = on_branch([{"id": 1}])
    dev["t"].append([{"id": 2}])
    dev["t"].append([{"id": 3}])
    lake.merge("dev")
    n = branched(lake, "n", "dev")
    assert ids(n) == [1, 2, 3]
    had = n.version
    lake["t"].append([{"id": 4}])
    n.merge("main")
    return lake, n, had


def test_a_fast_forward_on_a_branch_of_a_branch_is_read_in_every_handle(
    forwarded: tuple[conroi.Lake, conroi.Lake, int],
) -> None:
    """I9: both versions are number 3 of the table."""
    lake, n, had = forwarded
    for opened in (n, again(lake, "n")):
        assert ids(opened) == [1, 2, 3, 4]
        assert ids(opened.at(had)) == [1, 2, 3]
        assert ids(opened) == [1, 2, 3, 4], "reading the past changes nothing"
    n["t"].append([{"id": 5}])
    for opened in (n, again(lake, "n")):
        assert ids(opened) == [1, 2, 3, 4, 5]
        assert ids(opened.at(had)) == [1, 2, 3]
    assert sorted(column_values(lance.dataset(n["t"].uri).to_table()["id"])) == [1, 2, 3, 4, 5]


def test_a_table_that_was_open_during_a_fast_forward_goes_on_with_the_new_line() -> None:
    lake, dev = on_branch([{"id": 1}])
    dev["t"].append([{"id": 2}])
    dev["t"].append([{"id": 3}])
    lake.merge("dev")
    n = branched(lake, "n", "dev")
    table = n["t"]
    lake["t"].append([{"id": 4}])
    n.merge("main")

    assert sorted(column_values(table.to_arrow()["id"])) == [1, 2, 3], "it stays at its version"
    assert sorted(column_values(table.at(2).to_arrow()["id"])) == [1, 2], "and on its line"
    assert sorted(column_values(table.latest().to_arrow()["id"])) == [1, 2, 3, 4]
    assert sorted(column_values(table.append([{"id": 5}]).to_arrow()["id"])) == [1, 2, 3, 4, 5]
    assert ids(again(lake, "n")) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_work_that_began_before_a_fast_forward_does_not_land_on_the_other_line(isolation: Any) -> None:
    """Version 3 was read on one line; version 3 of the other line is not what was read."""
    lake, dev = on_branch([{"id": 1}])
    dev["t"].append([{"id": 2}])
    dev["t"].append([{"id": 3}])
    lake.merge("dev")
    n = branched(lake, "n", "dev")
    n.create_table("sums", [{"sum": 0}])
    tx = n.begin(isolation=isolation)
    sum_then = sum(column_values(tx["t"].to_arrow()["id"]))
    if isolation == "snapshot":
        tx["t"].append([{"id": 5}])
    else:
        tx["sums"].append([{"sum": sum_then}])
    lake["t"].append([{"id": 4}])
    again(lake, "n").merge("main")

    with pytest.raises((RetryableConflict, ExpectedVersionMismatch)) as refused:
        tx.commit()
    assert isinstance(refused.value, ConflictError)
    assert ids(n) == [1, 2, 3, 4]
    n.run(lambda tx: tx["t"].append([{"id": 5}]))
    assert ids(again(lake, "n")) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a"]).dictionary_encode(),
        pa.array([{"x": "a"}], pa.struct([("x", pa.dictionary(pa.int8(), pa.string()))])),
    ],
    ids=["column", "inside a struct"],
)
def test_dictionary_columns_are_read_on_a_branch_that_did_not_write_them(column: pa.Array[Any]) -> None:
    """I10."""
    lake, dev = on_branch(pa.table({"id": [1], "c": column}))
    n = branched(lake, "n", "dev")
    wanted = [{"id": 1, "c": column[0].as_py()}]
    for opened in (dev, n, again(lake, "dev"), again(lake, "n"), dev.at(dev.version)):
        assert opened["t"].to_arrow().to_pylist() == wanted
        assert lance.dataset(opened["t"].uri).to_table().to_pylist() == wanted
    n["t"].delete("id = 1")
    assert again(lake, "n")["t"].count_rows() == 0
    assert again(lake, "n").at(n.version - 1)["t"].to_arrow().to_pylist() == wanted


# ------------------------------------------------------------------------------ what doctor says


def test_doctor_notices_a_table_that_cannot_be_read_on_a_branch(tmp_path: Path) -> None:
    """I8: the lake was called healthy. A row as earlier releases left it: in a folder with other versions."""
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"id": 1}], key="id")
    lake.branches.create("dev")
    dev = lake.branch("dev")
    dev["t"].append([{"id": 2}])
    dev.drop_table("t")
    lake["t"].append([{"id": 3}])
    with dev.begin() as tx:
        branch = dev.catalog.branch
        assert branch is not None
        tx.set_row("t", seen_on(branch, lake.catalog.state().rows["t"]))

    with pytest.raises(conroi.NotFoundError):
        ids(again(lake, "dev"))
    found = [each for each in lake.doctor(deep=True).findings if each.severity == "error"]
    assert [(each.kind, each.table, each.version) for each in found] == [("unreadable-on-branch", "t@dev", 2)]


def test_doctor_notices_a_data_file_that_only_a_branch_of_a_branch_needs(tmp_path: Path) -> None:
    lake = conroi.connect(tmp_path / "lake")
    lake.create_table("t", [{"id": 1}], key="id")
    lake.branches.create("dev")
    lake.branch("dev")["t"].append([{"id": 2}])
    lake.branches.create("n", from_="dev")
    assert lake.doctor(deep=True).is_healthy
    lake.branches.delete("dev")
    (file,) = (tmp_path / "lake/t.lance/tree").glob("dev-*/data/*.lance")
    file.unlink()

    found = lake.doctor(deep=True).findings
    assert ("unreadable-on-branch", "t@n") in {(each.kind, each.table) for each in found}


@pytest.mark.parametrize("is_renamed", [False, True])
def test_a_dictionary_column_is_merged_into_a_branch_that_did_not_write_the_table(is_renamed: bool) -> None:
    """pylance looked for the manifest of the base in the branch's own folder, where it is not."""
    lake, dev = on_branch(pa.table({"id": [1, 2], "v": [1, 2]}))
    fix = branched(lake, "fix", "dev")
    dev["t"].update({"v": "v + 10"})
    n = branched(lake, "n", "dev")
    column = pa.schema([pa.field("c", pa.dictionary(pa.int32(), pa.string()))])
    fix["t"].add_columns(column)
    fix["t"].merge([{"id": 3, "v": 3, "c": "x"}], on="id").when_not_matched_insert_all().execute()
    if is_renamed:
        fix.rename_table("t", "u")
    merged = n.merge("fix")
    assert merged.version is not None
    name = "u" if is_renamed else "t"
    wanted = [{"id": 1, "v": 11, "c": None}, {"id": 2, "v": 12, "c": None}, {"id": 3, "v": 3, "c": "x"}]
    for opened in (n, again(lake, "n")):
        assert sorted(opened[name].to_arrow().to_pylist(), key=lambda row: row["id"]) == wanted
    assert lance.dataset(n[name].uri).count_rows() == 3


def test_a_dictionary_column_that_is_added_in_a_transaction_on_a_branch_is_read_there() -> None:
    """The same without a merge: the table was never written on the branch."""
    lake, dev = on_branch(pa.table({"id": [1, 2], "v": [1, 2]}))
    n = branched(lake, "n", "dev")
    with n.begin() as tx:
        tx["t"].add_columns(pa.schema([pa.field("c", pa.dictionary(pa.int32(), pa.string()))]))
        tx["t"].append(pa.table({"id": [3], "v": [3], "c": pa.array(["x"]).dictionary_encode()}))
        tx["t"].delete("id = 1")
        assert tx["t"].to_arrow().to_pylist() == [{"id": 2, "v": 2, "c": None}, {"id": 3, "v": 3, "c": "x"}]
    assert n["t"].to_arrow().to_pylist() == [{"id": 2, "v": 2, "c": None}, {"id": 3, "v": 3, "c": "x"}]
    assert dev["t"].count_rows() == 2


def test_dictionary_columns_are_read_where_the_version_has_no_file() -> None:
    """In a transaction, also on a branch that did not write the table.

    Data format 2.0 holds dictionaries in a way that pylance reads wrong without the manifest's file: refused.
    """
    lake, dev = on_branch(pa.table({"id": [1, 2], "c": pa.array(["a", "b"]).dictionary_encode()}))
    for opened in (lake, dev):
        with opened.begin() as tx:
            tx["t"].append(pa.table({"id": [3], "c": pa.array(["c"]).dictionary_encode()}))
            tx["t"].delete("c = 'a'")
            tx["t"].update({"id": "id + 10"}, where="c = 'c'")
            assert sorted((row["id"], row["c"]) for row in tx["t"].to_arrow().to_pylist()) == [(2, "b"), (13, "c")]
        assert sorted((row["id"], row["c"]) for row in opened["t"].to_arrow().to_pylist()) == [(2, "b"), (13, "c")]
    with lake.begin() as tx:
        letters = pa.table({"c": pa.array(["a", "b", None, "a"]).dictionary_encode()})
        tx.create_table("new", letters, data_format="2.1")
        tx.create_table("old", letters, data_format="2.0")
        assert tx["new"].to_arrow()["c"].to_pylist() == ["a", "b", None, "a"]
        with pytest.raises(conroi.UnsupportedError, match="dictionaries"):
            tx["old"].to_arrow()
    for name in ("new", "old"):
        assert lake[name].to_arrow()["c"].to_pylist() == ["a", "b", None, "a"]
