"""DynamoDB client: opened by address, with bounded waits and typed errors."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, unquote

from conroi.errors import ConroiError, InvalidInputError, StoreError, StoreUnavailable
from conroi.storage.parallel import Pool
from conroi.storage.sql_schema import missing_extra

T = TypeVar("T")
HASH_KEY, RANGE_KEY = "base_uri", "version"
DEFAULT_TIMEOUT_S, _ATTEMPTS = 5.0, 3
_PASSING = {
    "ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded", "InternalServerError",
    "ServiceUnavailable", "TransactionInProgressException", "LimitExceededException",
}  # fmt: skip
_REFUSED = {
    "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException",
    "MissingAuthenticationTokenException", "IncompleteSignatureException",
}  # fmt: skip


@dataclass(frozen=True)
class DynamoTable:
    """One DynamoDB table, and how to reach it; without credentials given here, boto3 finds them as it always does."""

    name: str
    region: str | None = None
    endpoint: str | None = None
    credentials: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    timeout_s: float = DEFAULT_TIMEOUT_S
    """Timeout of one try of a request, in seconds; there are three tries."""

    @property
    def place(self) -> str:
        return f"dynamodb://{self.name}"


class DynamoClient:
    """Client of one table, opened at first use; its two keys are checked, and it is created if it does not exist."""

    def __init__(self, table: DynamoTable) -> None:
        self.table = table
        self._lock = threading.Lock()
        self._client: Any = None
        self._owner = 0

    def __repr__(self) -> str:
        return f"DynamoClient({self.table.place!r})"

    def call(self, operation: str, **parameters: Any) -> Any:
        """One request about this table."""
        return self._asked(lambda client: getattr(client, operation)(TableName=self.table.name, **parameters))

    def transact(self, items: list[dict[str, Any]], token: str) -> None:
        """All of these writes and checks, or none; `token` makes the client's own retries idempotent."""
        self._asked(lambda client: client.transact_write_items(TransactItems=items, ClientRequestToken=token))

    def close(self) -> None:
        """Close the connections; the next request opens them again."""
        self._client = None

    def _asked(self, request: Callable[[Any], T]) -> T:
        """A request. An interrupt in its middle could leave a lock of boto3's connection pool held for ever.

        Only the main thread is interrupted, so there another thread makes the request.
        """

        def work() -> T:
            client = self._ready()
            return guarded(self.table.place, lambda: request(client))

        is_interruptible = threading.current_thread() is threading.main_thread()
        return _REQUESTS.start(work).result() if is_interruptible else work()

    def _ready(self) -> Any:
        with self._lock:
            if self._client is None or self._owner != os.getpid():
                client = self._connect()
                guarded(self.table.place, lambda: _check_keys(client, self.table))
                self._client, self._owner = client, os.getpid()
            return self._client

    def _connect(self) -> Any:
        try:
            session = _new_session()
            from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]
        except ImportError:
            raise missing_extra("DynamoDB", "dynamodb", "boto3") from None
        config = Config(
            connect_timeout=self.table.timeout_s,
            read_timeout=self.table.timeout_s,
            retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
        )
        return guarded(
            self.table.place,
            lambda: session.client(
                "dynamodb",
                region_name=self.table.region,
                endpoint_url=self.table.endpoint,
                config=config,
                **self.table.credentials,
            ),
        )


_REQUESTS = Pool("conroi-dynamodb", 16)
_one_at_a_time = threading.Lock()
_loader: Any = None


def _new_session() -> Any:
    """A session of our own, since boto3's default one is not safe between threads.

    All share what they read of the service's description, which takes long to read.
    """
    from boto3.session import Session  # pyright: ignore[reportMissingTypeStubs]
    from botocore.session import get_session  # pyright: ignore[reportMissingTypeStubs]

    global _loader
    with _one_at_a_time:
        inner: Any = get_session()
        _loader = _loader or inner.get_component("data_loader")
        inner.register_component("data_loader", _loader)
    return cast("Any", Session(botocore_session=inner))


class Busy(StoreUnavailable):
    """Internal: a concurrent transaction had locked the same items; nothing was written."""


class ConditionFailed(Exception):
    """Internal: a condition of a write did not hold; the codes say which of several."""

    def __init__(self, codes: tuple[str, ...] = ()) -> None:
        super().__init__("a condition did not hold")
        self.codes = codes


