"""A standalone cluster of processes on this machine, whose executors have a Python without conroi."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pyspark

EXECUTORS = {"IS_EXECUTOR": "1"}
HOSTS = ("127.0.0.1", "127.0.0.2")
"""Of the workers. Spark starts a speculative copy of a task only on another host."""


def inherited() -> dict[str, str]:
    """The variables that programs get from the tests."""
    names = ("PATH", "HOME", "JAVA_HOME", "PYTHONPATH")
    return {name: os.environ[name] for name in names if name in os.environ}


def python_without_us(folder: Path) -> Path:
    """This Python; on executors without the packages that are installed by reference, as we are."""
    script = folder / "python-without-us"
    packages = sysconfig.get_path("purelib")
    script.write_text(
        "#!/bin/bash\n"
        f'[ -z "$IS_EXECUTOR" ] && exec {sys.executable} "$@"\n'
        f'PYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n'
    )
    script.chmod(0o755)
    return script


def check_python_without_us(bare: Path) -> None:
    """The control: executors do not have conroi, but what it imports."""
    probe = subprocess.run(
        [str(bare), "-P", "-c", "import lance, pyarrow; import conroi"],
        env={name: value for name, value in inherited().items() if name != "PYTHONPATH"} | EXECUTORS,
        capture_output=True,
        check=False,
    )
    assert b"No module named 'conroi'" in probe.stderr, probe.stderr


@contextmanager
def cluster(folder: Path) -> Generator[str]:
    """A master and two workers with one core each, each a process of its own."""
    port = free_port()
    home = str(Path(pyspark.__file__).parent)
    environment = inherited() | {"SPARK_HOME": home, "SPARK_WORKER_DIR": str(folder)} | EXECUTORS
    environment["SPARK_DAEMON_JAVA_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    environment.pop("PYTHONPATH", None)
    url = f"spark://{HOSTS[0]}:{port}"
    master = ["org.apache.spark.deploy.master.Master", "--port", str(port), "--webui-port", "0"]
    worker = ["org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0", url]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number, (host, command) in enumerate(((HOSTS[0], master), (HOSTS[0], worker), (HOSTS[1], worker))):
            launcher = [f"{home}/bin/spark-class", command[0], "--host", host, *command[1:]]
            with open(folder / f"process-{number}.log", "wb") as log:
                own = environment | {"SPARK_LOCAL_IP": host}
                started.append(subprocess.Popen(launcher, env=own, stdout=log, stderr=log))
            (folder / f"process-{number}.pid").write_text(str(started[-1].pid))
            if number == 0:
                wait_for(port)
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(timeout=60)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as listening:
        listening.bind((HOSTS[0], 0))
        return listening.getsockname()[1]


def wait_for(port: int, process: subprocess.Popen[str] | None = None) -> None:
    """Until a server listens; an error if it does not for long, or its process has ended."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex((HOSTS[0], port)) == 0:
                return
        assert process is None or process.poll() is None, "the server has ended"
        time.sleep(0.2)
    raise AssertionError("the server does not answer")
