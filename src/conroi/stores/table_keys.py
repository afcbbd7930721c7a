"""Table identifiers in an external store: one canonical name, whatever host asks and however its URI is spelled."""

from __future__ import annotations

import os

from conroi.stores.location import CloudLocation, parse_location
from conroi.stores.objects import Objects

_ACCOUNT_OPTIONS = ("azure_storage_account_name", "account_name")


def full_key(objects: Objects) -> str:
    """Scheme, bucket and path, so that one store can serve tables of many buckets."""
    location = parse_location(objects.root)
    if not isinstance(location, CloudLocation):
        return f"file://{os.path.realpath(location.folder)}"
    if location.scheme not in ("az", "abfss"):
        return location.uri()
    # Both schemes mean the same storage, but only one of them names the account.
    container, _, host = location.authority.partition("@")
    account = host.partition(".")[0] or _account(objects)
    return f"az://{account}/{container}/{location.key}"


def bucketless_key(objects: Objects) -> str:
    """Only the path within the bucket, decoded: what pylance writes to DynamoDB."""
    location = parse_location(objects.root)
    if isinstance(location, CloudLocation):
        return location.key
    return os.path.realpath(location.folder).lstrip("/")


def _account(objects: Objects) -> str:
    named = [objects.storage_options[name] for name in _ACCOUNT_OPTIONS if name in objects.storage_options]
    return named[0] if named else os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
