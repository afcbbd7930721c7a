from __future__ import annotations

import gzip
import json
from pathlib import Path

import deltalake
import lance
import pyarrow as pa
import pytest
from pyarrow import parquet

import conroi
from tests.cli.conftest import Run

ROWS = pa.table({"id": [50, 51], "amount": [1.5, 2.5]})


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The same two rows in every kind of file and folder."""
    folder = tmp_path / "files"
    folder.mkdir()
    parquet.write_table(ROWS, folder / "rows.parquet")
    (folder / "rows.csv").write_text("id,amount\n50,1.5\n51,2.5\n")
    (folder / "rows.tsv").write_text("id\tamount\n50\t1.5\n51\t2.5\n")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS.to_pylist()))
    with gzip.open(folder / "rows.jsonl.gz", "wt") as file:
        file.write((folder / "rows.jsonl").read_text())
    (folder / "parts").mkdir()
    parquet.write_table(ROWS.slice(0, 1), folder / "parts" / "a.parquet")
    parquet.write_table(ROWS.slice(1), folder / "parts" / "b.parquet")
    lance.write_dataset(ROWS, folder / "rows.lance")
    deltalake.write_deltalake(str(folder / "delta"), ROWS)
    return folder


KINDS = [
    "rows.parquet",
    "rows.csv",
    "rows.tsv",
    "rows.jsonl",
    "rows.jsonl.gz",
    "parts",
    "rows.lance",
    "delta",
    "parts/*",
]


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_file_is_appended(cli: Run, lake: conroi.Lake, files: Path, name: str) -> None:
    ran = cli("load", "lake/orders", f"files/{name}")
    assert ran.code == 0, ran.err
    assert ran.out == "orders: 2 rows from files, now at version 3\nThe lake is at version 5.\n"
    assert lake["orders"].to_arrow(filter="id >= 50").to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.jsonl", "rows.lance", "delta"])
def test_every_kind_of_file_makes_a_table(cli: Run, lake: conroi.Lake, files: Path, name: str) -> None:
    assert cli("load", "lake/new", f"files/{name}").code == 1
    assert cli("load", "lake/new", f"files/{name}", "--create", "--key", "id").code == 0
    assert lake["new"].key == ("id",)
    assert lake["new"].to_arrow().to_pylist() == ROWS.to_pylist()


def test_a_merge_updates_and_inserts_and_leaves_other_columns_alone(cli: Run, lake: conroi.Lake) -> None:
    lake["orders"].add_columns([pa.field("note", pa.string())]).update({"note": "'kept'"})
    Path("change.jsonl").write_text('{"id": 3, "amount": 9.5}\n{"id": 70, "amount": 7}\n')
    assert cli("load", "lake/orders", "change.jsonl", "--mode", "merge", "--on", "id").code == 0
    found = lake["orders"].to_arrow(filter="id IN (3, 70)").to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [
        {"id": 3, "amount": 9.5, "note": "kept"},
        {"id": 70, "amount": 7.0, "note": None},
    ]


def test_overwrite_replaces_all_rows(cli: Run, lake: conroi.Lake, files: Path) -> None:
    found = cli("load", "lake/orders", "files/rows.csv", "--mode", "overwrite", "--json").json
    assert found["version"] == 5
    assert found["tables"] == [{"name": "orders", "version": 3, "rows_read": 2}]
    assert lake["orders"].count_rows() == 2


def test_a_load_with_a_key_happens_once(cli: Run, lake: conroi.Lake, files: Path) -> None:
    words = ("load", "lake/orders", "files/rows.csv", "--once", "monday", "-m", "monday's", "--author", "ada")
    assert cli(*words).code == 0
    again = cli(*words)
    assert (again.code, again.out) == (0, "This load was committed before, as version 5 of the lake.\n")
    assert cli(*words, "--json").json["was_done_before"] is True
    assert lake["orders"].count_rows() == 11
    newest = lake.history(limit=1)[0]
    assert (newest.version, newest.message, newest.author) == (5, "monday's", "ada")


def test_a_plan_loads_several_tables_in_one_commit(cli: Run, lake: conroi.Lake, files: Path) -> None:
    (files / "plan.toml").write_text(
        """
        message = "nightly"
        author = "loader"
        once = "night 7"
        [[table]]
        name = "orders"
        files = "rows.csv"
        mode = "merge"
        on = "id"
        [[table]]
        name = "sales.returns"
        files = ["parts/*.parquet"]
        create = true
        key = ["id"]
        """
    )
    assert cli("load", "lake", "--plan", "files/plan.toml").code == 0
    newest = lake.history(limit=1)[0]
    assert (newest.version, newest.message, newest.author) == (5, "nightly", "loader")
    assert newest.tables == {"orders": 3, "sales.returns": 1}
    assert cli("load", "lake", "--plan", "files/plan.toml", "--json").json["was_done_before"] is True


def test_a_plan_in_which_one_file_is_bad_loads_nothing(cli: Run, lake: conroi.Lake, files: Path) -> None:
    (files / "bad.csv").write_text("id,amount\n1,2\nnot a number,3\n")
    (files / "plan.toml").write_text(
        '[[table]]\nname="sales.customers"\nfiles="names.csv"\n[[table]]\nname="orders"\nfiles="bad.csv"\n'
    )
    (files / "names.csv").write_text("name,n\nAlan,7\n")
    ran = cli("load", "lake", "--plan", "files/plan.toml")
    assert ran.code == 1
    assert "bad.csv cannot be read as csv" in ran.err
    assert lake.version == 4


@pytest.mark.parametrize(
    "plan", ["tables = 1", "[[table]]\nname='x'", "[[table]]\nname='x'\nfiles='rows.csv'\nmodus='y'", "not toml"]
)
def test_a_plan_that_makes_no_sense_is_wrong_usage(cli: Run, lake: conroi.Lake, files: Path, plan: str) -> None:
    (files / "plan.toml").write_text(plan)
    assert cli("load", "lake", "--plan", "files/plan.toml").code == 2
    assert lake.version == 4


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("lake/orders", "missing.csv"), 1, "There is no file missing.csv."),
        (("lake/orders", "missing*.csv"), 1, "No file is called missing*.csv."),
        (("lake/orders", "files/rows.csv", "--mode", "push"), 2, "'push' is not known"),
        (("lake/orders", "files/rows.csv", "--mode", "merge"), 2, "needs the columns"),
        (("lake/orders",), 2, "which files"),
        (("lake", "files/rows.csv"), 2, "which table"),
        (("lake/orders", "files/rows.csv", "--plan", "x.toml"), 2, "the lake alone"),
    ],
)
def test_what_cannot_be_loaded(
    cli: Run, lake: conroi.Lake, files: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    ran = cli("load", *words)
    assert ran.code == code
    assert said in ran.err
    assert lake.version == 4


def test_a_key_that_is_there_already_is_refused_and_named(cli: Run, lake: conroi.Lake) -> None:
    Path("again.csv").write_text("id,amount\n3,1\n")
    ran = cli("load", "lake/orders", "again.csv", "--json")
    assert ran.code == 1
    assert ran.error["type"] == "DuplicateKeyError"


def test_files_with_other_columns_than_the_first_are_refused(cli: Run, lake: conroi.Lake, files: Path) -> None:
    (files / "other.csv").write_text("id,price\n60,1\n")
    ran = cli("load", "lake/orders", "files/rows.csv", "files/other.csv")
    assert ran.code == 1
    assert "files/other.csv has other columns than the first file: amount, price." in ran.err
    assert lake.version == 4


def test_a_load_is_repeated_after_a_conflict(cli: Run, lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("change.csv").write_text("id,amount\n3,9.5\n")
    from conroi.cli import loads

    opened: list[int] = []
    original = loads.Together.open

    def racing(self: loads.Together) -> pa.RecordBatchReader:
        opened.append(1)
        if len(opened) == 1:  # another worker changes the same row after our transaction began
            lake["orders"].update({"amount": "1000"}, where="id = 3")
        return original(self)

    monkeypatch.setattr(loads.Together, "open", racing)
    ran = cli("load", "lake/orders", "change.csv", "--mode", "merge", "--on", "id")
    assert ran.code == 0, ran.err
    assert len(opened) == 2
    assert lake["orders"].to_arrow(filter="id = 3")["amount"].to_pylist() == [9.5]


def test_a_large_file_is_not_held_in_memory(cli: Run, lake: conroi.Lake, tmp_path: Path) -> None:
    from conroi.cli.sources import Source, Together

    path = tmp_path / "large.csv"
    with path.open("w") as file:
        file.write("id,text\n")
        file.writelines(f"{number},{'x' * 500}\n" for number in range(240_000))  # 120 MB
    seen: list[int] = []
    before = pa.total_allocated_bytes()
    for batch in Together((Source(str(path), "csv"),)).open():
        seen.append(pa.total_allocated_bytes() - before)
        del batch
    assert len(seen) > 5
    assert max(seen) < 70_000_000, "pyarrow reads ahead by some blocks of a megabyte, more on a busy machine"
    ran = cli("load", "lake/large", path, "--create")
    assert ran.code == 0, ran.err
    assert lake["large"].count_rows() == 240_000
