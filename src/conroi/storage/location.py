"""Parsing of table paths and URIs, with the same rules as pylance, so that both resolve to the same location."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote

from conroi.errors import InvalidInputError
from conroi.storage.memory import memory_folder

CLOUD_SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "abfss": "abfss"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class LocalLocation:
    """A folder of this machine."""

    folder: str


@dataclass(frozen=True, slots=True)
class CloudLocation:
    """A prefix in a bucket; `authority` is what stands between `://` and the first slash, `key` is decoded."""

    scheme: str
    authority: str
    key: str

    def uri(self, path: str = "") -> str:
        """The URI of the table or of a file in it."""
        key = self.key_of(path)
        return f"{self.scheme}://{self.authority}" + (f"/{encode_key(key)}" if key else "")

    def key_of(self, path: str) -> str:
        """The key in the bucket of a file of the table."""
        return "/".join(part for part in (self.key, path) if part)


def encode_key(key: str) -> str:
    """Escape what would end or change the path of a URI; all else stays readable."""
    return key.replace("%", "%25").replace("#", "%23").replace("?", "%3F")


def parse_location(uri: str | os.PathLike[str]) -> LocalLocation | CloudLocation:
    """Tell a local folder from a place in an object store."""
    text = os.fspath(uri)
    _refuse_unreadable(text)
    scheme, found, rest = text.partition("://")
    if not found:
        return LocalLocation(os.path.abspath(os.path.expanduser(text)))
    scheme = scheme.lower()
    if scheme == "file":
        return LocalLocation(_file_uri_path(rest))
    if scheme == "memory":
        return LocalLocation(memory_folder(unquote(rest)))
    if scheme in CLOUD_SCHEMES:
        return _cloud_location(CLOUD_SCHEMES[scheme], rest)
    raise InvalidInputError(
        f"The URI scheme {scheme}:// is not known",
        hint="use a local path, file://, s3://, gs://, az://, abfss:// or memory://",
    )


def _refuse_unreadable(text: str) -> None:
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # a PathLike of bytes
        raise InvalidInputError("The table's path must be text, not bytes", hint="decode it first")
    if not text.strip():
        raise InvalidInputError("The table's path is empty", hint="give a local path or a URI")
    if _CONTROL.search(text):
        raise InvalidInputError(
            "The table's path has a control character in it, which Lance cannot store", hint="choose another name"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(
            "The table's path is not valid Unicode, which Lance cannot store", hint="choose another name"
        ) from None


def _file_uri_path(rest: str) -> str:
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash:
        raise InvalidInputError(
            "A file:// URI needs three slashes and an absolute path", hint="such as file:///data/orders"
        )
    path = unquote(path)
    _refuse_unreadable("/" + path)
    return os.path.abspath("/" + path)


def _cloud_location(scheme: str, rest: str) -> CloudLocation:
    # Nothing of a refused URI is repeated in the message: it may hold a password or a signature.
    authority, _, key = rest.partition("/")
    if "?" in rest or "#" in rest:
        raise InvalidInputError(
            f"The {scheme}:// URI has a '?' or '#' in it, after which Lance would ignore the rest",
            hint="write %3F or %23 if they belong to the name; give settings and credentials in storage_options",
        )
    if not authority or ("@" in authority and scheme != "abfss") or ":" in authority:
        raise InvalidInputError(
            f"The {scheme}:// URI must be {scheme}://bucket/folder", hint="credentials belong in storage_options"
        )
    key = unquote(key).rstrip("/")
    _refuse_unreadable(key or "-")
    if any(part in ("", ".", "..") for part in key.split("/") if key):
        raise InvalidInputError(
            f"The {scheme}:// URI has an empty, '.' or '..' folder in it", hint="write it out in full"
        )
    return CloudLocation(scheme, authority, key)
