"""The addresses of stores, and what a table is called in one."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import pytest

import conroi
from conroi.errors import InvalidInputError, UnsupportedError
from conroi.storage import open_objects
from conroi.storage.dynamodb import dynamo_table
from conroi.versions import open_records, split_uri
from conroi.versions.records import bucketless_key, full_key
from conroi.versions.sql_records import SqliteRecords

S3 = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_region": "x"}


def test_a_sqlite_address_has_three_slashes_and_a_path_from_here_or_four_and_one_from_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub dir").mkdir()
    assert repr(open_records("sqlite:///sub%20dir/a.db")) == repr(SqliteRecords(str(tmp_path / "sub dir/a.db")))
    assert repr(open_records(f"sqlite:///{tmp_path}/b.db")) == repr(SqliteRecords(str(tmp_path / "b.db")))


@pytest.mark.parametrize(
    "address",
    [
        "", "orders.db", "sqlite://", "sqlite:///", "sqlite://host/a.db", "sqlite:///a.db?x=1", "mysql://u:hush@h/d",
        "dynamodb://", "dynamodb://u:hush@t", "dynamodb://a/b", "dynamodb://t?secret=hush", "postgresql://u:hush@[h/d",
        "postgresql://u:hush@h:notaport/d?x=y",
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_read_is_refused_and_not_repeated(address: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        conroi.open_table(tmp_path / "t.lance", store=address)
    assert caught.value.hint
    assert "hush" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_dynamodb_takes_region_and_endpoint_from_the_address_and_credentials_from_the_storage_options() -> None:
    table = dynamo_table("dynamodb://T?region=eu-1&endpoint=http://h:1", {**S3, "aws_session_token": "c"})
    assert (table.name, table.region, table.endpoint) == ("T", "eu-1", "http://h:1")
    assert table.credentials == {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_session_token": "c"}
    assert "aws" not in repr(table)
    by_options = dynamo_table("dynamodb://T", {**S3, "dynamodb_endpoint": "http://h:2"})
    assert (by_options.region, by_options.endpoint) == ("x", "http://h:2")
    assert dynamo_table("dynamodb://T").credentials == {}


def test_a_uri_of_pylance_with_a_store_in_it_is_taken_apart() -> None:
    assert split_uri("s3+ddb://b/a%20b/t?ddbTableName=T", None) == ("s3://b/a%20b/t", "dynamodb://T")
    assert split_uri("s3://b/t", None) == ("s3://b/t", None)
    assert split_uri(Path("t"), "sqlite:///x") == (Path("t"), "sqlite:///x")
    for wrong in ("s3+ddb://b/t", "s3+ddb://b/t?x=1", "s3+ddb://b/t?ddbTableName=T&x=1"):
        with pytest.raises(InvalidInputError):
            split_uri(wrong, None)


# ------------------------------------------------------------------------- what a table is called


def key(uri: str, options: Mapping[str, str] | None = None) -> str:
    return full_key(open_objects(uri, options or {}))


def test_every_spelling_of_a_uri_is_one_table() -> None:
    spellings = ("s3://b/a b/t", "s3://b/a%20b/t", "s3a://b/a b/t/", "S3://b/a b/t")
    assert {key(uri, S3) for uri in spellings} == {"s3://b/a b/t"}
    assert key("s3://b/100%25", S3) == key("s3://b/100%", S3)
    azure = {"azure_storage_account_name": "acc", "azure_storage_account_key": "a2V5"}
    assert key("az://c/t", azure) == key("abfss://c@acc.dfs.core.windows.net/t", azure) == "az://acc/c/t"


def test_tables_in_other_places_have_other_names() -> None:
    places = ["s3://b/t", "s3://b/t2", "s3://c/t", "s3://b/x/t", "s3://b/T"]
    assert len({key(uri, S3) for uri in places}) == len(places)
    keyed = {"azure_storage_account_key": "a2V5"}
    accounts = [{**keyed, "azure_storage_account_name": name} for name in ("one", "two")]
    assert len({key("az://c/t", options) for options in accounts}) == 2


def test_in_dynamodb_a_table_is_called_as_pylance_calls_it() -> None:
    assert bucketless_key(open_objects("s3://b/a%20b/t.lance/", S3)) == "a b/t.lance"


def test_a_local_table_is_called_by_where_it_really_is(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    real = os.path.realpath(tmp_path / "real" / "t.lance")
    assert key(str(tmp_path / "link" / "t.lance")) == key(f"file://{tmp_path}/real/t.lance") == f"file://{real}"


# ----------------------------------------------------------------------------- what is not installed


@pytest.mark.parametrize(
    ("package", "extra", "address"),
    [
        ("psycopg", "postgres", "postgresql://u:hush@127.0.0.1:1/d"),
        ("boto3", "dynamodb", "dynamodb://t?region=x&endpoint=http://127.0.0.1:1"),
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    package: str, extra: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_import: Callable[..., ModuleType] = builtins.__import__

    def importing(name: str, *arguments: object, **settings: object) -> ModuleType:
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return real_import(name, *arguments, **settings)

    monkeypatch.setattr(builtins, "__import__", importing)
    with pytest.raises(UnsupportedError, match=package) as caught:
        conroi.open_table(tmp_path / "t.lance", store=address)
    assert f"conroi[{extra}]" in (caught.value.hint or "")
