"""Options and errors of object stores: one set of option names for obstore and pylance, and typed errors."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from conroi.errors import ConroiError, InvalidInputError, NotFoundError, StoreError, StoreUnavailable
from conroi.storage.local_folders import COMMIT_LOCK_HINT
from conroi.storage.location import CloudLocation
from conroi.storage.objects import ObjectExists, UnsupportedByStorage

if TYPE_CHECKING:
    from obstore.store import RetryConfig


class StorageOptions(dict[str, str]):
    """A dict that pylance takes as it is, and that never shows its values."""

    def __repr__(self) -> str:
        return "StorageOptions(" + ", ".join(f"{name}=…" for name in sorted(self)) + ")"

    __str__ = __repr__


def read_options(given: Mapping[str, str]) -> StorageOptions:
    """Lower the names, turn the values into text, and refuse what is neither."""
    options = StorageOptions()
    for name, value in given.items():
        lowered = str(name).lower()
        if lowered in options:
            raise InvalidInputError(f"The storage option {lowered} is given twice", hint="names ignore case; keep one")
        options[lowered] = _text(lowered, value)
    return options


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise InvalidInputError(
        f"The storage option {name} must be text, not {type(value).__name__}", hint="put str() around it"
    )


# Everything obstore raises: its own tree, and the built-in FileNotFoundError, TimeoutError, ValueError and the like.
OBSTORE_ERRORS = (exceptions.BaseError, OSError, ValueError, NotImplementedError)
CONDITIONAL = ("create", "copy to")
"""The verbs of requests that may be refused because the name is taken."""
_STATUS = re.compile(r"\bstatus:? (?:code )?(\d{3})\b")
_PLAIN_HTTP = re.compile(r"\bsource: BadScheme\b")
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")


def translate(error: Exception, verb: str, path: str, root: str, source: str | None = None) -> Exception:
    """The typed error for an obstore error, without its text."""
    if isinstance(error, FileNotFoundError):
        return _not_found(verb, path, root, source)
    if verb in CONDITIONAL and not is_in_progress(error) and _is_condition_failure(error):
        return ObjectExists(path)
    return _refusal(error, f"Could not {verb} {path}", root)


def is_in_progress(error: Exception) -> bool:
    """Whether the server refused because another conditional request for the same name is in progress: retry.

    S3 returns 409 ConditionalRequestConflict or OperationAborted. That does not mean that the name is taken, though
    obstore reports "already exists". Azure returns 409 also for a taken name, with a code that says so.
    """
    if status_of(error) != 409:
        return False
    code = _CODE.search(str(error))
    return code is None or "AlreadyExists" not in code.group(1)


def _is_condition_failure(error: Exception) -> bool:
    return isinstance(error, (exceptions.AlreadyExistsError, exceptions.PreconditionError))


def is_past_the_end(error: Exception) -> bool:
    """Whether bytes were asked for that the file does not have."""
    return status_of(error) == 416


def is_range_ignored(error: Exception) -> bool:
    """Whether the server sent the whole file instead of the asked bytes: some do, some only if it is empty."""
    return "NotPartial" in str(error)


def status_of(error: Exception) -> int | None:
    """The HTTP status of the response, if there was one."""
    found = _STATUS.search(str(error))
    return int(found.group(1)) if found else None


def _not_found(verb: str, path: str, root: str, source: str | None) -> NotFoundError | StoreError:
    if verb in ("write", "create", "list"):  # these need no file, so it is the bucket that is missing
        message = f"Could not {verb} {path}: there is no such bucket or container"
        return StoreError(message, table=root, hint="create it first")
    return NotFoundError(f"There is no file {source or path}", table=root)


def _refusal(error: Exception, asked: str, root: str) -> ConroiError:
    if isinstance(error, exceptions.PermissionDeniedError):
        return StoreError(f"{asked}: permission denied", table=root, hint="check what these credentials may do")
    if isinstance(error, exceptions.UnauthenticatedError):
        return StoreError(f"{asked}: the credentials were not accepted", table=root, hint="check storage_options")
    if isinstance(error, (exceptions.NotSupportedError, NotImplementedError)):
        return UnsupportedByStorage(f"{asked}: this storage cannot do that", table=root, hint=COMMIT_LOCK_HINT)
    if isinstance(error, exceptions.InvalidPathError):
        return InvalidInputError(f"{asked}: not a name that this storage can have", table=root, hint="choose another")
    return _by_status(error, asked, root)


def _by_status(error: Exception, asked: str, root: str) -> ConroiError:
    status = status_of(error)
    if status is None and _PLAIN_HTTP.search(str(error)):
        # Nothing was sent: obstore refused to.
        return StoreError(
            f"{asked}: plain http:// is not allowed",
            table=root,
            hint="give storage_options={'allow_http': 'true'} or set AWS_ALLOW_HTTP=true, or use https://",
        )
    if status is None:
        reason = "no answer from the server"
    else:
        code = _CODE.search(str(error))
        reason = f"the server answered {status}" + (f" {code.group(1)}" if code else "")
    if status == 501:
        return UnsupportedByStorage(f"{asked}: {reason}", table=root, hint=COMMIT_LOCK_HINT)
    # 409: another request is in progress. 412 to a request without a condition is no answer to what was asked.
    if status is None or status >= 500 or status in (408, 409, 412, 429):
        return StoreUnavailable(f"{asked}: {reason}", table=root, hint="it may pass; check endpoint and network")
    return StoreError(f"{asked}: {reason}", table=root, hint="check the bucket, the region and storage_options")


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
_PREFIXES = {
    "s3": ("aws_",),
    "gs": ("google_",),
    "az": ("azure_storage_", "azure_"),
    "abfss": ("azure_storage_", "azure_"),
}
_RETRIES = ("client_max_retries", "client_retry_timeout")
HTTP_VARIABLES = ("AZURE_STORAGE_ALLOW_HTTP", "AZURE_STORAGE_USE_HTTP", "AWS_ALLOW_HTTP")
"""Whether plain HTTP is allowed, on any storage: the last that is set wins, also over the option, as in pylance."""
ENDPOINT_VARIABLES = {"s3": ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")}
TOKEN = "google_storage_token"  # noqa: S105  # the name of an option
"""A bearer token for Google Cloud Storage, which obstore takes only through a function."""
_WAITS = {"timeout": "30s", "connect_timeout": "5s"}
_MAX_RETRIES = 4
_RETRY_SECONDS = 30


def open_store(location: CloudLocation, options: Mapping[str, str], *, retries: bool) -> CloudStore:
    """The obstore store for a place; InvalidInputError names the option that is wrong, never its value."""
    config, variables = merged_settings(location.scheme, options, os.environ)
    _check_endpoints(location, options)
    build = _builder(location, _retry_config(config, retries=retries))
    try:
        return build({**_WAITS, **config})
    except OBSTORE_ERRORS:
        wrong = [variables.get(name, name) for name in _wrong_options(build, config)]
    # Raised out here: the original may quote the values.
    raise _option_refusal(location, wrong, config)


def _check_endpoints(location: CloudLocation, options: Mapping[str, str]) -> None:
    """An address without a scheme is a panic in obstore, at the first request."""
    named = {name: value for name, value in os.environ.items() if name in ENDPOINT_VARIABLES.get(location.scheme, ())}
    named |= {name: value for name, value in options.items() if name.lower().endswith(("endpoint", "endpoint_url"))}
    for name, value in named.items():
        if value and not value.lower().startswith(("http://", "https://")):
            raise InvalidInputError(
                f"{name} does not begin with http:// or https://.",
                table=location.uri(),
                hint=f"Write {name}=https://host:port; plain http:// also needs allow_http or AWS_ALLOW_HTTP.",
            )


def merged_settings(
    scheme: str, options: Mapping[str, str], environ: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The options with what the environment says about connections, and the variables that settings came from.

    Options win over variables, except where pylance has it the other way round: plain HTTP and retries.

    >>> merged_settings("s3", {"aws_timeout": "9s"}, {"AWS_TIMEOUT": "5s", "AWS_ALLOW_HTTP": "true"})[0]
    {'timeout': '9s', 'allow_http': 'true'}
    """
    settings = {_client_option(scheme, name) or name: value for name, value in options.items()}
    variables: dict[str, str] = {}
    for variable, value in environ.items():
        name = _client_option(scheme, variable.lower())
        if name is not None and name != variable.lower() and name not in settings:
            settings[name], variables[name] = value, variable
    ruling = [(variable, "allow_http") for variable in HTTP_VARIABLES]
    ruling += [(f"OBJECT_STORE_{name.upper()}", name) for name in _RETRIES]
    if scheme == "gs" and TOKEN not in settings:
        ruling.append((TOKEN.upper(), TOKEN))
    for variable, name in ruling:
        if variable in environ:
            settings[name], variables[name] = environ[variable], variable
    return settings, variables


