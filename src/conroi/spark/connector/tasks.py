"""Text forms of what tasks are told and what they answer. The JVM carries them and does not look inside."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import types as st

from conroi.errors import CorruptionError, InvalidInputError
from conroi.format.json import parse_object
from conroi.spark.packets import Part, error_from_text, error_to_text, whole
from conroi.spark.pins import Place
from conroi.spark.write_task import WriteTask
from conroi.storage.cloud_options import StorageOptions


def bytes_to_text(data: bytes) -> str:
    """Bytes inside JSON."""
    return base64.b64encode(data).decode()


def bytes_from_text(text: str) -> bytes:
    """The bytes again."""
    return base64.b64decode(text)


def schema_to_text(schema: pa.Schema) -> str:
    """A schema of Arrow inside JSON."""
    return bytes_to_text(schema.serialize().to_pybytes())


def schema_from_text(text: str) -> pa.Schema:
    """The schema again."""
    return pa.ipc.read_schema(pa.py_buffer(bytes_from_text(text)))


def struct_from_text(text: str) -> st.StructType:
    """Columns as Spark writes them."""
    with whole("The columns of a statement"):
        return st.StructType.fromJson(parse_object(text, "The columns of a statement"))


def write_task_to_text(task: WriteTask) -> str:
    """How tasks write, for all of them."""
    place = task.place
    return json.dumps(
        {
            "uri": place.uri,
            "storage_options": dict(place.storage_options),
            "durable": place.durable,
            "reach": list(place.reach),
            "fields": [bytes_to_text(field) for field in task.fields],
            "schema": bytes_to_text(task.schema),
            "data_format": task.data_format,
            "rows_per_file": task.rows_per_file,
            "key": list(task.key),
            "key_bytes": task.key_bytes,
        }
    )


def write_task_from_text(text: str) -> WriteTask:
    """How to write, in a task."""
    facts = _facts(text, "The task of a write")
    with whole("The task of a write"):
        place = Place(
            str(facts["uri"]),
            StorageOptions(facts["storage_options"]),
            bool(facts["durable"]),
            tuple(map(str, facts["reach"])),
        )
        return WriteTask(
            place=place,
            fields=tuple(bytes_from_text(field) for field in facts["fields"]),
            schema=bytes_from_text(facts["schema"]),
            data_format=str(facts["data_format"]),
            rows_per_file=int(facts["rows_per_file"]),
            key=tuple(map(str, facts["key"])),
            key_bytes=int(facts["key_bytes"]),
        )


def part_to_text(part: Part) -> str:
    """What a task wrote."""
    keys = None if part.keys is None else bytes_to_text(part.keys)
    error = None if part.error is None else error_to_text(part.error)
    return json.dumps({"fragments": bytes_to_text(part.fragments), "rows": part.rows, "keys": keys, "error": error})


def part_from_text(text: str) -> Part:
    """What a task wrote; raises the error in its rows."""
    facts = _facts(text, "The answer of a task")
    if facts.get("error") is not None:
        raise error_from_text(str(facts["error"]))
    with whole("The answer of a task"):
        keys = None if facts["keys"] is None else bytes_from_text(facts["keys"])
        return Part(bytes_from_text(facts["fragments"]), int(facts["rows"]), keys)


def _facts(text: str, what: str) -> Mapping[str, Any]:
    try:
        return parse_object(text, what)
    except CorruptionError:
        raise InvalidInputError(f"{what} is damaged.", hint="Run the statement again.") from None
