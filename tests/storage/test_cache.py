"""What is kept in memory of files that never change: so many bytes, those asked for last."""

from __future__ import annotations

import threading

from conroi.storage.cache import BoundedCache


def test_the_least_recently_used_entry_is_evicted_first() -> None:
    cache: BoundedCache[str] = BoundedCache(100)
    for name in ("a", "b", "c"):
        cache.put(name, name.upper(), 30)
    assert cache.get("a") == "A"
    cache.put("d", "D", 30)
    assert [cache.get(name) for name in "abcd"] == ["A", None, "C", "D"]
    assert (cache.bytes, len(cache)) == (90, 3)


def test_a_value_in_place_of_another_counts_once() -> None:
    cache: BoundedCache[str] = BoundedCache(100)
    cache.put("a", "old", 80)
    cache.put("a", "new", 60)
    assert (cache.get("a"), cache.bytes, len(cache)) == ("new", 60, 1)


def test_what_is_bigger_than_the_cache_is_not_kept_and_drives_nothing_out() -> None:
    cache: BoundedCache[str] = BoundedCache(100)
    cache.put("small", "s", 10)
    cache.put("big", "b", 101)
    assert (cache.get("small"), cache.get("big"), cache.bytes) == ("s", None, 10)


def test_a_cache_can_be_cleared() -> None:
    cache: BoundedCache[str] = BoundedCache(100)
    cache.put("a", "A", 10)
    cache.clear()
    assert (cache.get("a"), cache.bytes, len(cache)) == (None, 0, 0)


def test_threads_may_share_it() -> None:
    cache: BoundedCache[int] = BoundedCache(1000)

    def use(thread: int) -> None:
        for number in range(2000):
            cache.put((thread, number % 50), number, 10)
            cache.get((1 - thread, number % 50))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (cache.bytes, len(cache)) == (1000, 100), "fifty values of each thread, ten bytes each"
