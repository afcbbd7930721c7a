"""What is particular to object stores: their errors, their options, and that no credential gets out."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable

import lance
import pyarrow as pa
import pytest

from conroi.errors import ConroiError, InvalidInputError, NotFoundError, StoreError, StoreUnavailable
from conroi.storage import open_objects
from conroi.storage.cloud import CloudObjects
from conroi.storage.objects import ObjectExists, Objects, UnsupportedByStorage
from tests.support.answering import always_answering, never_answering
from tests.support.servers import SECRET_KEY, S3Server, free_ports

SECRETS = {"aws_access_key_id": "AKIAWITHHELD", "aws_secret_access_key": "hunter2", "aws_session_token": "tok-hunter3"}
REQUESTS: dict[str, Callable[[Objects], object]] = {
    "get": lambda objects: objects.get("a"),
    "get_range": lambda objects: objects.get_range("a", 0, 3),
    "get_tail": lambda objects: objects.get_tail("a", 3),
    "head": lambda objects: objects.head("a"),
    "put": lambda objects: objects.put("a", b"x"),
    "put_if_absent": lambda objects: objects.put_if_absent("a", b"x"),
    "rename_if_absent": lambda objects: objects.rename_if_absent("a", "b"),
    "copy": lambda objects: objects.copy("a", "b"),
    "copy_if_absent": lambda objects: objects.copy_if_absent("a", "b"),
    "delete": lambda objects: objects.delete(["a", "b"]),
    "list": lambda objects: list(objects.list("")),
}


def at(endpoint: str, **more: str) -> Objects:
    """A bucket behind an endpoint, with credentials that must never be seen again."""
    options = {**SECRETS, "aws_endpoint": endpoint, "aws_region": "us-east-1", "allow_http": "true", **more}
    return open_objects("s3://bucket/t", options)


def failure(request: Callable[[Objects], object], objects: Objects) -> ConroiError:
    """The error of a request, after a look that nothing secret hangs on it."""
    with pytest.raises(ConroiError) as caught:
        request(objects)
    text = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(vars(caught.value))
    assert not [secret for secret in SECRETS.values() if secret in text]
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert caught.value.table == "s3://bucket/t"
    return caught.value


@pytest.mark.parametrize("name", REQUESTS)
def test_a_server_that_does_not_answer_is_unavailable(name: str) -> None:
    objects = at(f"http://127.0.0.1:{free_ports(1)[0]}", client_max_retries="0")
    assert type(failure(REQUESTS[name], objects)) is StoreUnavailable


@pytest.mark.parametrize("name", REQUESTS)
def test_refused_permission_is_an_error_that_will_not_pass(name: str) -> None:
    # What a server says about a bad signature names the key.
    key = SECRETS["aws_access_key_id"]
    body = f"<Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>{key}</AWSAccessKeyId></Error>"
    with always_answering(403, body.encode()) as server:
        assert type(failure(REQUESTS[name], at(server.endpoint))) is StoreError


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, StoreError), (401, StoreError), (403, StoreError), (405, StoreError), (501, UnsupportedByStorage),
     (429, StoreUnavailable), (500, StoreUnavailable), (502, StoreUnavailable), (503, StoreUnavailable),
     (504, StoreUnavailable)],
)  # fmt: skip
@pytest.mark.parametrize("name", ["get", "put", "put_if_absent", "list"])
def test_a_status_tells_whether_it_may_pass(name: str, status: int, kind: type[StoreError]) -> None:
    with always_answering(status) as server:
        error = failure(REQUESTS[name], at(server.endpoint, client_max_retries="0"))
    assert type(error) is kind
    if status == 501:
        assert "commit lock" in (error.hint or "")


def test_what_the_server_calls_it_is_in_the_message() -> None:
    with always_answering(503, b"<Error><Code>SlowDown</Code><Message>hunter2</Message></Error>") as server:
        error = failure(REQUESTS["get"], at(server.endpoint, client_max_retries="0"))
    assert "503 SlowDown" in str(error)


@pytest.mark.contract("T18")
@pytest.mark.parametrize(("status", "body"), [(412, b""), (409, b"<Error><Code>BlobAlreadyExists</Code></Error>")])
def test_both_ways_to_say_that_a_name_is_taken_are_understood(status: int, body: bytes) -> None:
    """S3 and Google say 412; Azure says 409, and names the reason."""
    with always_answering(status, body) as server, pytest.raises(ObjectExists):
        at(server.endpoint).put_if_absent("a", b"x")


@pytest.mark.contract("T11", "P4")
def test_a_conditional_put_is_sent_once_and_a_read_again() -> None:
    with always_answering(503) as server:
        objects = at(server.endpoint, client_max_retries="2")
        failure(REQUESTS["put_if_absent"], objects)
        assert server.requests == ["PUT /bucket/t/a"]
        server.requests.clear()
        failure(REQUESTS["get"], objects)
        assert server.requests == ["GET /bucket/t/a"] * 3


@pytest.mark.parametrize("name", ["get", "put", "put_if_absent", "list"])
def test_a_server_that_never_answers_does_not_hold_us_up(name: str) -> None:
    with never_answering() as server:
        objects = at(server.endpoint, timeout="100ms", client_max_retries="1")
        started = time.monotonic()
        assert type(failure(REQUESTS[name], objects)) is StoreUnavailable
    assert time.monotonic() - started < 5


def test_a_missing_bucket_is_named_as_the_trouble(moto: S3Server) -> None:
    objects = open_objects("s3://no-such-bucket/t", moto.options)
    for name in ("put", "put_if_absent", "list"):
        with pytest.raises(StoreError, match="bucket"):
            REQUESTS[name](objects)
    with pytest.raises(NotFoundError):
        objects.get("a")


def test_nothing_that_prints_a_store_prints_a_value(moto: S3Server) -> None:
    objects = open_objects("s3://bucket/t", moto.options)
    for text in (repr(objects), str(objects), repr(objects.storage_options), str(objects.storage_options)):
        assert SECRET_KEY not in text
    assert "aws_secret_access_key" in repr(objects.storage_options)
    assert objects.storage_options["aws_secret_access_key"] == SECRET_KEY, "pylance needs it"


@pytest.mark.parametrize("spelling", [str.lower, str.upper, str.title])
def test_options_in_any_case_reach_us_and_pylance(spelling: Callable[[str], str], moto: S3Server) -> None:
    options = {spelling(name): value for name, value in moto.options.items()}
    objects = open_objects(moto.new_uri(), options)
    lance.write_dataset(pa.table({"a": [1]}), objects.pylance_uri(), storage_options=dict(objects.storage_options))
    assert len(list(objects.list("_versions"))) == 1


def test_the_options_of_pylance_and_object_store_are_all_taken(moto: S3Server) -> None:
    short = {
        "access_key_id": moto.options["aws_access_key_id"],
        "secret_access_key": moto.options["aws_secret_access_key"],
        "endpoint": moto.endpoint,
        "region": "us-east-1",
        "allow_http": "true",
        "timeout": "20s",
        "connect_timeout": "3s",
        "pool_max_idle_per_host": "4",
        "user_agent": "conroi-tests",
        "aws_conditional_put": "etag",
        "virtual_hosted_style_request": "false",
        "client_max_retries": "3",
        "client_retry_timeout": "20",
        "download_retry_count": "2",
    }
    objects = open_objects(moto.new_uri(), short)
    objects.put_if_absent("a", b"x")
    lance.write_dataset(pa.table({"a": [1]}), objects.pylance_uri(), storage_options=dict(objects.storage_options))
    assert objects.get("a") == b"x"


def test_values_that_are_not_text_become_text(moto: S3Server) -> None:
    options = {**moto.options, "allow_http": True, "client_max_retries": 2}
    objects = open_objects(moto.new_uri(), options)  # pyright: ignore[reportArgumentType]
    assert (objects.storage_options["allow_http"], objects.storage_options["client_max_retries"]) == ("true", "2")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"aws_acces_key_id": "hunter2"}, "aws_acces_key_id"),
        ({"timeout": "hunter2"}, "timeout"),
        ({"aws_endpoint": "http://hunter2", "endpoint_url": "http://hunter2"}, "aws_endpoint, endpoint_url"),
        ({"client_max_retries": "hunter2"}, "client_max_retries"),
        ({"region": "a", "REGION": "hunter2"}, "region"),
        ({"region": None}, "region"),
    ],
)
def test_a_wrong_option_is_named_without_its_value(options: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_objects("s3://bucket/t", options)
    text = "".join(traceback.format_exception(caught.value))
    assert named in str(caught.value)
    assert "hunter2" not in text


@pytest.mark.parametrize(
    ("uri", "options", "store"),
    [
        ("gs://bucket/t", {"google_skip_signature": "true"}, 'GCSStore(bucket="bucket", prefix="t")'),
        ("az://box/t", {"azure_storage_account_name": "acc", "azure_storage_account_key": "aHVudGVyMg=="},
         'AzureStore(container_name="box", account_name="acc", prefix="t")'),
        ("az://box/a b", {"account_name": "acc", "timeout": "9s"},
         'AzureStore(container_name="box", account_name="acc", prefix="a b")'),
        ("abfss://box@acc.dfs.core.windows.net/a%20b", {"timeout": "9s", "azure_storage_sas_key": "sig=aHVudGVyMg"},
         'AzureStore(container_name="box", account_name="acc", prefix="a b")'),
    ],
)  # fmt: skip
def test_google_and_azure_stores_are_made_from_the_same_kind_of_options(
    uri: str, options: dict[str, str], store: str
) -> None:
    """There is no server for these here: this checks only that the options arrive."""
    objects = open_objects(uri, options)
    assert isinstance(objects, CloudObjects)
    assert repr(objects._store) == store
    assert objects.is_listing_ordered
    assert not objects.is_local
    assert "aHVudGVyMg" not in repr(objects) + repr(objects.storage_options)


def test_an_azure_uri_without_an_account_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        open_objects("az://box/t")
