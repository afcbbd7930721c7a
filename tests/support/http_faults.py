"""An HTTP proxy on which one request, counted from 1, meets one fault of twelve kinds."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Generator
from typing import BinaryIO

KINDS = (
    "dropped before", "dropped after", "500", "503", "409 before", "409 after", "412 before", "412 after", "delay",
    "cut answer", "cut request", "lands late",
)  # fmt: skip
"""What happens to the request; "before" and "after" its effect."""
DELAY_S = 0.2
LATE_S = 0.3
"""So long after its connection ended a request lands late."""
_CODES = {500: "InternalError", 503: "SlowDown", 409: "ConditionalRequestConflict", 412: "PreconditionFailed"}


class HttpFaults:
    """The proxy: `arm` it, do the work, and see in `hit` which request met the fault."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._number, self._kind = 0, ""
        self.requests = 0
        """How many came since it was last armed."""
        self.hit: str | None = None
        """Method and path of the request that met the fault."""
        self._late: list[threading.Thread] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, number: int, kind: str) -> None:
        """The next request but `number` - 1 meets this; 0: none does."""
        with self._lock:
            self._number, self._kind, self.requests, self.hit = number, kind, 0, None

    def disarm(self) -> None:
        """No more faults; wait for what lands late."""
        with self._lock:
            self._number = 0
            late, self._late = self._late, []
        for thread in late:
            thread.join()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, _Ended), contextlib.ExitStack() as stack:
            stack.enter_context(client)
            incoming = stack.enter_context(client.makefile("rb"))
            server = stack.enter_context(self._server())
            answers = stack.enter_context(server.makefile("rb"))
            while self._answer(client, server, answers, _message(incoming)):
                pass

    def _server(self) -> socket.socket:
        server = socket.create_connection(("127.0.0.1", self._target_port))
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server

    def _answer(self, client: socket.socket, server: socket.socket, answers: BinaryIO, request: bytes) -> bool:
        """Whether the connection goes on."""
        kind = self._fault_of(request)
        if kind == "delay":
            time.sleep(DELAY_S)
        elif kind in ("500", "503", "409 before", "412 before"):
            client.sendall(_refusal(int(kind[:3])))
            return False
        elif kind == "dropped before":
            return False
        elif kind == "cut request":
            server.sendall(request[: len(request) // 2])
            return False
        elif kind == "lands late":
            self._land_late(request)
            return False
        server.sendall(request)
        answer = _message(answers, is_head=request.startswith(b"HEAD "))
        if kind == "dropped after":
            return False
        if kind in ("409 after", "412 after"):
            client.sendall(_refusal(int(kind[:3])))
            return False
        if kind == "cut answer":
            client.sendall(answer[: max(1, len(answer) - max(1, len(answer) // 3))])
            return False
        client.sendall(answer)
        return True

    def _fault_of(self, request: bytes) -> str:
        with self._lock:
            self.requests += 1
            if self._number == 0 or self.requests != self._number:
                return ""
            self.hit = request[: request.find(b"\r\n")].decode(errors="replace").removesuffix(" HTTP/1.1")
            return self._kind

    def _land_late(self, request: bytes) -> None:
        def land() -> None:
            time.sleep(LATE_S)
            with contextlib.suppress(OSError, _Ended), self._server() as server, server.makefile("rb") as answers:
                server.sendall(request)
                _message(answers, is_head=request.startswith(b"HEAD "))

        thread = threading.Thread(target=land, daemon=True)
        with self._lock:
            self._late.append(thread)
        thread.start()


class _Ended(Exception):
    """The connection ended."""


def _message(stream: BinaryIO, *, is_head: bool = False) -> bytes:
    """One request or answer, whole, as it came."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            raise _Ended
        head += line
    if head.startswith(b"HTTP/1.1 100"):
        return _message(stream, is_head=is_head)
    fields = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
    }
    if is_head or head.split(b" ", 2)[1] in (b"204", b"304"):
        return head
    if fields.get(b"transfer-encoding", b"").lower() == b"chunked":
        return head + _chunks(stream)
    return head + stream.read(int(fields.get(b"content-length", b"0")))


def _chunks(stream: BinaryIO) -> bytes:
    body = b""
    while True:
        size = stream.readline()
        piece = stream.read(int(size.split(b";")[0], 16) + 2)
        body += size + piece
        if size.split(b";")[0].strip() == b"0":
            return body


def _refusal(status: int) -> bytes:
    body = f"<?xml version='1.0'?><Error><Code>{_CODES[status]}</Code><Message>injected</Message></Error>".encode()
    head = f"HTTP/1.1 {status} Injected\r\ncontent-type: application/xml\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"connection: close\r\n\r\n" + body


@contextlib.contextmanager
def http_faults(port: int) -> Generator[HttpFaults]:
    """A proxy to an HTTP server on this machine."""
    proxy = HttpFaults(port)
    try:
        yield proxy
    finally:
        proxy.disarm()
        proxy.close()