def guarded(place: str, request: Callable[[], T]) -> T:
    """Execute a request; boto3's errors are mapped to ours, without their text: it may quote a key id."""
    from botocore import exceptions  # pyright: ignore[reportMissingTypeStubs]

    try:
        return request()
    except exceptions.ClientError as error:
        problem = _answered(error.response, place)
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError):
        problem = StoreError(
            f"There are no AWS credentials for {place}.",
            hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or storage_options.",
        )
    except (exceptions.NoRegionError, exceptions.InvalidRegionError):
        problem = InvalidInputError(f"Which region is {place} in?", hint="Write dynamodb://table?region=eu-central-1.")
    except ValueError:
        problem = InvalidInputError(f"The endpoint of {place} cannot be read.", hint="Write endpoint=http://host:port.")
    except exceptions.BotoCoreError as error:
        problem = _silent(type(error).__name__, place)
    # Raised out here, so that the original is not chained to it.
    raise problem


def _answered(response: Any, place: str) -> Exception:
    code = str(response.get("Error", {}).get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code == "ConditionalCheckFailedException":
        return ConditionFailed()
    if code == "TransactionCanceledException":
        return _cancelled(tuple(str(reason.get("Code")) for reason in response.get("CancellationReasons", ())), place)
    if code in _REFUSED:
        return StoreError(f"{place} refused the credentials ({code}).", hint="Check them and what they may do.")
    if code in _PASSING or status >= 500:
        return StoreUnavailable(f"{place} answered {code or status}.", hint="It may pass; try again.")
    return StoreError(f"{place} answered {code or status}.", hint="Check the table's name, region and endpoint.")


def _cancelled(codes: tuple[str, ...], place: str) -> Exception:
    if "ConditionalCheckFailed" in codes:
        return ConditionFailed(codes)
    # A concurrent transaction had locked one of the items: neither lost nor won.
    return Busy(f"{place} is busy with the same records.", hint="It may pass; try again.")


def _silent(name: str, place: str) -> ConroiError:
    return StoreUnavailable(f"{place} did not answer ({name}).", hint="It may pass; check endpoint and network.")


def _check_keys(client: Any, table: DynamoTable) -> None:
    keys = [{"AttributeName": HASH_KEY, "KeyType": "HASH"}, {"AttributeName": RANGE_KEY, "KeyType": "RANGE"}]
    types = [{"AttributeName": HASH_KEY, "AttributeType": "S"}, {"AttributeName": RANGE_KEY, "AttributeType": "N"}]
    try:
        found = client.describe_table(TableName=table.name)["Table"]
    except client.exceptions.ResourceNotFoundException:
        with contextlib.suppress(client.exceptions.ResourceInUseException):  # it is being created concurrently
            client.create_table(
                TableName=table.name, KeySchema=keys, AttributeDefinitions=types, BillingMode="PAY_PER_REQUEST"
            )
        client.get_waiter("table_exists").wait(TableName=table.name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
        return
    if sorted(map(str, found["KeySchema"])) != sorted(map(str, keys)):
        raise InvalidInputError(
            f"The keys of {table.place} are not those of a manifest store.",
            hint=f"It needs the hash key {HASH_KEY} (text) and the range key {RANGE_KEY} (number); name another table.",
        )


_CREDENTIALS = {
    "aws_access_key_id": ("aws_access_key_id", "access_key_id"),
    "aws_secret_access_key": ("aws_secret_access_key", "secret_access_key"),
    "aws_session_token": ("aws_session_token", "session_token", "aws_token", "token"),
}


_REGION = ("aws_region", "region")


def dynamo_table(address: str, options: Mapping[str, str] | None = None) -> DynamoTable:
    """The DynamoDB table that an address and storage options describe."""
    options = options or {}
    name, _, query = address.removeprefix("dynamodb://").partition("?")
    settings = dict(parse_qsl(query, keep_blank_values=True))
    if not address.startswith("dynamodb://") or not name.strip("/") or "/" in name or "@" in name:
        raise InvalidInputError(
            "The address of a DynamoDB store must be dynamodb://table.",
            hint="Write dynamodb://table?region=eu-central-1.",
        )
    if unknown := sorted(settings.keys() - {"region", "endpoint"}):
        raise InvalidInputError(
            f"The address of the DynamoDB store has settings that are not known: {', '.join(unknown)}.",
            hint="It takes region and endpoint; credentials come from the environment or storage_options.",
        )
    given = {name: _first(options, names) for name, names in _CREDENTIALS.items()}
    return DynamoTable(
        name=unquote(name),
        region=settings.get("region") or _first(options, _REGION),
        endpoint=settings.get("endpoint") or options.get("dynamodb_endpoint"),
        credentials={name: value for name, value in given.items() if value is not None},
    )


def _first(options: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((options[name] for name in names if name in options), None)
