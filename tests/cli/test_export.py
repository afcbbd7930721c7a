from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyarrow import csv, parquet

import conroi
from tests.cli.conftest import Run


@pytest.mark.parametrize("name", ["out.parquet", "out.csv", "out.jsonl"])
def test_rows_are_written_by_the_ending_of_the_file(cli: Run, lake: conroi.Lake, name: str) -> None:
    ran = cli("export", "lake@2/orders", name)
    assert ran.out == f"Wrote 10 rows to {name}.\n"
    if name.endswith("parquet"):
        rows = parquet.read_table(name).to_pylist()
    elif name.endswith("csv"):
        rows = csv.read_csv(name).to_pylist()
    else:
        rows = [json.loads(line) for line in Path(name).read_text().splitlines()]
    assert rows == [{"id": n, "amount": n / 2} for n in range(10)]


def test_some_columns_of_some_rows(cli: Run, lake: conroi.Lake) -> None:
    words = ("export", "lake/orders", "out.jsonl", "--columns", "id", "--where", "id > 7")
    found = cli(*words, "--json").json
    assert found == {"name": "orders", "version": 2, "file": "out.jsonl", "rows": 2}
    assert Path("out.jsonl").read_text() == '{"id": 8}\n{"id": 9}\n'


def test_a_file_that_is_there_is_left_alone(cli: Run, lake: conroi.Lake) -> None:
    Path("out.csv").write_text("mine")
    assert cli("export", "lake/orders", "out.csv").code == 1
    assert Path("out.csv").read_text() == "mine"
    assert cli("export", "lake/orders", "out.csv", "--force").code == 0
    assert Path("out.csv").read_text() != "mine"


def test_what_cannot_be_written_leaves_nothing(cli: Run, lake: conroi.Lake, tmp_path: Path) -> None:
    lake.create_table("deep", [{"a": {"b": [1, 2]}}])
    ran = cli("export", "lake/deep", "out.csv")
    assert ran.code == 1
    assert "--columns" in ran.err
    assert cli("export", "lake/orders", "out.xls").code == 1
    assert cli("export", "lake/orders", "out.csv", "--columns", "nope").code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]


def test_what_was_exported_loads_again(cli: Run, lake: conroi.Lake) -> None:
    assert cli("export", "lake/orders", "out.parquet").code == 0
    assert cli("load", "lake/copy", "out.parquet", "--create", "--key", "id").code == 0
    assert lake["copy"].to_arrow().to_pylist() == lake["orders"].to_arrow().to_pylist()
