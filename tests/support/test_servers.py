"""Servers for tests go when the test process goes, however it goes."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.support import servers

START = """
import sys, pathlib
from tests.support import servers
with servers.rclone(pathlib.Path(sys.argv[1])) as server:
    print(server.endpoint, flush=True)
    sys.stdin.read()
"""


def is_listening(endpoint: str) -> bool:
    try:
        urllib.request.urlopen(endpoint, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


@pytest.mark.parametrize("end", ["by itself", "killed"])
def test_a_server_ends_with_the_process_that_started_it(end: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", START, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        endpoint = process.stdout.readline().strip()
        assert is_listening(endpoint)
        if end == "killed":
            process.kill()
        else:
            process.communicate("")
    deadline = time.monotonic() + 30  # Linux kills it in its own time
    while is_listening(endpoint):
        assert time.monotonic() < deadline


def test_ports_are_free_and_all_different() -> None:
    assert len(set(servers.free_ports(20))) == 20
