"""Redaction of credentials in Spark's plans, event logs and UI.

Spark shows the options of a source there, except those whose names or values match its redaction patterns. So options
that may hold a credential have names that the patterns match by default, and a credential in another option is refused.
`redact` adds patterns of our own to a session.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from conroi.errors import CorruptionError, InvalidInputError
from conroi.format.documents import parse_json
from conroi.pickles import NOT_SECRET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS_PATTERN, TEXT_PATTERN = "spark.sql.redaction.options.regex", "spark.sql.redaction.string.regex"
OURS = "^(?i:store|storeUrl|storageOptions|secretStorageOptions|conroi[.]secretPin)$"
"""Options of ours that may hold credentials."""
PASSWORDS = "(?<=://[^:/@\\s]{1,64}:)[^@/\\s]{1,256}(?=@)"
"""Passwords in addresses, for the text of plans and statements."""
BY_DEFAULT = re.compile("(?i)secret|password|token|access[.]?key")
"""`spark.redaction.regex` as Spark has it: an option whose name or value matches is redacted."""


def redact(spark: SparkSession) -> None:
    """Add our patterns to those of a session. What it redacts already stays redacted."""
    _add(spark, OPTIONS_PATTERN, OURS, "(?i)url")
    _add(spark, TEXT_PATTERN, PASSWORDS, None)


def _add(spark: SparkSession, name: str, pattern: str, by_default: str | None) -> None:
    known = spark.conf.get(name, None) or by_default
    if known is None:
        spark.conf.set(name, pattern)
    elif pattern not in known:
        spark.conf.set(name, f"(?:{known})|{pattern}")


def refuse_shown(store: str | None, storage_options: str | None) -> None:
    """InvalidInputError for a credential in an option that Spark shows. Neither is repeated in the error."""
    if store is not None and _has_password(store):
        raise InvalidInputError(
            "The option store holds a password, and Spark shows that option in its plans, event log and UI.",
            hint="Name the option storeUrl, which Spark redacts; or leave the password out, and give it to the "
            "driver and the executors as PGPASSWORD.",
        )
    if storage_options is not None and not BY_DEFAULT.search(storage_options) and _holds_secrets(storage_options):
        raise InvalidInputError(
            "The option storageOptions may hold a credential, and Spark shows it in its plans, event log and UI.",
            hint="Name the option secretStorageOptions, which Spark redacts; or set the environment variables of the "
            "storage for the driver and the executors.",
        )


def _has_password(address: str) -> bool:
    try:
        return urlsplit(address).password is not None or "password=" in address.lower()
    except ValueError:
        return "@" in address


def _holds_secrets(text: str) -> bool:
    try:
        given = parse_json(text, "The option storageOptions")
    except CorruptionError:
        return False  # refused later
    return isinstance(given, Mapping) and any(str(name).lower() not in NOT_SECRET for name in given)
