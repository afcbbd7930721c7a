"""What every store of files must do, whichever it is."""

from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import lance
import pyarrow as pa
import pytest

from conroi.errors import InvalidInputError, NotFoundError
from conroi.storage.objects import ObjectExists, Objects


def test_what_is_put_is_read_back(objects: Objects) -> None:
    objects.put("_versions/1.manifest", b"\x00one\xff")
    assert objects.get("_versions/1.manifest") == b"\x00one\xff"


def test_a_put_replaces_the_content(objects: Objects) -> None:
    objects.put("a", b"a longer first one")
    objects.put("a", b"second")
    assert objects.get("a") == b"second"


def test_six_megabytes_and_nothing_are_both_files(objects: Objects) -> None:
    large = bytes(range(256)) * 4096 * 6
    objects.put_if_absent("large", large)
    objects.put_if_absent("empty", b"")
    assert objects.get("large") == large
    assert objects.get("empty") == b""
    assert objects.get_tail("empty", 8) == (b"", 0)


@pytest.mark.parametrize("read", ["get", "get_range", "get_tail"])
def test_reading_what_is_not_there_is_not_found(objects: Objects, read: str) -> None:
    arguments = {"get": (), "get_range": (0, 3), "get_tail": (3,)}[read]
    with pytest.raises(NotFoundError) as caught:
        getattr(objects, read)("_versions/9.manifest", *arguments)
    assert "_versions/9.manifest" in str(caught.value)
    assert caught.value.table == objects.root


def test_a_range_ends_at_the_end_of_the_file(objects: Objects) -> None:
    objects.put("a", b"0123456789")
    assert objects.get_range("a", 2, 5) == b"234"
    assert objects.get_range("a", 8, 99) == b"89"
    assert objects.get_range("a", 50, 99) == b""
    assert objects.get_range("a", 4, 4) == b""
    with pytest.raises(InvalidInputError):
        objects.get_range("a", 5, 2)


def test_a_tail_comes_with_the_size_of_the_file(objects: Objects) -> None:
    objects.put("a", b"0123456789")
    assert objects.get_tail("a", 4) == (b"6789", 10)
    assert objects.get_tail("a", 10) == (b"0123456789", 10)
    assert objects.get_tail("a", 4096) == (b"0123456789", 10)


def test_head_tells_size_and_time_or_none(objects: Objects) -> None:
    before = time.time_ns()
    objects.put("_versions/1.manifest", b"abc")
    found = objects.head("_versions/1.manifest")
    assert found is not None
    assert (found.path, found.size) == ("_versions/1.manifest", 3)
    assert abs(found.modified_ns - before) < 10 * 10**9
    assert objects.head("_versions/2.manifest") is None
    assert objects.head("_versions") is None, "a folder is not a file"


def test_a_name_can_be_created_once(objects: Objects) -> None:
    objects.put_if_absent("_versions/1.manifest", b"first")
    with pytest.raises(ObjectExists) as caught:
        objects.put_if_absent("_versions/1.manifest", b"second")
    assert caught.value.path == "_versions/1.manifest"
    assert objects.get("_versions/1.manifest") == b"first"


def test_of_eight_threads_one_creates_the_name(objects: Objects) -> None:
    start = threading.Barrier(8)

    def create(number: int) -> bool:
        start.wait(30)
        try:
            objects.put_if_absent("_versions/1.manifest", b"%d" % number)
        except ObjectExists:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        winners = [number for number, won in enumerate(threads.map(create, range(8))) if won]
    assert len(winners) == 1
    assert objects.get("_versions/1.manifest") == b"%d" % winners[0]


def test_rename_moves_the_file(objects: Objects) -> None:
    objects.put("_versions/1.manifest-x", b"staged")
    objects.rename_if_absent("_versions/1.manifest-x", "_versions/1.manifest")
    assert objects.get("_versions/1.manifest") == b"staged"
    assert objects.head("_versions/1.manifest-x") is None


def test_rename_to_a_taken_name_changes_nothing(objects: Objects) -> None:
    objects.put("staged", b"mine")
    objects.put("final", b"theirs")
    with pytest.raises(ObjectExists):
        objects.rename_if_absent("staged", "final")
    assert (objects.get("staged"), objects.get("final")) == (b"mine", b"theirs")


def test_rename_into_a_new_folder(objects: Objects) -> None:
    objects.put("staged", b"mine")
    objects.rename_if_absent("staged", "new/folder/final")
    assert objects.get("new/folder/final") == b"mine"


def test_copy_replaces_and_keeps_the_source(objects: Objects) -> None:
    objects.put("source", b"new")
    objects.put("deep/target", b"old")
    objects.copy("source", "deep/target")
    assert (objects.get("source"), objects.get("deep/target")) == (b"new", b"new")


def test_copy_if_absent_refuses_a_taken_name(objects: Objects) -> None:
    objects.put("source", b"new")
    objects.copy_if_absent("source", "other/target")
    objects.put("source", b"newer")
    with pytest.raises(ObjectExists):
        objects.copy_if_absent("source", "other/target")
    assert objects.get("other/target") == b"new"


@pytest.mark.parametrize("verb", ["rename_if_absent", "copy", "copy_if_absent"])
def test_a_source_that_is_not_there_is_not_found(objects: Objects, verb: str) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        getattr(objects, verb)("nowhere", "target")
    assert objects.head("target") is None


