"""A table that was written by its path between publication and final name is brought together again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.format.naming import ManifestNaming
from conroi.testing import call_before
from tests.support.lakes import cloud, faulty, manifests, rows, rows_by_path, settle

pytestmark = pytest.mark.contract("P8")

Change = Callable[[Any], object]


def forked(folder: Path, mine: Change, theirs: Change, **options: Any) -> tuple[conroi.Lake, str]:
    """A lake whose table `t` of rows 0 to 9 was changed through the lake and by path, both as version 2."""
    lake = conroi.connect(str(folder))
    path = lake.create_table("t", [{"n": n, "m": 0} for n in range(10)], **options).uri
    hook = call_before(lambda _: theirs(lance.dataset(path)), "rename_if_absent", "_versions/*.manifest")
    writer = faulty(lake.uri, [hook], only="t.lance")
    mine(writer["t"])
    with pytest.raises(conroi.ForkedTableError):
        conroi.connect(lake.uri)["t"].append([{"n": 99, "m": 0}])
    return conroi.connect(lake.uri), path


def append(*numbers: int) -> Change:
    def change(table: Any) -> object:
        data = pa.table({"n": list(numbers), "m": [0] * len(numbers)})
        return table.append(data) if isinstance(table, conroi.Table) else table.insert(data)

    return change


def delete(number: int) -> Change:
    return lambda table: table.delete(f"n = {number}")


def update(number: int, value: int) -> Change:
    def change(table: Any) -> object:
        return table.update({"m": str(value)}, where=f"n = {number}")

    return change


def overwrite(table: Any) -> object:
    return lance.write_dataset(table.to_table(limit=2), table.uri, mode="overwrite")


def add_column(table: Any) -> object:
    return table.add_columns({"k": "n"})


def all_of(*changes: Change) -> Change:
    def change(table: Any) -> object:
        for each in changes:
            each(table)
        return None

    return change


def values(data: pa.Table) -> dict[int, int]:
    found: list[Any] = list(zip(data["n"].to_pylist(), data["m"].to_pylist(), strict=True))
    assert len(dict(found)) == len(found)
    return dict(found)


BASE = dict.fromkeys(range(10), 0)


@pytest.mark.parametrize("stable_row_ids", [False, True])
@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        (append(20), append(30), {**BASE, 20: 0, 30: 0}),
        (delete(1), delete(2), {n: 0 for n in range(10) if n not in (1, 2)}),
        (update(1, 7), delete(2), {**{n: 0 for n in range(10) if n != 2}, 1: 7}),
        (append(20), update(3, 5), {**BASE, 20: 0, 3: 5}),
        (update(4, 1), update(5, 2), {**BASE, 4: 1, 5: 2}),
        (append(20), all_of(append(30), delete(3), append(31)), {**BASE, 20: 0, 30: 0, 31: 0} | {3: None}),
        (delete(1), all_of(append(30), update(3, 5)), {**BASE, 30: 0, 3: 5} | {1: None}),
    ],
    ids=["appends", "deletes", "update, delete", "append, update", "updates", "append, three", "delete, two"],
)
def test_both_changes_are_there_in_one_new_version(
    mine: Change, theirs: Change, expected: dict[int, int | None], stable_row_ids: bool, tmp_path: Path
) -> None:
    wanted = {n: m for n, m in expected.items() if m is not None}
    lake, path = forked(tmp_path / "lake", mine, theirs, stable_row_ids=stable_row_ids)
    before = manifests(path)
    newest = lance.dataset(path).version
    at_fork, by_path = lake["t"].to_arrow(), lance.dataset(path).to_table()

    mended = lake.mend("t")

    assert mended.version == newest + 1
    assert values(mended.to_arrow()) == values(lance.dataset(path).to_table()) == wanted
    kept = manifests(path)
    assert {name: kept.get(name) for name in before} == before, "nothing was overwritten or removed"
    assert lake.at(3)["t"].to_arrow() == at_fork, "older versions of the lake are as they were"
    assert lance.dataset(path, version=newest).to_table() == by_path
    after = lake["t"].append([{"n": 50, "m": 0}])
    assert (after.version, values(after.to_arrow())) == (newest + 2, {**wanted, 50: 0})
    assert values(lance.dataset(path).to_table()) == {**wanted, 50: 0}
    lance.dataset(path).delete("n = 50")
    lake["t"].append([{"n": 51, "m": 0}])
    assert values(lake["t"].to_arrow()) == values(lance.dataset(path).to_table()) == {**wanted, 51: 0}


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (delete(1), delete(1)),
        (update(1, 2), update(1, 3)),
        (append(20), overwrite),
        (append(20), add_column),
        (append(20), all_of(append(30), delete(30))),
    ],
    ids=["same row deleted", "same row updated", "overwrite", "new column", "a new fragment changed"],
)
def test_what_does_not_fit_is_refused_with_a_remedy_and_can_be_left_out(
    mine: Change, theirs: Change, tmp_path: Path
) -> None:
    lake, path = forked(tmp_path / "lake", mine, theirs)
    before, kept = values(lake["t"].to_arrow()), manifests(path)
    by_path = lance.dataset(path)
    with pytest.raises(conroi.IncompatibleConflict) as refusal:
        lake.mend("t")
    assert "discard=True" in (refusal.value.hint or "")
    assert values(conroi.connect(lake.uri)["t"].to_arrow()) == before, "nothing happened"
    assert manifests(path) == kept
    mended = lake.mend("t", discard=True)
    assert mended.version == by_path.version + 1
    assert values(mended.to_arrow()) == values(lance.dataset(path).to_table()) == before
    assert lance.dataset(path, version=by_path.version).to_table() == by_path.to_table(), "it stays readable"
    assert len(lake["t"].append([{"n": 60, "m": 0}]).to_arrow()) == len(before) + 1


def test_a_key_that_came_in_on_both_sides_is_refused(tmp_path: Path) -> None:
    lake, _ = forked(tmp_path / "lake", append(20), append(20), key="n")
    with pytest.raises(conroi.IncompatibleConflict, match="same key n"):
        lake.mend("t")
    lake2, path = forked(tmp_path / "lake2", append(20), append(21), key="n")
    assert len(lake2.mend("t").to_arrow()) == 12 == lance.dataset(path).count_rows()


def test_a_table_that_is_fine_stays_as_it_is(tmp_path: Path) -> None:
    lake = conroi.connect(str(tmp_path / "lake"))
    lake.create_table("t", [{"n": 0}])
    version = lake.version
    assert lake.mend("t").version == 1
    assert lake.version == version
    with pytest.raises(conroi.NotFoundError):
        lake.mend("u")
    with pytest.raises(conroi.InvalidInputError):
        cast("Any", lake.at(version)).mend("t")


def test_work_that_began_before_the_mending_is_done_again(tmp_path: Path) -> None:
    lake, path = forked(tmp_path / "lake", append(20), all_of(append(30), append(31)))
    tx = lake.begin()
    tx["t"].delete("n = 1")
    straddling = lance.dataset(path)
    conroi.connect(lake.uri).mend("t")
    with pytest.raises(conroi.RetryableConflict, match="repaired in version"):
        tx.commit()
    with pytest.raises(OSError, match=r"conflict|Incompatible"):
        straddling.delete("n = 2")
    lake["t"].delete("n = 1")
    assert sorted(values(lake["t"].to_arrow())) == [0, *range(2, 10), 20, 30, 31]


def test_a_table_on_an_object_store_is_repaired_too(tmp_path: Path) -> None:
    lake, path = forked(tmp_path / "lake", delete(1), all_of(append(30), update(3, 5)))
    far = cloud(lake.uri)
    assert sorted(values(far.mend("t").to_arrow()).items()) == sorted(values(lance.dataset(path).to_table()).items())
    assert values(conroi.connect(lake.uri)["t"].to_arrow()) == {0: 0, 2: 0, 3: 5} | dict.fromkeys(
        (*range(4, 10), 30), 0
    )
    far["t"].append([{"n": 31, "m": 0}])
    settle(far)
    assert 31 in rows_by_path(path)


def test_two_concurrent_repairs_repair_once(tmp_path: Path) -> None:
    lake, path = forked(tmp_path / "lake", append(20), append(30))
    hook = call_before(lambda _: conroi.connect(lake.uri).mend("t"), "put_if_absent", "_versions/*")
    faulty(lake.uri, [hook], only="__manifest").mend("t")
    assert sorted(values(lake["t"].to_arrow())) == [*range(10), 20, 30]
    assert lake["t"].version == lance.dataset(path).version == 3


def test_an_out_of_band_write_during_the_repair_is_adopted_too(tmp_path: Path) -> None:
    lake, path = forked(tmp_path / "lake", append(20), append(30))
    hook = call_before(lambda _: append(40)(lance.dataset(path)), "put", "_versions/*.manifest-*")
    faulty(lake.uri, [hook], only="t.lance").mend("t")
    assert sorted(values(lake["t"].to_arrow())) == [*range(10), 20, 30, 40]
    assert sorted(rows_by_path(path)) == rows(lake["t"])


def test_control_a_publication_in_spite_of_the_fork_loses_what_was_written_by_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from conroi.catalog.participant import Participant

    lake, path = forked(tmp_path / "lake", append(20), append(30))
    monkeypatch.setattr(Participant, "_finalize_before", nothing)
    lake["t"].append([{"n": 50, "m": 0}])
    assert 30 not in rows_by_path(path)


def test_writing_by_path_after_the_mending_is_adopted_as_ever(tmp_path: Path) -> None:
    lake, path = forked(tmp_path / "lake", delete(1), delete(2))
    lake.mend("t")
    append_by_path_with_m(path, 70)
    assert lake["t"].append([{"n": 71, "m": 0}]).version == 5
    assert sorted(values(lake["t"].to_arrow())) == [0, *range(3, 10), 70, 71]


def append_by_path_with_m(path: str, number: int) -> None:
    lance.write_dataset(pa.table({"n": [number], "m": [0]}), path, mode="append")


def nothing(*_: object) -> None:
    """What is done instead."""


def test_an_append_by_path_during_the_repair_is_brought_in_too(tmp_path: Path):
    """Found by the simulator (workload out_of_band, seed 4): the repair itself is a Restore, and an append by path that
    took its final name was refused as if the lake had gone back to an older version."""
    lake, path = forked(tmp_path / "lake", append(20), append(30))
    again = call_before(lambda _: append(31)(lance.dataset(path)), "rename_if_absent", ManifestNaming.V2.path(3))
    faulty(lake.uri, [again], only="t.lance").mend("t")
    settled = conroi.connect(lake.uri)["t"].append([{"n": 40, "m": 0}])
    assert values(settled.to_arrow()) == BASE | dict.fromkeys((20, 30, 31, 40), 0)
    assert values(lance.dataset(path).to_table()) == BASE | dict.fromkeys((20, 30, 31, 40), 0)
