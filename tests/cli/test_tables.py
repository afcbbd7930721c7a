"""create, drop, rename and copy: tables are defined from the command line."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import conroi
from tests.cli.conftest import Run
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("C1")


def test_a_table_is_made_from_the_columns_that_were_typed(cli: Run, lake: conroi.Lake) -> None:
    ran = cli("create", "lake/sales.items", "--schema", "id int64 key, day date not null, price decimal(10, 2)")
    assert (ran.code, ran.out) == (0, "Created sales.items: 3 columns, key id.\n"), ran.err
    made = lake["sales.items"]
    assert made.schema.equals(
        pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                pa.field("day", pa.date32(), nullable=False),
                pa.field("price", pa.decimal128(10, 2)),
            ]
        )
    )
    assert (made.key, made.count_rows()) == (("id",), 0)
    assert lake.history(limit=1)[0].message == "create sales.items"
    assert cli("schema", "lake/sales.items", "--json").json["key"] == ["id"]


def test_a_table_is_made_from_a_file_without_its_rows(cli: Run, lake: conroi.Lake) -> None:
    parquet.write_table(pa.table({"id": pa.array([1], pa.int32()), "x": ["a"]}), "rows.parquet")
    assert cli("create", "lake/a", "--schema-file", "rows.parquet", "--key", "id").code == 0
    assert (lake["a"].key, lake["a"].count_rows(), lake["a"].schema.field("id").type) == (("id",), 0, pa.int32())
    Path("rows.csv").write_text("id;zip\n1;007\n")
    assert cli("create", "lake/b", "--schema-file", "rows.csv").code == 0
    assert [str(field.type) for field in lake["b"].schema] == ["int64", "string"]
    Path("columns.txt").write_text("id int64 key  # the number\nvector float32[4]\n")
    found = cli("create", "lake/c", "--schema-file", "columns.txt", "--author", "ada", "--json").json
    assert found == {
        "name": "c",
        "created": True,
        "version": 1,
        "key": ["id"],
        "columns": {"id": "int64", "vector": "fixed_size_list<item: float>[4]"},
    }
    assert lake.history(limit=1)[0].author == "ada"


def test_a_table_that_is_there_is_an_error_unless_it_may_be(cli: Run, lake: conroi.Lake) -> None:
    words = ("create", "lake/new", "--schema", "id int64 key")
    assert cli(*words).code == 0
    version = lake.version
    again = cli(*words)
    assert again.code == 1
    assert "'new' already" in again.err
    assert cli(*words, "--if-not-exists").out == "new already exists, at version 1.\n"
    other = cli("create", "lake/new", "--schema", "id string", "--if-not-exists")
    assert other.code == 1
    assert lake.version == version


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Say which columns"),
        (("--schema", "id strng"), "Did you mean string?"),
        (("--schema", "id int64", "--schema-file", "x"), "Say which columns"),
        (("--schema", "id int64 key, n int64", "--key", "n"), "the key is id"),
        (("--schema", ""), "names no column"),
    ],
)
def test_columns_that_make_no_table_are_wrong_usage(
    cli: Run, lake: conroi.Lake, words: tuple[str, ...], said: str
) -> None:
    ran = cli("create", "lake/new", *words)
    assert ran.code == 2
    assert said in ran.err
    assert lake.version == 4


def test_drop_changes_nothing_without_yes_and_leaves_the_past_alone(cli: Run, lake: conroi.Lake) -> None:
    ran = cli("drop", "lake/orders")
    assert (ran.code, ran.out) == (0, "orders would be dropped: 9 rows at version 2.\n")
    assert "--yes" in ran.err
    assert cli("drop", "lake/orders", "--dry-run", "--json").json == {
        "name": "orders",
        "done": False,
        "version": 2,
        "rows": 9,
    }
    assert cli("drop", "lake/orders", "--dry-run", "--yes").code == 2
    assert lake.version == 4
    done = cli("drop", "lake/orders", "--yes", "--author", "ada", "-m", "not used any more")
    assert done.out == "Dropped orders. Version 4 of the lake still has it.\n"
    assert lake.tables() == ["sales.customers"]
    assert lake.at(4)["orders"].count_rows() == 9
    newest = lake.history(limit=1)[0]
    assert (newest.message, newest.author) == ("not used any more", "ada")
    gone = cli("drop", "lake/orders", "--yes")
    assert gone.code == 1
    assert "no table 'orders'" in gone.err


def test_rename_keeps_the_history(cli: Run, lake: conroi.Lake) -> None:
    ran = cli("rename", "lake/orders", "sales.orders")
    assert (ran.code, ran.out) == (0, "orders is called sales.orders now.\n")
    assert lake.tables() == ["sales.customers", "sales.orders"]
    assert lake["sales.orders"].versions() == [1, 2]
    assert cli("rename", "lake/sales.orders", "other/orders").code == 2
    assert cli("rename", "lake/sales.orders").code == 2
    taken = cli("rename", "lake/sales.orders", "sales.customers")
    assert taken.code == 1
    assert "sales.customers" in taken.err


def test_copy_to_another_name_and_into_another_lake(cli: Run, lake: conroi.Lake, tmp_path: Path) -> None:
    before = sorted(column_values(lake["orders"].to_arrow()["id"]))
    ran = cli("copy", "lake/orders", "orders_2")
    assert (ran.code, ran.out) == (0, "Copied 9 rows of orders to orders_2.\n"), ran.err
    assert sorted(column_values(lake["orders_2"].to_arrow()["id"])) == before
    assert lake["orders_2"].key == ("id",)
    assert cli("copy", "lake@2/orders", "orders_first").code == 0
    assert lake["orders_first"].count_rows() == 10
    assert cli("copy", "lake/orders@1", "other/orders").code == 1  # there is no such lake
    assert cli("init", "other").code == 0
    found = cli("copy", "lake/orders@1", "other/orders", "--json").json
    assert (found["rows"], found["copied_version"], found["lake_version"]) == (10, 1, 2)
    assert conroi.connect(tmp_path / "other")["orders"].count_rows() == 10
    taken = cli("copy", "lake/orders", "orders_2")
    assert taken.code == 1
    assert cli("copy", "lake/orders").code == 2


@pytest.mark.contract("C6")
@pytest.mark.parametrize(
    "words",
    [
        ("drop", "lake/orders@1", "--yes"),
        ("delete", "lake/orders@1", "--where", "true", "--yes"),
        ("rename", "lake/orders@1", "new"),
        ("load", "lake/orders@1", "new.csv"),
        ("compact", "lake/orders@1", "--yes"),
        ("restore", "lake/orders@1", "1"),
        ("mend", "lake/orders@1"),
        ("create", "lake/new@1", "--schema", "id int64"),
        ("copy", "lake/orders", "lake/new@1"),
    ],
    ids=lambda words: words[0],
)
def test_a_past_version_of_a_table_is_never_written_as_if_it_were_the_newest(
    cli: Run, lake: conroi.Lake, words: tuple[str, ...]
) -> None:
    Path("new.csv").write_text("id,amount\n50,1\n")
    ran = cli(*words)
    assert ran.code == 2
    assert "can only be read" in ran.err
    assert lake.version == 4


@pytest.mark.contract("C6")
@pytest.mark.parametrize("words", [("drop", "lake@2/orders", "--yes"), ("load", "lake@2/orders", "new.csv")])
def test_a_past_version_of_a_lake_is_read_only(cli: Run, lake: conroi.Lake, words: tuple[str, ...]) -> None:
    Path("new.csv").write_text("id,amount\n50,1\n")
    ran = cli(*words)
    assert ran.code == 1
    assert "can only be read" in ran.err
    assert lake.version == 4
