"""Passwords and keys reach the store, and nothing else: no message, log, repr, traceback or file shows them."""

from __future__ import annotations

import contextlib
import io
import logging
import traceback
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

import conroi
from conroi.stores import attach, detach, dynamodb_lock, postgres_lock
from conroi.versions import open_records
from tests.support.databases import PASSWORD, PASSWORD_IN_URI, PostgresServer, dynamodb_address
from tests.support.servers import S3Server

KEY_ID, SECRET, TOKEN = "AKIAHUSHHUSHHUSH", "hush/secret+key", "hush-session-token"
WRONG = "another-hush-password"
SECRETS = (PASSWORD, PASSWORD_IN_URI, WRONG, KEY_ID, SECRET, TOKEN)


class Everything:
    """All that is readable afterwards."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def refused(self, work: Callable[[], object]) -> None:
        """Do what fails, and keep its traceback, with every exception that hangs on it."""
        try:
            work()
        except conroi.ConroiError as error:
            chained: BaseException | None = error
            while chained is not None:
                self.texts += ["".join(traceback.format_exception(chained)), repr(chained), repr(chained.args)]
                chained = chained.__cause__ or chained.__context__
        else:
            raise AssertionError("it did not fail")

    def shown(self, *things: object) -> None:
        self.texts += [repr(thing) + str(thing) for thing in things]

    def assert_no_secrets(self) -> None:
        found = [(secret, text) for secret in SECRETS for text in self.texts if secret in text]
        assert not found


@pytest.fixture
def everything() -> Everything:
    return Everything()


@contextlib.contextmanager
def logged(everything: Everything) -> Generator[None]:
    """All loggers, at their most talkative."""
    output = io.StringIO()
    handler, root = logging.StreamHandler(output), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    # boto's own debug log prints what it signs; that is AWS's to decide, and is off by default.
    quiet = [logging.getLogger(name) for name in ("botocore", "boto3", "urllib3")]
    for logger in quiet:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        everything.texts.append(output.getvalue())


def files_below(folder: Path) -> str:
    return "".join(file.read_bytes().decode("latin-1") for file in folder.rglob("*") if file.is_file())


def test_the_password_of_postgres_shows_nowhere(
    postgres: PostgresServer, tmp_path: Path, everything: Everything, capfd: pytest.CaptureFixture[str]
) -> None:
    address, uri = postgres.new_address(), tmp_path / "t.lance"
    with logged(everything):
        table = conroi.create_table(uri, [{"row": 1}], store=address).append([{"row": 2}])
        lock = postgres_lock(address, "x", timeout_s=0)
        with lock(1) as held:
            everything.shown(lock, held)
            everything.refused(lambda: lock(2).__enter__())
        everything.shown(table, table._files, table._files.versions, open_records(address), table.history())
        everything.shown(open_records(address)._database)  # type: ignore[attr-defined]
        for broken in (
            address.replace(PASSWORD_IN_URI, WRONG),
            address.replace(f":{postgres.port}", ":1"),
            address.replace("/postgres?", "/no-such-database?"),
            address.replace(f":{postgres.port}", ":no-port"),
            address + "&no_such_setting=1",
            address.replace("postgresql", "oracle"),
        ):
            for work in (conroi.open_table, attach, detach):
                everything.refused(lambda work=work, broken=broken: work(uri, store=broken))
        everything.refused(lambda: conroi.open_table(tmp_path / "none.lance", store=address))
        everything.refused(lambda: table.append([{"other": 1}]))
    with postgres.connect() as connection:
        namespace = address.rpartition("%3D")[2]
        everything.shown(connection.execute(f"SELECT * FROM {namespace}.conroi_records").fetchall())  # type: ignore[arg-type]
    everything.texts += [files_below(tmp_path), *capfd.readouterr()]
    everything.assert_no_secrets()


def test_the_keys_of_aws_show_nowhere(
    moto: S3Server, tmp_path: Path, everything: Everything, capfd: pytest.CaptureFixture[str]
) -> None:
    address, uri = dynamodb_address(moto.endpoint, "shared"), tmp_path / "t.lance"
    options = {"aws_access_key_id": KEY_ID, "aws_secret_access_key": SECRET, "aws_session_token": TOKEN}
    with logged(everything):
        table = conroi.create_table(uri, [{"row": 1}], store=address, storage_options=options).append([{"row": 2}])
        records = open_records(address, options)
        everything.shown(table, table._files, table._files.versions, records, records._table, records._client)  # type: ignore[attr-defined]
        for broken in ("dynamodb://t?region=x&endpoint=http://127.0.0.1:1", "dynamodb://t?region=x&endpoint=nonsense"):
            everything.refused(lambda broken=broken: conroi.open_table(uri, store=broken, storage_options=options))
        everything.shown(dynamodb_lock(address, "x"))
    everything.shown(records.all(records.key_of(table._files.objects)))
    everything.texts += [files_below(tmp_path), *capfd.readouterr()]
    everything.assert_no_secrets()


def test_control_a_secret_that_is_shown_is_found(everything: Everything) -> None:
    def tell() -> None:
        raise conroi.StoreError(f"could not log in with {PASSWORD}", hint="-")

    everything.refused(tell)
    with pytest.raises(AssertionError):
        everything.assert_no_secrets()
