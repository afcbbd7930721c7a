"""What people expect without asking: reprs, facts, progress, logging, threads, kinds of storage, examples that run."""

from __future__ import annotations

import logging
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import conroi
from conroi import ManifestNaming
from tests.support.arrow import column_values
from tests.support.instruments import interrupted
from tests.support.refusals import files_of


@pytest.fixture
def table(uri: str) -> conroi.Table:
    return conroi.create_table(uri, pa.table({"id": [1, 2], "a<b": ["x", None]}), key="id")


# ---------------------------------------------------------------------------------- facts


def test_the_version_of_conroi_is_known() -> None:
    assert conroi.__version__.count(".") == 2


def test_the_facts_of_a_table(table: conroi.Table) -> None:
    table = table.set_config({"c": "1"}).set_metadata({"m": "2"}).create_index("id")
    assert (table.version, table.key, table.naming) == (4, ("id",), ManifestNaming.V2)
    assert (table.config, table.metadata, table.indices) == ({"c": "1"}, {"m": "2"}, {"id_idx": ("id",)})
    assert not table.has_stable_row_ids
    assert table.schema.names == ["id", "a<b"]
    assert table.uri == conroi.open_table(table.uri).uri


def test_settings_are_set_deleted_and_replaced(table: conroi.Table) -> None:
    table = table.set_config({"a": "1", "b": "2"}).set_config({"a": None, "c": "3"})
    assert table.config == {"b": "2", "c": "3"}
    assert table.set_config({"d": "4"}, replace=True).config == {"d": "4"}
    noted = table.set_metadata(schema={"s": "1"}, fields={"id": {"unit": "m"}})
    assert noted.schema.metadata == {b"s": b"1"}
    assert (noted.schema.field("id").metadata or {})[b"unit"] == b"m"
    assert noted.key == ("id",)


def test_a_repr_says_what_it_is_and_is_short(table: conroi.Table) -> None:
    assert repr(table) == f"Table({table.uri!r}, version=1, 2 rows)"
    assert repr(table.append(pa.table({"id": range(10, 2010)}))) == f"Table({table.uri!r}, version=2, 2,002 rows)"


def test_a_notebook_gets_a_table_with_names_that_cannot_break_it(table: conroi.Table) -> None:
    shown = table._repr_html_()
    assert "a&lt;b" in shown
    assert "a<b" not in shown
    for fact in ("version 1", "2 rows", "int64", "not null", "🔑"):
        assert fact in shown


# --------------------------------------------------------------------- progress and logging


def test_long_work_tells_how_far_it_is(uri: str) -> None:
    done: dict[str, list[int]] = {
        name: [] for name in ("create", "append", "overwrite", "add", "replace", "compact", "sort")
    }
    table = conroi.create_table(uri, pa.table({"id": [1, 2]}), progress=done["create"].append)
    table = table.append(pa.table({"id": [3, 4, 5]}), progress=done["append"].append)
    table = table.add_columns({"v": "id"}, progress=done["add"].append)
    table = table.replace_column_data({"v": "id + 1"}, progress=done["replace"].append)
    table = table.compact(progress=done["compact"].append)
    table = table.compact("id", progress=done["sort"].append)
    table.overwrite(pa.table({"id": [1], "v": [1]}), progress=done["overwrite"].append)
    assert done == {
        "create": [2], "append": [3], "overwrite": [1], "add": [2, 5], "replace": [2, 5], "compact": [5], "sort": [5],
    }  # fmt: skip


def test_commits_and_repeated_work_are_logged_under_our_name(
    table: conroi.Table, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "conroi"):
        writer = interrupted(table, lambda: table.update({"id": "id + 10"}))
        writer.delete("id = 1", retries=3)
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("conroi")]
    assert any("committed version 2" in message for message in messages)
    assert any("doing the work again" in message for message in messages)
    assert all(record.levelno < logging.WARNING for record in caplog.records)


def test_a_quiet_program_hears_nothing(table: conroi.Table, capfd: pytest.CaptureFixture[str]) -> None:
    table.append(pa.table({"id": [7]})).delete("id = 7")
    assert capfd.readouterr() == ("", "")


