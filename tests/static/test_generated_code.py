"""The generated protobuf code is what `make proto` would write now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.source import REPOSITORY

PROTO = "conroi/format/lance.proto"


def test_the_generated_code_belongs_to_the_proto_file(tmp_path: Path):
    command = [sys.executable, "-m", "grpc_tools.protoc", "-Isrc", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    subprocess.run([*command, f"src/{PROTO}"], cwd=REPOSITORY, check=True, capture_output=True)
    for suffix in ("_pb2.py", "_pb2.pyi"):
        name = PROTO.replace(".proto", suffix)
        assert (tmp_path / name).read_text() == (REPOSITORY / "src" / name).read_text(), "run make proto"
