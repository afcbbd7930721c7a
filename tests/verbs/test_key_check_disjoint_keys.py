"""Different keys do not get in each other's way, however many there are."""

from __future__ import annotations

from collections.abc import Callable

import lance
import pyarrow as pa
import pytest

import conroi
from conroi.testing import CountingObjects, FaultyObjects, call_before
from tests.support.instruments import interrupted, table_on
from tests.verbs.keyed_tables import MOMENTS, counts, keyed, numbers, pylance_upsert, upsert

pytestmark = pytest.mark.contract("K4")


def many(first: int, count: int, n: int) -> pa.Table:
    return pa.table({"id": range(first, first + count), "n": [n] * count})


def raced(table: conroi.Table, mine: pa.Table, theirs: Callable[[], object], moment: dict[str, str]) -> int:
    """Merge beside a concurrent merge; how many manifests had to be tried."""
    counting = CountingObjects(table._files.objects)
    where = {"verb": "put", "at": "_transactions/*"} | moment
    hook = call_before(lambda _: theirs() and None, where["verb"], where["at"])
    faulty = FaultyObjects(counting, [hook])
    writer = table_on(faulty)
    before = len(lance.dataset(table.uri).get_fragments())
    with counting.measure() as measured:
        done = upsert(writer, mine)
    assert faulty.hits, "the two did meet"
    assert counts(done) == (mine.num_rows, 0, 0)
    assert len(done.table.to_lance().get_fragments()) == before + 2
    return measured.requests("put_if_absent", "manifest")


@pytest.mark.parametrize("count", [10, 100, 100_000])
@pytest.mark.parametrize("moment", MOMENTS)
def test_disjoint_keys_both_land_and_nothing_is_done_twice(
    count: int, moment: str, root: str, executions: list[int]
) -> None:
    table = keyed(root)
    theirs = many(10 + count, count, 1)
    puts = raced(table, many(10, count, 2), lambda: upsert(table, theirs), MOMENTS[moment])
    assert puts == 2, "the first one finds its name taken"
    assert executions == [1, 1], "the other one's work and ours, each once, both on version 1"
    found = lance.dataset(root).to_table()
    assert found.num_rows == 1 + 2 * count
    assert len(set(found["id"].to_pylist())) == 1 + 2 * count


@pytest.mark.parametrize("count", [10, 100_000])
def test_control_one_key_in_common_is_found_among_them_all(count: int, root: str, executions: list[int]) -> None:
    table = keyed(root)
    theirs = many(10 + count - 1, count, 1)
    done = upsert(interrupted(table, lambda: upsert(table, theirs)), many(10, count, 2))
    assert executions == [1, 1, 2], "ours was done again on version 2"
    assert counts(done) == (count - 1, 1, 0)
    assert done.table.count_rows() == 2 * count


@pytest.mark.parametrize("count", [10, 100_000])
def test_appends_under_a_key_do_not_conflict_either(count: int, root: str) -> None:
    table = keyed(root)
    writer = interrupted(table, lambda: table.append(many(10 + count, count, 1)))
    assert writer.append(many(10, count, 2), retries=0).count_rows() == 1 + 2 * count


def test_a_pylance_append_or_merge_of_other_keys_is_no_conflict(root: str, executions: list[int]) -> None:
    table = keyed(root)

    def others() -> None:
        lance.write_dataset(numbers(*range(1000, 1200)), root, mode="append")
        pylance_upsert(lance.dataset(root), numbers(*range(2000, 2200)))
        lance.dataset(root).update({"n": "9"}, where="id = 1")

    done = upsert(interrupted(table, others), numbers(*range(3000, 3200)), retries=0)
    assert (counts(done), executions) == ((200, 0, 0), [1])


def test_what_was_looked_at_is_not_looked_at_again(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten concurrent commits: each of their fragments is read once."""
    from conroi.verbs import key_check as module

    looked_at: list[int] = []
    scan = module.scan_keys

    def counted(pinned: object, columns: object, *, fragment_ids: list[int] | None = None, among: pa.Table) -> pa.Table:
        looked_at.extend(fragment_ids or [])
        return scan(pinned, columns, fragment_ids=fragment_ids, among=among)  # type: ignore[arg-type]

    table = keyed(root)
    others = iter(range(100, 200))

    def faster() -> None:
        lance.write_dataset(numbers(next(others)), root, mode="append")

    writer = interrupted(table, faster, verb="put_if_absent", at="_versions/*", times=10)
    monkeypatch.setattr(module, "scan_keys", counted)
    done = upsert(writer, numbers(5, n=2))
    assert done.version == 12
    assert sorted(looked_at) == list(range(1, 11)), "fragment 0 was there at the base, each other one is read once"


def test_a_concurrent_compaction_costs_no_look_at_all(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from conroi.verbs import key_check as module

    table = keyed(root).append(numbers(2)).append(numbers(3))
    writer = interrupted(table, lambda: lance.dataset(root).optimize.compact_files())
    monkeypatch.setattr(module, "scan_keys", lambda *_, **__: pytest.fail("these rows were only copied"))
    done = writer.merge(numbers(5, n=2), on="id").when_not_matched_insert_all().execute(retries=0)
    assert counts(done) == (1, 0, 0)
