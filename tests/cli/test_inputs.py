"""What `conroi load` reads besides plain files: standard input, JSON arrays, Arrow; and what it refuses."""

from __future__ import annotations

import datetime
import io
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import conroi
from conroi.cli.text_files import ArrayLines
from tests.cli.conftest import ENTRY_POINT, Run
from tests.support.arrow import column_values

pytestmark = pytest.mark.contract("C2")
ROWS = [{"id": 50, "amount": 1.5}, {"id": 51, "amount": 2.5}]
TABLE = pa.table({"id": [50, 51], "amount": [1.5, 2.5]})


def in_format(name: str) -> bytes:
    """The two rows in a format."""
    sink = pa.BufferOutputStream()
    if name == "parquet":
        parquet.write_table(TABLE, sink)
    elif name == "arrow":
        with pa.ipc.new_stream(sink, TABLE.schema) as writer:
            writer.write_table(TABLE)
    else:
        texts = {
            "csv": "id,amount\n50,1.5\n51,2.5\n",
            "tsv": "id\tamount\n50\t1.5\n51\t2.5\n",
            "json": json.dumps(ROWS, indent=2),
            "ndjson": "\n".join(map(json.dumps, ROWS)),
        }
        return texts[name].encode()
    return sink.getvalue().to_pybytes()


