"""A web server that always gives the same answer, or none, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answering:
    """Where it listens, and the requests that came."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.requests: list[str] = []


@contextlib.contextmanager
def always_answering(status: int, body: bytes = b"") -> Generator[Answering]:
    """Every request is answered with this status."""
    record = Answering("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            record.requests.append(f"{self.command} {self.path}")
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer  # noqa: N815  # the base class wants these names

        def log_message(self, format: str, *args: object) -> None:
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    record.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield record
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def never_answering() -> Generator[Answering]:
    """Connections are taken, and nothing comes back."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield Answering(f"http://127.0.0.1:{listening.getsockname()[1]}")
