"""Storage settings from environment variables reach obstore as they reach pylance."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import lance
import pytest

import conroi
from conroi.errors import InvalidInputError, StoreError, StoreUnavailable
from conroi.storage import open_objects
from tests.support.answering import always_answering
from tests.support.servers import ACCESS_KEY, SECRET_KEY, S3Server

pytestmark = pytest.mark.contract("U9")

SCRIPT = """
    import sys, conroi, lance
    lake = conroi.connect(sys.argv[1])
    orders = lake.create_table("orders", [{"id": 1}])
    orders.append([{"id": 2}])
    theirs = lance.dataset(sys.argv[1] + "/orders.lance", version=1).to_table()["id"].to_pylist()
    print(sorted(lake["orders"].to_arrow()["id"].to_pylist()), sorted(theirs))
"""


def variables(**more: str) -> dict[str, str]:
    """An environment in which only variables say where the server is and who asks."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    credentials = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    return {**kept, **credentials, "AWS_EC2_METADATA_DISABLED": "true", **more}


def test_a_process_that_is_configured_by_variables_alone(seaweedfs: S3Server, tmp_path: Path) -> None:
    """C9: AWS_ALLOW_HTTP was ignored, although pylance takes it. By path, the newest version may not be final yet."""
    env = variables(AWS_ENDPOINT_URL=seaweedfs.endpoint, AWS_DEFAULT_REGION="us-east-1", AWS_ALLOW_HTTP="true")
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), seaweedfs.new_uri("lake")]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=120)
    assert (done.returncode, done.stdout) == (0, "[1, 2] [1]\n"), done.stderr


def test_plain_http_without_the_option_says_which_option_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """C9: the error was "no answer from the server … it may pass"."""
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    with always_answering(404) as server:
        options = {"aws_endpoint": server.endpoint, "aws_access_key_id": "a", "aws_secret_access_key": "b"}
        objects = open_objects("s3://bucket/t", options)
        for work in (
            objects.get,
            lambda path: objects.put_if_absent(path, b"x"),
            lambda path: list(objects.list(path)),
        ):
            with pytest.raises(StoreError, match="plain http:// is not allowed") as caught:
                work("a")
            assert not isinstance(caught.value, StoreUnavailable), "it will not pass"
            assert "storage_options={'allow_http': 'true'}" in str(caught.value)
            assert "AWS_ALLOW_HTTP=true" in str(caught.value)
        assert server.requests == []


@pytest.mark.parametrize("name", ["allow_http", "aws_allow_http", "AWS_ALLOW_HTTP"])
def test_options_of_the_connection_may_have_the_prefix_of_their_storage(name: str) -> None:
    with always_answering(404) as server:
        options = {"aws_endpoint": server.endpoint, "aws_access_key_id": "a", "aws_secret_access_key": "b"}
        assert open_objects("s3://bucket/t", {**options, name: "true"}).head("a") is None
        assert server.requests == ["HEAD /bucket/t/a"]


@pytest.mark.parametrize("is_virtual", [True, False])
def test_virtual_hosted_style_and_anonymous_access(is_virtual: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = f"bucket-{is_virtual}".lower()  # pylance keeps its client of a bucket
    folder = "/t/" if is_virtual else f"/{bucket}/t/"
    with always_answering(404) as server:
        set_to = {"AWS_VIRTUAL_HOSTED_STYLE_REQUEST": str(is_virtual).lower(), "AWS_SKIP_SIGNATURE": "true"}
        set_to |= {"AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": server.endpoint, "AWS_REGION": "us-east-1"}
        for name, value in set_to.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
        assert open_objects(f"s3://{bucket}/t").head("a") is None
        assert server.requests == [f"HEAD {folder}a"]
        server.requests.clear()
        with pytest.raises((ValueError, OSError)):
            lance.dataset(f"s3://{bucket}/t")
        named = {request.split(" ")[1].partition("?")[0] for request in server.requests}
        assert named == {"/" if is_virtual else f"/{bucket}"}, "where pylance looks for the files"


@pytest.mark.parametrize(
    ("uri", "set_to", "options"),
    [
        ("az://container/t", {"AZURE_STORAGE_ALLOW_HTTP": "true"}, {"azure_storage_account_name": "a"}),
        ("az://container/t", {"AZURE_STORAGE_USE_HTTP": "true"}, {"account_name": "a"}),
        ("az://container/t", {"AWS_ALLOW_HTTP": "true"}, {"account_name": "a"}),
    ],
)
def test_plain_http_on_azure(
    uri: str, set_to: dict[str, str], options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with always_answering(404) as server:
        for name, value in set_to.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AZURE_SKIP_SIGNATURE", "true")
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", server.endpoint)
        assert open_objects(uri, options).head("a") is None
        assert len(server.requests) == 1


def test_google_cloud_storage_by_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with always_answering(404) as server:
        key = f'{{"gcs_base_url": "{server.endpoint}", "disable_oauth": true, "client_email": "", "private_key": "", '
        (tmp_path / "key.json").write_text(key + '"private_key_id": ""}')
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "key.json"))
        monkeypatch.setenv("GOOGLE_ALLOW_HTTP", "true")
        assert open_objects("gs://bucket/t").head("a") is None
        monkeypatch.setenv("GOOGLE_STORAGE_TOKEN", "withheld")
        assert open_objects("gs://bucket/t").head("a") is None
        assert len(server.requests) == 2


def test_retries_by_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OBJECT_STORE_CLIENT_MAX_RETRIES", "1")
    with always_answering(503) as server:
        options = {"aws_endpoint": server.endpoint, "aws_access_key_id": "a", "aws_secret_access_key": "b"}
        with pytest.raises(StoreUnavailable):
            open_objects("s3://bucket/t", {**options, "allow_http": "true"}).get("a")
        assert len(server.requests) == 2


def test_a_variable_with_a_bad_value_is_named_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONNECT_TIMEOUT", "hunter2")
    with pytest.raises(InvalidInputError, match="AWS_CONNECT_TIMEOUT") as caught:
        conroi.open_table("s3://bucket/t")
    assert "hunter2" not in str(caught.value)