def typed(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.parametrize("name", ["csv", "tsv", "json", "ndjson", "parquet", "arrow"])
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_rows_come_on_standard_input(
    cli: Run, lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch, name: str, mode: str
) -> None:
    typed(monkeypatch, in_format(name))
    ran = cli("load", "lake/orders", "-", "--format", name, "--mode", mode, "--on", "id")
    assert ran.code == 0, ran.err
    assert lake["orders"].to_arrow(filter="id >= 50").to_pylist() == ROWS


def test_a_pipe_into_a_new_table(lake: conroi.Lake, tmp_path: Path) -> None:
    words = [str(ENTRY_POINT), "load", "lake/new", "-", "--format", "json", "--create", "--key", "id"]
    ran = subprocess.run(words, cwd=tmp_path, input=in_format("json"), capture_output=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert lake["new"].to_arrow().to_pylist() == ROWS
    assert b"standard input: types guessed from its first rows: id int64, amount double" in ran.stderr


def test_standard_input_is_read_again_when_the_load_is_done_again(
    cli: Run, lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from conroi.cli import loads

    opened: list[int] = []
    original = loads.Together.open

    def racing(self: loads.Together) -> pa.RecordBatchReader:
        opened.append(1)
        if len(opened) == 1:
            lake["orders"].update({"amount": "1000"}, where="id = 3")
        return original(self)

    monkeypatch.setattr(loads.Together, "open", racing)
    typed(monkeypatch, b'[{"id": 3, "amount": 9.5}]')
    assert cli("load", "lake/orders", "-", "--format", "json", "--mode", "merge", "--on", "id").code == 0
    assert len(opened) == 2
    assert lake["orders"].to_arrow(filter="id = 3")["amount"].to_pylist() == [9.5]


def test_a_file_with_one_array(cli: Run, lake: conroi.Lake) -> None:
    odd = [{"id": 60, "t": 'a "quoted], {text\\" \\\\', "l": [[1], [2, 3]], "s": {"x": "}"}}, {"id": 61, "t": "ü\n"}]
    Path("odd.json").write_text(json.dumps(odd, indent=1, ensure_ascii=False), "utf-8")
    assert cli("load", "lake/odd", "odd.json", "--create").code == 0
    assert lake["odd"].to_arrow().to_pylist() == [odd[0], {"id": 61, "t": "ü\n", "l": None, "s": None}]


def test_one_document_that_was_indented(cli: Run, lake: conroi.Lake) -> None:
    Path("one.json").write_text(json.dumps(ROWS[0], indent=2) + "\n" + json.dumps(ROWS[1], indent=2))
    assert cli("load", "lake/orders", "one.json").code == 0
    assert lake["orders"].to_arrow(filter="id >= 50").to_pylist() == ROWS


def test_dates_in_json_are_texts(cli: Run, lake: conroi.Lake) -> None:
    columns = "id int64 key, day date, t timestamp[us, tz=UTC], m decimal(5, 2)"
    assert cli("create", "lake/days", "--schema", columns).code == 0
    Path("days.json").write_text(
        '[{"id": 1, "day": "1843-10-01", "t": "2026-01-01T00:00:00Z", "m": "1.50"}, {"id": 2, "day": null}]'
    )
    ran = cli("load", "lake/days", "days.json")
    assert ran.code == 0, ran.err
    assert lake["days"].to_arrow().to_pylist() == [
        {
            "id": 1,
            "day": datetime.date(1843, 10, 1),
            "t": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
            "m": Decimal("1.50"),
        },
        {"id": 2, "day": None, "t": None, "m": None},
    ]
    Path("bad.json").write_text('{"id": 3, "day": "yesterday"}')
    bad = cli("load", "lake/days", "bad.json")
    assert bad.code == 1
    assert "bad.json cannot be read as json" in bad.err


def test_an_empty_array_adds_nothing_and_makes_no_table(cli: Run, lake: conroi.Lake) -> None:
    Path("none.json").write_text(" [ ]\n")
    assert cli("load", "lake/orders", "none.json").code == 0
    assert lake["orders"].count_rows() == 9
    ran = cli("load", "lake/new", "none.json", "--create")
    assert ran.code == 1
    assert "conroi create" in ran.err


@pytest.mark.parametrize(
    "text", ['[{"id": 1}', '[{"id": 1}] [2]', "[1, 2]", '[{"id": 1]', '[{"id": }]', '[{"id": 1}] x']
)
def test_what_is_no_array_of_objects_is_refused(cli: Run, lake: conroi.Lake, text: str) -> None:
    Path("bad.json").write_text(text)
    ran = cli("load", "lake/orders", "bad.json")
    assert ran.code == 1
    assert "bad.json cannot be read as json" in ran.err
    assert lake.version == 4


def test_an_array_is_cut_at_any_byte_of_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    from conroi.cli import text_files

    odd = [{"a": '\\"],{', "b": [1, {"c": "x\\\\"}]}, {"a": "é", "b": []}]
    text = json.dumps(odd, indent=1, ensure_ascii=False).encode()
    for size in (1, 2, 3, 7):
        monkeypatch.setattr(text_files, "CHUNK", size)
        lines = ArrayLines(io.BytesIO(text)).read().splitlines()
        assert [json.loads(line) for line in lines if line.strip()] == odd


def test_arrow_files_and_other_endings(cli: Run, lake: conroi.Lake) -> None:
    with pa.ipc.new_file("rows.arrow", TABLE.schema) as writer:
        writer.write_table(TABLE.slice(0, 1))
    assert cli("load", "lake/orders", "rows.arrow").code == 0
    Path("rows.data").write_bytes(in_format("csv").replace(b"50", b"70").replace(b"51", b"71"))
    unknown = cli("load", "lake/orders", "rows.data")
    assert unknown.code == 1
    assert "--format" in unknown.err
    assert cli("load", "lake/orders", "rows.data", "--format", "csv").code == 0
    assert sorted(column_values(lake["orders"].to_arrow(filter="id >= 50")["id"])) == [50, 70, 71]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("-",), 2, "--format"),
        (("-", "--format", "xml"), 2, "'xml' is not known"),
        (("-", "--format", "csv", "--spark"), 2, "standard input"),
        (("https://host/orders.csv",), 1, "does not download"),
        (("HTTP://host/orders.csv",), 1, "curl"),
    ],
)
def test_what_cannot_be_read(
    cli: Run, lake: conroi.Lake, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, said: str
) -> None:
    typed(monkeypatch, b"")
    ran = cli("load", "lake/orders", *words)
    assert ran.code == code
    assert said in ran.err
    assert lake.version == 4


def test_a_plan_says_how_its_text_files_are_written(cli: Run, lake: conroi.Lake) -> None:
    Path("old.txt").write_bytes("id;name\n1;Müller\n007;Jörg\n".encode("latin-1"))
    Path("guess.csv").write_text("id;zip\n1;007\n")
    Path("plan.toml").write_text(
        '[[table]]\nname="a"\nfiles="old.txt"\nformat="csv"\nencoding="latin-1"\ntypes={id="string"}\ncreate=true\n'
        '[[table]]\nname="b"\nfiles="guess.csv"\ncreate=true\n'
    )
    ran = cli("load", "lake", "--plan", "plan.toml")
    assert ran.code == 0, ran.err
    assert lake["a"].to_arrow().to_pylist() == [{"id": "1", "name": "Müller"}, {"id": "007", "name": "Jörg"}]
    assert lake["b"].to_arrow().to_pylist() == [{"id": 1, "zip": "007"}]
    assert "guess.csv: taken as separated by ';'" in ran.err
