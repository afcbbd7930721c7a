"""Lakes on an object store, and loads by Spark: what only a process of its own can show."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import conroi
from tests.cli.conftest import Run
from tests.support.servers import S3Server


def test_a_lake_on_an_object_store(cli: Run, moto: S3Server) -> None:
    lake = moto.new_uri("lake")
    options = [word for key, value in moto.options.items() for word in ("--storage-option", f"{key}={value}")]
    assert cli("tables", lake, *options).code == 1  # looking makes none
    assert cli("init", lake, *options).code == 0
    Path("new.csv").write_text("id,amount\n50,1.5\n")
    assert cli("load", f"{lake}/orders", "new.csv", "--create", "--key", "id", *options).code == 0
    assert cli("head", f"{lake}/orders", "--json", *options).rows == [{"id": 50, "amount": 1.5}]
    assert cli("sql", f"{lake}@2", "SELECT sum(amount) AS s FROM orders", "--json", *options).rows == [{"s": 1.5}]
    assert cli("log", lake, "--json", *options).rows[0]["tables"][0]["rows_added"] == 1


@pytest.mark.timeout(600)
def test_spark_reads_and_writes_the_files_of_a_load(process: Run, lake: conroi.Lake, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"id": range(100, 1100), "amount": [1.0] * 1000}), tmp_path / "big.parquet")
    (tmp_path / "more.csv").write_text("id,amount\n5000,2.5\n")
    lake.create_table("people", pa.schema({"id": pa.int64(), "zip": pa.string(), "name": pa.string()}))
    (tmp_path / "people.csv").write_bytes("id;zip;name\n1;00123;Müller\n".encode("latin-1"))
    (tmp_path / "plan.toml").write_text(
        '[[table]]\nname="orders"\nfiles=["big.parquet", "more.csv"]\n'
        '[[table]]\nname="people"\nfiles="people.csv"\nencoding="latin-1"\ndelimiter=";"\n'
    )
    ran = process("load", "lake", "--plan", "plan.toml", "--spark", "--json", CONROI_AUTHOR="ada")
    assert ran.code == 0, ran.err
    assert [each["rows_read"] for each in ran.json["tables"]] == [None, None]
    assert lake["orders"].count_rows() == 9 + 1001
    assert lake["people"].to_arrow().to_pylist() == [{"id": 1, "zip": "00123", "name": "Müller"}]
    assert lake.history(limit=1)[0].author == "ada"
