"""A path or URI means the same place to us and to pylance, or is refused with a reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from conroi.errors import InvalidInputError
from conroi.storage import open_objects
from tests.support.servers import S3Server

ODD_NAMES = [
    "with space", "per%20cent", "100%", "ünïcödé-日本", "hash#mark", "question?mark", "a:b", "plus+", "back\\slash",
    "star*", "[b]", "{b}", "quote'\"", "<x>|y", "~tilde", ".hidden", "a b/c d", "%2e%2e",
]  # fmt: skip


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize("how", ["path", "file uri"])
def test_an_odd_local_name_is_the_same_folder_for_pylance(name: str, how: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    objects = open_objects(folder if how == "path" else folder.as_uri())
    assert objects.root == str(folder)
    lance.write_dataset(pa.table({"a": [1]}), objects.pylance_uri())
    assert (folder / "_versions").is_dir()
    assert lance.dataset(str(folder)).count_rows() == 1
    assert any(info.path.endswith(".manifest") for info in objects.list("_versions"))
    again = open_objects(objects.root)
    assert again.root == objects.root


@pytest.mark.parametrize("name", ["with space", "per%2520cent", "ünïcödé", "hash%23mark", "question%3Fmark", "a+b=c&d"])
def test_an_odd_name_in_a_bucket_is_the_same_key_for_pylance(name: str, moto: S3Server) -> None:
    objects = open_objects(moto.new_uri(name), moto.options)
    lance.write_dataset(pa.table({"a": [1]}), objects.pylance_uri(), storage_options=dict(objects.storage_options))
    assert len(list(objects.list("_versions"))) == 1
    assert open_objects(objects.root, moto.options).root == objects.root, "a root can be opened again"


def test_a_relative_path_and_dots_are_resolved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    objects = open_objects("lake/../t.lance/")
    assert objects.root == str(tmp_path / "t.lance")
    monkeypatch.chdir("/")
    objects.put("a", b"x")
    assert (tmp_path / "t.lance" / "a").read_bytes() == b"x"


def test_a_tilde_is_the_home_folder_as_in_pylance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    lance.write_dataset(pa.table({"a": [1]}), "~/t.lance")
    assert open_objects("~/t.lance").root == str(tmp_path / "t.lance")
    assert (tmp_path / "t.lance").is_dir()


@pytest.mark.parametrize(
    ("given", "root"),
    [
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("S3://bucket/a%20b", "s3://bucket/a b"),
        ("s3a://bucket/a", "s3://bucket/a"),
        ("s3://bucket/a%2523", "s3://bucket/a%2523"),
        ("s3://bucket", "s3://bucket"),
        ("gs://bucket/a", "gs://bucket/a"),
    ],
)
def test_a_uri_has_one_spelling(given: str, root: str) -> None:
    assert open_objects(given).root == root


@pytest.mark.parametrize(
    "uri",
    [
        "", "  ", "ftp://host/t", "http://host/t", "s3+ddb://bucket/t", "s3://", "s3:///key", "s3://bucket//a",
        "s3://bucket/a/../b", "s3://bucket/%2e%2e/b", "s3://bucket/a#b", "s3://bucket:9000/a", "file://host/t",
        "file://relative", "memory://", "memory://a/../b", "control\ncharacter", "nul\0", "file:///a%0Ab", "\ud800",
    ],
)  # fmt: skip
def test_what_lance_could_not_open_is_refused(uri: str) -> None:
    with pytest.raises(InvalidInputError):
        open_objects(uri)


@pytest.mark.parametrize("uri", ["s3://key:hunter2@bucket/t", "s3://bucket/t?X-Amz-Signature=hunter2", "hunter2\n"])
def test_a_refusal_does_not_repeat_what_may_be_secret(uri: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_objects(uri)
    assert "hunter2" not in str(caught.value)


def test_s3_express_buckets_are_known_to_list_in_no_order() -> None:
    assert open_objects("s3://bucket/t").is_listing_ordered
    assert not open_objects("s3://name--use1-az4--x-s3/t").is_listing_ordered


def test_a_memory_table_is_one_table_per_name_and_pylance_sees_it() -> None:
    first, again, other = (open_objects(f"memory://{name}") for name in ("sales/a", "sales/a", "sales/b"))
    lance.write_dataset(pa.table({"a": [1]}), first.pylance_uri())
    assert len([path for path in again.list_names("_versions") if path.endswith(".manifest")]) == 1
    assert list(other.list("")) == []


MEMORY_TABLE = """
import sys
from conroi.storage import open_objects
objects = open_objects("memory://t")
objects.put("a", b"x")
print(objects.root, flush=True)
sys.stdin.read()
"""


def start_memory_process() -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", MEMORY_TABLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_a_memory_table_goes_with_its_process() -> None:
    process, root = start_memory_process()
    assert Path(root, "a").read_bytes() == b"x"
    assert root != open_objects("memory://t").root, "another process has its own"
    process.communicate("")
    assert not os.path.exists(os.path.dirname(root))


def test_what_a_killed_process_left_in_memory_is_removed_by_the_next() -> None:
    alive, its_root = start_memory_process()
    killed, root = start_memory_process()
    with killed:
        killed.kill()
    assert os.path.exists(root)
    start_memory_process()[0].communicate("")
    assert not os.path.exists(root)
    assert os.path.exists(its_root), "a living process keeps its tables"
    alive.communicate("")
