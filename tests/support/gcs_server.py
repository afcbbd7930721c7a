"""gcp-storage-emulator behind the XML API of Google Cloud Storage, which obstore and pylance use.

The emulator stores objects, and serves the JSON API. Of the XML API it knows only upload and download, and it ignores
preconditions. This process adds the rest as Google documents it, one request at a time: HEAD, DELETE, copies, listings,
multipart uploads, and `x-goog-if-generation-match`. With the argument `ignoring` it leaves out the preconditions: that
is the emulator's own behaviour, and the negative control.
"""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import partial
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import buckets
from gcp_storage_emulator.handlers.objects import _checksums, _make_object_resource
from gcp_storage_emulator.server import RequestHandler
from gcp_storage_emulator.storage import Storage

PAGE = 100
"""Google's is 1,000; with fewer, more listings have several."""
_lock = threading.Lock()
_uploads: dict[str, dict[int, bytes]] = {}


class MemoryStorage(Storage):
    """Does not write all facts of all objects to a file, which nothing reads, with each change."""

    def __init__(self) -> None:
        super().__init__(use_memory_fs=True)

    def _write_config_to_file(self) -> None:
        pass


class XmlApi(RequestHandler):
    """Requests for `/bucket/key`; all others are the emulator's own."""

    protocol_version = "HTTP/1.1"

    def __init__(self, keeps_conditions: bool, *arguments: Any) -> None:
        self.keeps_conditions = keeps_conditions
        super().__init__(*arguments)

    def do_GET(self) -> None:
        self._handle("GET")

    def do_HEAD(self) -> None:
        self._handle("HEAD")

    def do_PUT(self) -> None:
        self._handle("PUT")

    def do_POST(self) -> None:
        self._handle("POST")

    def do_DELETE(self) -> None:
        self._handle("DELETE")

    def _handle(self, method: str) -> None:
        url = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        bucket, _, key = url.path.removeprefix("/").partition("/")
        self.bucket, self.key = unquote(bucket), unquote(key)
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with _lock:
            try:
                answer = self._answer(method)
            except NotFound:
                code = "NoSuchKey" if self.storage.get_bucket(self.bucket) else "NoSuchBucket"
                answer = 404, {}, f"<Error><Code>{code}</Code></Error>".encode()
        self._send(method, *answer)

    def _send(self, method: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if method != "HEAD":
            self.wfile.write(body)

    def _answer(self, method: str) -> tuple[int, Mapping[str, str], bytes]:
        if self.storage.get_bucket(self.bucket) is None:
            raise NotFound
        if method == "GET" and not self.key:
            return 200, {"Content-Type": "application/xml"}, self._listing()
        if "uploads" in self.query or "uploadId" in self.query:
            return self._multipart(method)
        if method == "PUT":
            return self._put(self._copied() if "x-goog-copy-source" in self.headers else self.body)
        if method == "DELETE":
            self.storage.delete_file(self.bucket, self.key)
            return 204, {}, b""
        return self._download()

    def _copied(self) -> bytes:
        bucket, _, key = unquote(self.headers["x-goog-copy-source"]).lstrip("/").partition("/")
        return self.storage.get_file(bucket, key)

    def _put(self, data: bytes) -> tuple[int, Mapping[str, str], bytes]:
        wanted = self.headers.get("x-goog-if-generation-match")
        if wanted is not None and self.keeps_conditions and wanted != self._generation():
            return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
        resource = _make_object_resource("", self.bucket, self.key, "application/octet-stream", str(len(data)))
        self.storage.create_file(self.bucket, self.key, data, _checksums(data, resource))
        return 200, self._facts(), b""

    def _generation(self) -> str:
        try:
            return self.storage.get_file_obj(self.bucket, self.key)["generation"]
        except NotFound:
            return "0"  # what a writer names that wants to create the object

    def _facts(self) -> dict[str, str]:
        resource = self.storage.get_file_obj(self.bucket, self.key)
        changed = datetime.fromisoformat(resource["updated"])
        return {
            "ETag": f'"{resource["generation"]}"',
            "x-goog-generation": resource["generation"],
            "Last-Modified": format_datetime(changed.astimezone(UTC), usegmt=True),
        }

    def _download(self) -> tuple[int, Mapping[str, str], bytes]:
        facts, data = self._facts(), self.storage.get_file(self.bucket, self.key)
        if self.command == "HEAD":
            return 200, facts | {"Content-Length": str(len(data))}, b""
        asked = self.headers.get("Range", "").removeprefix("bytes=")
        if not asked:
            return 200, facts, data
        first, _, last = asked.partition("-")
        start = int(first) if first else max(0, len(data) - int(last))
        end = min(int(last) + 1, len(data)) if first and last else len(data)
        if start >= len(data):
            return 416, {"Content-Range": f"bytes */{len(data)}"}, b""
        return 206, facts | {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}, data[start:end]

    def _listing(self) -> bytes:
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        after = self.query.get("continuation-token") or self.query.get("start-after", "")
        found = {}
        for name, resource in sorted(self.storage.objects.get(self.bucket, {}).items()):
            rest = name.removeprefix(prefix)
            if name.startswith(prefix):
                folder = prefix + rest.partition(delimiter)[0] + delimiter if delimiter and delimiter in rest else ""
                if (folder or name) > after:
                    found.setdefault(folder or name, None if folder else resource)
        page = list(found.items())[:PAGE]
        more = f"<NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>" if len(found) > PAGE else ""
        entries = "".join(_entry(name, resource) for name, resource in page)
        return f"<ListBucketResult>{entries}{more}</ListBucketResult>".encode()

    def _multipart(self, method: str) -> tuple[int, Mapping[str, str], bytes]:
        number = self.query.get("uploadId", "")
        if method == "POST" and "uploads" in self.query:
            number = uuid.uuid4().hex
            _uploads[number] = {}
            text = f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>"
            return 200, {}, text.encode()
        if method == "PUT":
            _uploads[number][int(self.query["partNumber"])] = self.body
            return 200, {"ETag": f'"{self.query["partNumber"]}"'}, b""
        parts = _uploads.pop(number)
        if method == "DELETE":
            return 204, {}, b""
        listed = [int(part.findtext("PartNumber") or 0) for part in ElementTree.fromstring(self.body)]
        status, facts, body = self._put(b"".join(parts[part] for part in listed))
        text = f"<CompleteMultipartUploadResult><ETag>{facts.get('ETag', '')}</ETag></CompleteMultipartUploadResult>"
        return status, facts, text.encode() if status == 200 else body


def _entry(name: str, resource: Mapping[str, str] | None) -> str:
    if resource is None:
        return f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
    return (
        f"<Contents><Key>{escape(name)}</Key><LastModified>{resource['updated']}</LastModified>"
        f'<ETag>"{resource["generation"]}"</ETag><Size>{resource["size"]}</Size></Contents>'
    )


if __name__ == "__main__":
    storage = MemoryStorage()
    buckets.create_bucket(sys.argv[2], storage)
    handler = partial(XmlApi, sys.argv[3] == "keeping", storage)
    ThreadingHTTPServer.request_queue_size = 512  # connections that wait to be accepted
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), handler).serve_forever()