# --------------------------------------------------------------------------------- threads


def test_one_table_serves_many_threads(uri: str) -> None:
    table = conroi.create_table(uri, pa.table({"id": [0]}))

    def work(number: int) -> int:
        made = table.append(pa.table({"id": [number]}), retries=200)
        assert number in made.to_arrow()["id"].to_pylist()
        assert table.to_arrow()["id"].to_pylist() == [0]
        return made.version

    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(work, range(1, 25)))
    assert sorted(versions) == list(range(2, 26))
    assert sorted(column_values(table.latest().to_arrow()["id"])) == list(range(25))


# --------------------------------------------------------------------------------- storage


@pytest.mark.parametrize("options", [{"durable": True}, {"put": "rename"}, {"durable": True, "put": "rename"}], ids=str)
def test_every_way_to_put_gives_the_same_table(options: dict[str, object], tmp_path: Path) -> None:
    conroi.create_table(tmp_path / "t", pa.table({"id": [1, 2]}), **options)  # type: ignore[arg-type]
    table = conroi.open_table(tmp_path / "t", **options)  # type: ignore[arg-type]
    table = table.append(pa.table({"id": [3]})).delete("id = 1").update({"id": "id * 10"}).compact()
    assert sorted(column_values(table.to_arrow()["id"])) == [20, 30]
    assert sorted(column_values(lance.dataset(tmp_path / "t").to_table()["id"])) == [20, 30]
    assert not [name for name in files_of(tmp_path) if ".tmp" in name or ".manifest-" in name]


def test_a_lock_is_held_for_every_commit(tmp_path: Path) -> None:
    import contextlib

    held: list[int] = []

    @contextlib.contextmanager
    def lock(version: int) -> Generator[None]:
        held.append(version)
        yield

    table = conroi.create_table(tmp_path / "t", pa.table({"id": [1]}), commit_lock=lock)
    table.append(pa.table({"id": [2]})).delete("id = 1")
    assert held == [1, 2, 3]


def test_a_table_in_memory_is_found_by_its_name_and_leaves_nothing_behind(uri: str) -> None:
    made = conroi.create_table(uri, pa.table({"id": [1]}))
    assert conroi.open_table(uri).to_arrow() == made.to_arrow()
    assert lance.dataset(made.uri).count_rows() == 1


@pytest.mark.parametrize("form", ["path", "text", "file uri", "relative"])
def test_a_path_may_be_written_in_any_way(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conroi.create_table(tmp_path / "a b.lance", pa.table({"id": [1]}))
    monkeypatch.chdir(tmp_path)
    forms = {
        "path": tmp_path / "a b.lance",
        "text": f"{tmp_path}/a b.lance/",
        "file uri": f"file://{tmp_path}/a%20b.lance",
        "relative": "a b.lance",
    }
    assert conroi.open_table(forms[form]).uri == str(tmp_path / "a b.lance")


@pytest.mark.parametrize(
    "name",
    [
        "a b",
        "a%20b",
        "a%b",
        "a#b",
        "a?b",
        "ünï 😀",
        "it's",
        'say "x"',
        "a\\b",
        "a:b",
        "x" * 200,
        " x ",
        "%2e%2e",
        "[x]{y}*",
    ],
)
def test_a_folder_may_have_an_odd_name(name: str, tmp_path: Path) -> None:
    place = tmp_path / name
    table = conroi.create_table(place, pa.table({"id": [1, 2]})).append(pa.table({"id": [3]})).delete("id = 1")
    table = table.update({"id": "id + 1"}).compact().create_index("id")
    lance.write_dataset(pa.table({"id": [9]}), place, mode="append")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert sorted(column_values(conroi.open_table(place).to_arrow(filter="id > 0")["id"])) == [3, 4, 9]
    assert sorted(column_values(lance.dataset(place).to_table()["id"])) == [3, 4, 9]
    assert conroi.open_table(place).clone(str(tmp_path / f"{name[:100]}-clone")).count_rows() == 3
