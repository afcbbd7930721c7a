"""From storage options to an obstore store: which option goes where, and how long to wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from obstore.store import AzureStore, GCSStore, S3Store

from conroi.errors import InvalidInputError
from conroi.stores.cloud_errors import OBSTORE_ERRORS
from conroi.stores.location import CloudLocation

if TYPE_CHECKING:
    from obstore.store import RetryConfig

CloudStore = S3Store | GCSStore | AzureStore

# What only pylance understands.
PYLANCE_ONLY = frozenset({"client_max_retries", "client_retry_timeout", "download_retry_count", "dynamodb_endpoint"})
# What is about the HTTP connection and not about the storage; obstore wants these apart.
CLIENT_OPTIONS = frozenset(
    {
        "allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only", "http2_only",
        "http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle", "pool_idle_timeout",
        "pool_max_idle_per_host", "proxy_url", "proxy_ca_certificate", "proxy_excludes", "randomize_addresses",
        "read_timeout", "root_certificate", "timeout", "user_agent",
    }
)  # fmt: skip
_WAITS = {"timeout": "30s", "connect_timeout": "5s"}
_MAX_RETRIES = 4
_RETRY_SECONDS = 30


def open_store(location: CloudLocation, options: Mapping[str, str], *, retries: bool) -> CloudStore:
    """The obstore store for a place; InvalidInputError names the option that is wrong, never its value."""
    config = {name: value for name, value in options.items() if name not in PYLANCE_ONLY}
    build = _builder(location, _retry_config(options, retries=retries))
    try:
        return build({**_WAITS, **config})
    except OBSTORE_ERRORS:
        wrong = _wrong_options(build, config)
    # Raised out here: the original may quote the values.
    raise _refusal(location, wrong, config)


def _builder(location: CloudLocation, retry: RetryConfig) -> Callable[[dict[str, str]], CloudStore]:
    prefix = location.key or None
    authority, scheme = location.authority, location.scheme

    def build(config: dict[str, str]) -> CloudStore:
        # Names and values are the user's text; obstore checks them at run time.
        client: Any = {name: value for name, value in config.items() if name in CLIENT_OPTIONS}
        settings: Any = {name: value for name, value in config.items() if name not in CLIENT_OPTIONS}
        if scheme == "s3":
            return S3Store(authority, prefix=prefix, config=settings, client_options=client, retry_config=retry)
        if scheme == "gs":
            return GCSStore(authority, prefix=prefix, config=settings, client_options=client, retry_config=retry)
        if scheme == "abfss":
            return AzureStore.from_url(location.uri(), config=settings, client_options=client, retry_config=retry)
        return AzureStore(authority, prefix=prefix, config=settings, client_options=client, retry_config=retry)

    return build


def _retry_config(options: Mapping[str, str], *, retries: bool) -> RetryConfig:
    count = _number(options, "client_max_retries", _MAX_RETRIES)
    seconds = _number(options, "client_retry_timeout", _RETRY_SECONDS)
    return {
        "max_retries": count if retries else 0,
        "retry_timeout": timedelta(seconds=seconds),
        "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=2), "base": 2},
    }


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(options.get(name, default))
    except ValueError:
        raise InvalidInputError(f"The storage option {name} must be a whole number", hint="such as 3") from None


def _wrong_options(build: Callable[[dict[str, str]], CloudStore], config: dict[str, str]) -> list[str]:
    # Leave each option out in turn: the store that can then be made tells which one was wrong.
    wrong: list[str] = []
    for name in config:
        with suppress(*OBSTORE_ERRORS):
            build({**_WAITS, **{key: value for key, value in config.items() if key != name}})
            wrong.append(name)
    return wrong


def _refusal(location: CloudLocation, wrong: list[str], config: Mapping[str, str]) -> InvalidInputError:
    if len(wrong) == 1:
        what = f"The storage option {wrong[0]} is not known for {location.scheme}://, or its value is not valid"
    elif wrong:
        what = f"The storage options {', '.join(sorted(wrong))} contradict each other"
    else:
        what = f"The storage options ({', '.join(sorted(config)) or 'none given'}) do not open {location.uri()}"
    return InvalidInputError(what, hint="the names are those of pylance and object_store, such as aws_access_key_id")