def _client_option(scheme: str, name: str) -> str | None:
    """What obstore calls a setting of the connection, which may be given with the prefix of its storage."""
    for prefix in ("", *_PREFIXES[scheme]):
        if name.startswith(prefix) and name.removeprefix(prefix) in CLIENT_OPTIONS:
            return name.removeprefix(prefix)
    return None


def _builder(location: CloudLocation, retry: RetryConfig) -> Callable[[dict[str, str]], CloudStore]:
    prefix = location.key or None
    authority, scheme = location.authority, location.scheme

    def build(config: dict[str, str]) -> CloudStore:
        # Names and values are the user's text; obstore checks them at run time.
        client: Any = {name: value for name, value in config.items() if name in CLIENT_OPTIONS}
        apart = CLIENT_OPTIONS | PYLANCE_ONLY | {TOKEN}
        settings: Any = {name: value for name, value in config.items() if name not in apart}
        how: Any = {"prefix": prefix, "config": settings, "client_options": client, "retry_config": retry}
        if scheme == "s3":
            return S3Store(authority, **how)
        if scheme == "gs":
            token = config.get(TOKEN)
            provider: Any = None if token is None else lambda: {"token": token, "expires_at": None}
            return GCSStore(authority, **how, credential_provider=provider)
        if scheme == "abfss":
            del how["prefix"]
            return AzureStore.from_url(location.uri(), **how)
        return AzureStore(authority, **how)

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


def _option_refusal(location: CloudLocation, wrong: list[str], config: Mapping[str, str]) -> InvalidInputError:
    if len(wrong) == 1:
        what = f"The storage option {wrong[0]} is not known for {location.scheme}://, or its value is not valid"
    elif wrong:
        what = f"The storage options {', '.join(sorted(wrong))} contradict each other"
    else:
        what = f"The storage options ({', '.join(sorted(config)) or 'none given'}) do not open {location.uri()}"
    return InvalidInputError(what, hint="the names are those of pylance and object_store, such as aws_access_key_id")
