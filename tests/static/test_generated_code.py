"""The generated protobuf code belongs to lance.proto, and runs on every protobuf that pyproject.toml allows.

All other Python code is checked by pyright in strict mode.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from conroi.format import lance_pb2
from tests.support.source import REPOSITORY

PROTO = "conroi/format/lance.proto"


def test_the_generated_code_belongs_to_the_proto_file(tmp_path: Path):
    compiled = tmp_path / "lance.desc"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-Isrc", f"--descriptor_set_out={compiled}", f"src/{PROTO}"]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    wanted = FileDescriptorSet.FromString(compiled.read_bytes()).file[0]
    generated = FileDescriptorProto()
    lance_pb2.DESCRIPTOR.CopyToProto(generated)
    for message in (wanted, generated):  # derived from the names of fields; one generator writes it, another does not
        _clear_json_names(message)
    assert generated == wanted, "run make proto"


def _clear_json_names(message: FileDescriptorProto) -> None:
    nested = list(message.message_type)
    while nested:
        each = nested.pop()
        nested += each.nested_type
        for field in each.field:
            field.ClearField("json_name")


def test_the_generated_code_asks_for_no_newer_runtime_than_the_lowest_allowed():
    """Code of a newer generator refuses every runtime that is older than itself."""
    text = (REPOSITORY / "src/conroi/format/lance_pb2.py").read_text("utf-8")
    assert "# Protobuf Python Version: 4.25." in text
    assert "ValidateProtobufRuntimeVersion" not in text
    assert '"protobuf>=4.25"' in (REPOSITORY / "pyproject.toml").read_text("utf-8")


def test_all_code_that_is_not_generated_is_checked_in_strict_mode():
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["tool"]["pyright"]
    assert settings["typeCheckingMode"] == "strict"
    assert set(settings["include"]) >= {"src", "tests", "tools", "benchmarks", "examples"}
    assert settings["exclude"] == ["**/*_pb2.py", "**/*_pb2.pyi", "**/__pycache__"]
