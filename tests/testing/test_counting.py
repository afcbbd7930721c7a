"""The counting store counts what it should, and would notice one request too many."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conroi.errors import NotFoundError, StoreError
from conroi.storage import open_objects
from conroi.storage.objects import ObjectExists, Objects
from conroi.testing import CountingObjects, kind_of
from conroi.testing.instruments import PAGE
from tests.support.answering import always_answering

HEAD = "_versions/18446744073709551614.manifest"


@pytest.fixture
def counting(tmp_path: Path) -> CountingObjects:
    return CountingObjects(open_objects(tmp_path / "t"))


def one_of_each(objects: Objects) -> None:
    objects.put("a", b"12")
    objects.put_if_absent("b", b"345")
    objects.get("a")
    objects.get_range("b", 0, 2)
    objects.get_tail("b", 1)
    objects.head("a")
    objects.copy("a", "c")
    objects.copy_if_absent("a", "d")
    objects.rename_if_absent("d", "e")
    list(objects.list(""))
    objects.delete(["a", "b"])


def test_every_verb_is_counted_once_with_its_bytes(counting: CountingObjects) -> None:
    with counting.measure() as measured:
        one_of_each(counting)
    verbs = ["put", "put_if_absent", "get", "get_range", "get_tail", "head", "copy", "copy_if_absent"]
    verbs += ["rename_if_absent", "list", "delete"]
    assert measured.by_verb_and_kind() == {(verb, "other"): 1 for verb in verbs}
    assert measured.requests() == 11
    assert (measured.bytes_written, measured.bytes_read) == (2 + 3, 2 + 2 + 1)


@pytest.mark.contract("W5")
def test_a_claim_of_cost_fails_on_one_request_more(counting: CountingObjects) -> None:
    def work(is_wasteful: bool) -> int:
        with counting.measure() as measured:
            counting.put(HEAD, b"x")
            if is_wasteful:
                counting.head(HEAD)
        return measured.requests()

    assert work(is_wasteful=False) == 1
    assert work(is_wasteful=True) == 2


@pytest.mark.contract("W5")
def test_the_count_is_what_a_server_sees() -> None:
    """Not only what the instrument says about itself: a server counts along."""
    with always_answering(404) as server:
        options = {
            "aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_endpoint": server.endpoint,
            "aws_region": "us-east-1", "allow_http": "true",
        }  # fmt: skip
        counting = CountingObjects(open_objects("s3://bucket/t", options))
        assert counting.head(HEAD) is None
        for read in (lambda: counting.get(HEAD), lambda: counting.get_tail(HEAD, 16), lambda: counting.get(HEAD)):
            with pytest.raises(NotFoundError):
                read()
        with pytest.raises(StoreError, match="bucket"):
            counting.put_if_absent(HEAD, b"x")
        assert counting.ever.requests() == len(server.requests) == 5


def test_measurements_nest_and_do_not_see_what_came_before_or_after(counting: CountingObjects) -> None:
    counting.put("a", b"1")
    with counting.measure() as outer:
        counting.get("a")
        with counting.measure() as inner:
            counting.get("a")
    counting.get("a")
    assert (inner.requests("get"), outer.requests("get"), counting.ever.requests("get")) == (1, 2, 3)
    assert outer.requests("put") == 0


def test_requests_that_fail_count_too(counting: CountingObjects) -> None:
    counting.put("a", b"1")
    with counting.measure() as measured:
        with pytest.raises(NotFoundError):
            counting.get("none")
        with pytest.raises(ObjectExists):
            counting.put_if_absent("a", b"2")
    assert measured.by_verb_and_kind() == {("get", "other"): 1, ("put_if_absent", "other"): 1}


def test_threads_lose_no_count(counting: CountingObjects) -> None:
    counting.put("a", b"12345")
    with counting.measure() as measured, ThreadPoolExecutor(8) as threads:
        list(threads.map(counting.get, ["a"] * 800))
    assert measured.requests("get") == 800
    assert measured.bytes_read == 800 * 5


@pytest.mark.parametrize(("files", "pages"), [(0, 1), (1, 1), (PAGE, 1), (PAGE + 1, 2)])
def test_a_listing_counts_its_pages(counting: CountingObjects, files: int, pages: int) -> None:
    for number in range(files):
        counting.inner.put(f"v/{number}", b"")
    for listing in (counting.list, counting.list_names):
        with counting.measure() as measured:
            assert len(list(listing("v"))) == files
        assert measured.requests("list") == pages


def test_the_first_name_of_a_listing_costs_one_page(counting: CountingObjects) -> None:
    for number in range(PAGE + 1):
        counting.inner.put(f"v/{number}", b"")
    with counting.measure() as measured:
        next(counting.list("v"))
    assert measured.requests() == 1


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (HEAD, "manifest"),
        ("_versions/3.manifest", "manifest"),
        (f"{HEAD}-6f2b8a0e-0d2f-4c57-9f65-0c6f4d7c7a11", "staged"),
        ("_versions/latest_version_hint.json", "hint"),
        ("_versions", "versions"),
        ("_versions/.tmp_conroi_12", "versions"),
        ("_transactions/1-6f2b8a0e.txn", "transaction"),
        ("_deletions/0-1-2.arrow", "deletion"),
        ("_indices/6f2b8a0e/index.idx", "index"),
        ("data/a.lance", "data"),
        ("_refs/tags/q3.json", "ref"),
        ("readme", "other"),
        ("", "other"),
    ],
)
def test_paths_are_of_these_kinds(path: str, kind: str) -> None:
    assert kind_of(path) == kind
