"""Values that pylance's own writer refuses, and models that a tokenizer lacks: typed errors, not faults of storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import conroi

pytestmark = pytest.mark.contract("T28", "T12")

NOT_NULL = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("s", pa.string())])


@pytest.mark.parametrize("data_format", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize(
    "rows",
    [[{"id": None, "s": "b"}], pa.table({"id": pa.array([None], pa.int64()), "s": ["b"]})],
    ids=["rows", "arrow"],
)
def test_a_null_where_none_may_be_is_bad_input_in_every_version(tmp_path: Path, data_format: str, rows: Any) -> None:
    """B6: for version 2.0 it was a StoreError with a traceback in it."""
    table = conroi.create_table(tmp_path / "t", pa.table({"id": [1], "s": ["a"]}, NOT_NULL), data_format=data_format)
    with pytest.raises(conroi.InvalidInputError, match="'id' may not be null") as refused:
        table.append(rows)
    assert "Traceback" not in str(refused.value)
    assert refused.value.table == table.uri
    assert table.latest().version == 1


def test_what_the_stream_itself_raises_reaches_the_caller(tmp_path: Path) -> None:
    def batches() -> Any:
        yield pa.record_batch({"id": [2], "s": ["b"]}, schema=NOT_NULL)
        raise ZeroDivisionError("mine")

    table = conroi.create_table(tmp_path / "t", pa.table({"id": [1], "s": ["a"]}, NOT_NULL), data_format="2.0")
    with pytest.raises(ZeroDivisionError, match="mine"):
        table.append(pa.RecordBatchReader.from_batches(NOT_NULL, batches()))


def test_text_that_is_no_json_is_bad_input(tmp_path: Path) -> None:
    table = conroi.create_table(tmp_path / "t", pa.table({"id": [1], "j": pa.array(['{"a": 1}'], pa.json_())}))
    with pytest.raises(conroi.InvalidInputError, match="JSON") as refused:
        table.append(pa.table({"id": [2], "j": ["{bad"]}))
    assert "storage" not in (refused.value.hint or "")
    assert table.append(pa.table({"id": [2], "j": ['{"b": 2}']})).count_rows() == 2


@pytest.mark.parametrize("there", [False, True])
def test_a_tokenizer_without_its_model_is_not_a_damaged_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    monkeypatch.setenv("LANCE_LANGUAGE_MODEL_HOME", str(tmp_path / "models"))
    if there:
        (tmp_path / "models" / "jieba" / "default").mkdir(parents=True)
        (tmp_path / "models" / "jieba" / "default" / "config.json").write_text('{"main": "dict.txt"}')
    table = conroi.create_table(tmp_path / "t", pa.table({"t": ["hello"]}))
    with pytest.raises(conroi.InvalidInputError, match="tokenizer 'jieba/default' cannot be loaded") as refused:
        table.create_index("t", "INVERTED", options={"base_tokenizer": "jieba/default"})
    assert "LANCE_LANGUAGE_MODEL_HOME" in (refused.value.hint or "")