def test_delete_takes_many_and_does_not_mind_the_missing(objects: Objects) -> None:
    for name in ("a", "d/b", "d/c"):
        objects.put(name, b"x")
    objects.delete(["a", "never-there", "d/b"])
    objects.delete(["a"])
    objects.delete([])
    assert [info.path for info in objects.list("")] == ["d/c"]


def test_list_is_about_one_folder_and_all_below_it(objects: Objects) -> None:
    for path in ("_versions/2", "_versions/10", "_versions/sub/3", "_versions_not/4", "_version", "x/_versions/5"):
        objects.put(path, b"12345")
    found = list(objects.list("_versions"))
    assert sorted(info.path for info in found) == ["_versions/10", "_versions/2", "_versions/sub/3"]
    assert {info.size for info in found} == {5}
    assert sorted(objects.list_names("_versions/")) == ["_versions/10", "_versions/2", "_versions/sub/3"]
    assert len(list(objects.list(""))) == 6
    assert list(objects.list("nothing/here")) == []


def test_list_goes_on_after_a_name(objects: Objects) -> None:
    for path in ("v/a", "v/b", "v/c", "v/d"):
        objects.put(path, b"")
    assert sorted(info.path for info in objects.list("v", after="v/b")) == ["v/c", "v/d"]
    assert sorted(objects.list_names("v", after="v/bb")) == ["v/c", "v/d"]
    assert list(objects.list("v", after="v/d")) == []


@pytest.mark.parametrize(
    ("store", "count"), [("local", 1100), ("seaweedfs", 1100), ("azurite", 1100), ("gcs", 110)], ids=str
)
def test_a_listing_of_many_pages_is_complete_and_in_order_if_it_says_so(
    store: str, count: int, request: pytest.FixtureRequest
) -> None:
    from tests.support.object_stores import new_objects

    objects = new_objects(store, request)
    expected = [f"v/{number:05d}" for number in range(count)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda path: objects.put(path, b""), reversed(expected)))
    found = [info.path for info in objects.list("v")]
    assert (found if objects.is_listing_ordered else sorted(found)) == expected


@pytest.mark.parametrize(
    "name", ["with space", "per%20cent%", "ünïcödé-日本", "hash#mark", "question?", "plus+and&", "quote'\"", "a=b;c,d"]
)
def test_odd_names_are_kept_as_they_are(objects: Objects, name: str) -> None:
    path = f"data/{name}/{name}.lance"
    objects.put_if_absent(path, name.encode())
    assert [info.path for info in objects.list("data")] == [path]
    assert objects.get(path) == name.encode()
    objects.copy(path, f"copy/{name}")
    assert objects.get(f"copy/{name}") == name.encode()
    objects.delete([path])
    assert objects.head(path) is None


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../other", "data/../../other", "data/\0"])
def test_no_path_leads_out_of_the_table(objects: Objects, path: str) -> None:
    with pytest.raises(InvalidInputError):
        objects.get(path)
    with pytest.raises(InvalidInputError):
        objects.put(path, b"x")
    with pytest.raises(InvalidInputError):
        objects.delete([path])
    with pytest.raises(InvalidInputError):
        objects.copy(path, "target")


def test_a_store_can_be_sent_to_another_process(objects: Objects) -> None:
    objects.put("a", b"x")
    again = pickle.loads(pickle.dumps(objects))
    assert again.get("a") == b"x"
    assert again.root == objects.root


def test_pylance_and_we_see_the_same_files(objects: Objects) -> None:
    options = dict(objects.storage_options) or None
    lance.write_dataset(pa.table({"a": [1, 2, 3]}), objects.pylance_uri(), storage_options=options)
    (manifest,) = [info.path for info in objects.list("_versions") if info.path.endswith(".manifest")]
    assert objects.get_tail(manifest, 4)[0] == b"LANC"
    written = objects.get(manifest)
    objects.delete([manifest, "_versions/latest_version_hint.json"])
    with pytest.raises((ValueError, OSError)):
        lance.dataset(objects.pylance_uri(), storage_options=options)
    objects.put_if_absent(manifest, written)
    opened = lance.dataset(objects.pylance_uri(), storage_options=options)
    assert opened.to_table().column("a").to_pylist() == [1, 2, 3]


def test_pylance_takes_the_uri_of_one_file(objects: Objects) -> None:
    from lance.file import LanceFileReader, LanceFileWriter

    options = dict(objects.storage_options) or None
    uri = objects.pylance_uri("data/odd name#1.lance")
    with LanceFileWriter(uri, pa.schema([("a", pa.int64())]), storage_options=options) as writer:
        writer.write_batch(pa.table({"a": [7]}))
    assert [info.path for info in objects.list("data")] == ["data/odd name#1.lance"]
    assert LanceFileReader(uri, storage_options=options).read_all().to_table().column("a").to_pylist() == [7]


def test_a_best_effort_write_replaces_the_whole_file(objects: Objects) -> None:
    objects.put("_versions/1.manifest", b"x")
    objects.put_best_effort("_versions/hint", b'{"version":10}')
    objects.put_best_effort("_versions/hint", b'{"version":9}')
    assert objects.get("_versions/hint") == b'{"version":9}'
